"""`penstock config`: the settings in force and where each came from; passwords are hidden."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from penstock.cli.options import ConfigFile, Overrides, effective
from penstock.core.config_sources import DEFAULT_ORIGIN, EffectiveSettings


def config(
    file: ConfigFile = None,
    pairs: Overrides = None,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only what is not as it comes.")
    ] = False,
    explain: Annotated[bool, typer.Option("--explain", help="Say what each is for.")] = False,
) -> None:
    """Show every setting, its value, and where it came from."""
    found = effective(file, pairs)
    rows = [row for row in found.rows() if not changed or row[2] != DEFAULT_ORIGIN]
    if as_json:
        document = {
            setting.key: {"value": setting.shown(value), "source": origin}
            for setting, value, origin in rows
        }
        typer.echo(json.dumps(document, indent=2, default=str))
        return
    _table(found, changed, explain)


def _table(found: EffectiveSettings, changed: bool, explain: bool) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for heading in ("key", "value", "source", *(["what for"] if explain else [])):
        table.add_column(heading, overflow="fold")
    for setting, value, origin in found.rows():
        if changed and origin == DEFAULT_ORIGIN:
            continue
        style = "dim" if origin == DEFAULT_ORIGIN else ""
        cells = [Text(setting.key), Text(setting.printed(setting.shown(value))), Text(origin)]
        if explain:
            cells.append(Text(setting.description))
        table.add_row(*cells, style=style)
    Console().print(table)
