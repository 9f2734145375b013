"""The command line: one command a file, thin; what they do lives in the rooms below.

This file is the map. Commands import what they need when they run, so that `penstock broker`
carries nothing of the client's and `penstock --help` answers at once.
"""

from __future__ import annotations

import typer

from penstock.cli import broker, config, version
from penstock.cli.errors import ErrorsAsExitStatus

app = typer.Typer(
    name="penstock",
    cls=ErrorsAsExitStatus,
    help="Penstock carries events, files and jobs to the people and programs that want them.",
    epilog="Begin with `penstock up`, then `penstock sub 'demo.#'` in another terminal.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

RUN, LOOK, ADMINISTER = "Run", "Look", "Administer"

# up
app.add_typer(broker.app, name="broker", rich_help_panel=RUN)
app.command(rich_help_panel=LOOK)(config.config)
app.command(rich_help_panel=LOOK)(version.version)
# user
