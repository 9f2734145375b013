"""`penstock broker`: run a broker alone; with a word after it, ask one that runs."""

from __future__ import annotations

import typer

from penstock.cli.broker import definitions, run, status

app = typer.Typer(invoke_without_command=True, help="Run a broker alone, or ask one that runs.")
app.callback()(run.broker)
app.command()(status.status)
app.command("export")(definitions.export)
app.command("import")(definitions.restore)
