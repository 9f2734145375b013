"""`penstock pump wis2`: WIS2 notifications on the command line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.core.errors import NotFound
from penstock_pump.posts.wis2_schema import notification_problems

app = typer.Typer(help="WIS2 notifications of the World Meteorological Organization.")


@app.callback()
def wis2() -> None:
    """WIS2 notifications of the World Meteorological Organization."""


@app.command()
def validate(
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE...", help="Default: standard input.")
    ] = None,
) -> None:
    """Check notifications against WMO's schema; status 1 if one does not conform."""
    failed = False
    for file in files or [Path("-")]:
        try:
            body = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
        except OSError as error:
            raise NotFound(f"{file}: {error.strerror}") from None
        problems = notification_problems(body)
        failed = failed or bool(problems)
        found = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        typer.echo(f"{file}: {found if problems else 'valid'}")
        for problem in problems:
            typer.echo(f"  {problem}")
    if failed:
        raise typer.Exit(1)
