"""`penstock pump demo`: a folder carried to another, as `penstock up` shows it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.durations import seconds
from penstock.cli.fabric import DEFAULT_URL, Url, hush_libraries
from penstock.cli.lifetime import until_stopped
from penstock.cli.options import ConfigFile, Data, Overrides, prepare

FOLDER = "pump"


def demo(
    url: Url = DEFAULT_URL,
    every: Annotated[
        str, typer.Option(metavar="TIME", help="A station writes a file this often.")
    ] = "5s",
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    with_stdin: Annotated[bool, typer.Option("--stop-with-stdin", hidden=True)] = False,
) -> None:
    """Carry what lands in DATA/pump/inbox to DATA/pump/mirror, and let stations write there."""
    home = prepare(file, pairs, data).settings.data
    hush_libraries()
    asyncio.run(_run(url, (home / FOLDER).absolute(), seconds(every), with_stdin))


async def _run(url: str, home: Path, every: float, with_stdin: bool) -> None:
    from penstock.pump.demonstration import Demonstration

    shown = Demonstration(home, url, every)
    async with until_stopped(with_stdin) as stop:
        await shown.run(stop, lambda: typer.echo(f"penstock pump ready: {shown.inbox.as_uri()}"))
