"""`penstock config`: the effective settings and their origin; passwords are hidden."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from penstock.cli.options import AsJson, ConfigFile, Overrides, effective
from penstock.cli.table import new_table
from penstock.core.config_sources import DEFAULT_ORIGIN


def config(
    file: ConfigFile = None,
    pairs: Overrides = None,
    as_json: AsJson = False,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only settings that differ from the default.")
    ] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Also print descriptions.")] = False,
) -> None:
    """Show all settings, their values and origins."""
    rows = [row for row in effective(file, pairs).rows() if not changed or row[2] != DEFAULT_ORIGIN]
    if as_json:
        document = {
            setting.key: {"value": setting.shown(value), "source": origin}
            for setting, value, origin in rows
        }
        typer.echo(json.dumps(document, indent=2, default=str))
        return
    from rich.console import Console
    from rich.text import Text

    table = new_table("key", "value", "source", *(["description"] if explain else []))
    for setting, value, origin in rows:
        cells = [setting.key, setting.printed(setting.shown(value)), origin]
        cells += [setting.description] if explain else []
        table.add_row(*map(Text, cells), style="dim" if origin == DEFAULT_ORIGIN else "")
    Console().print(table)
