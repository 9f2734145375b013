"""The command line: one module per command, imported when the command is called (`map.py`)."""

from __future__ import annotations

import typer

from penstock.cli.map import Map

app = typer.Typer(
    name="penstock",
    cls=Map,
    help="Message broker for AMQP, MQTT and PADRES, with clients and applications.",
    epilog="Start with `penstock up`; then, in another terminal, `penstock sub 'occupancy.#'`.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def penstock() -> None:
    """Message broker for AMQP, MQTT and PADRES, with clients and applications."""
