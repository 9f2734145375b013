"""`penstock hives alerts`: the process that tells people what they wanted to know."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.lifetime import until_stopped
from penstock.cli.options import ConfigFile, Data, Overrides, prepare


def alerts(
    url: Annotated[
        list[str] | None,
        typer.Option(
            metavar="URL", help="A broker that tells of live figures; more are tried in turn."
        ),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            envvar="PENSTOCK_DATABASE",
            help="A PostgreSQL instead of the embedded one.",
        ),
    ] = None,
    data: Data = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    with_stdin: Annotated[bool, typer.Option("--stop-with-stdin", hidden=True)] = False,
) -> None:
    """Match figures and deals with what people want to be told, and push it to their devices.

    One such process is enough: a second does no harm, and no good.
    """
    from penstock import store
    from penstock.cli.fabric import DEFAULT_URL, hush_libraries

    settings = prepare(file, pairs, data).settings
    hush_libraries()
    with store.open(database, settings.data) as opened:
        asyncio.run(_run(opened.url, url or [DEFAULT_URL], settings.data / "hives", with_stdin))


async def _run(database: str, brokers: Sequence[str], home: Path, with_stdin: bool) -> None:
    from penstock.hives.app.alerts.opening import open_watch
    from penstock.hives.app.push.settings import PushSettings
    from penstock.hives.app.settings import Settings

    production = Settings(database=database).production
    async with (
        until_stopped(with_stdin) as stop,
        open_watch(database, brokers, PushSettings.beside(home), production=production) as watch,
    ):
        running = asyncio.create_task(watch.run())
        ready = asyncio.create_task(watch.ready.wait())
        stopped = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait((running, ready, stopped), return_when=asyncio.FIRST_COMPLETED)
            if watch.ready.is_set():
                typer.echo("penstock hives alerts ready: occupancy, deals")
            await asyncio.wait((running, stopped), return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()  # it does not end by itself: whatever it raised
        finally:
            for task in (running, ready, stopped):
                task.cancel()
            # All of them, before what they use is closed: whichever ends last, and however.
            await asyncio.gather(running, ready, stopped, return_exceptions=True)
