"""The command line: one command a file, thin; what they do lives in the rooms below.

This file is the map. A command's module is imported when the command is asked for, so that
`penstock broker` carries nothing of the client's.
"""

from __future__ import annotations

import typer

from penstock.cli.map import Map

app = typer.Typer(
    name="penstock",
    cls=Map,
    help="Penstock carries events, files and jobs to the people and programs that want them.",
    epilog="Begin with `penstock up`; then, in another terminal, `penstock sub 'occupancy.#'`.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def penstock() -> None:
    """Penstock carries events, files and jobs to the people and programs that want them."""
