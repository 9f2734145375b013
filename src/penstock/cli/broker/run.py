"""`penstock broker`: one broker in this process, until it is told to stop."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.cli.options import ConfigFile, Data, Listen, Overrides, prepare
from penstock.core.config import Settings


def broker(
    ctx: typer.Context,
    data: Data = None,
    listen: Listen = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    with_stdin: Annotated[bool, typer.Option("--with-stdin", hidden=True)] = False,
) -> None:
    """Run a broker alone, or ask one that runs.

    Prints one line when it is ready; SIGTERM or Ctrl-C stops it cleanly.
    """
    if ctx.invoked_subcommand is not None:
        return
    import asyncio

    settings = prepare(file, pairs, data, listen).settings
    asyncio.run(serve(settings, with_stdin))


async def serve(settings: Settings, with_stdin: bool) -> None:
    from penstock.cli.lifetime import until_stopped
    from penstock.server import Broker

    async with until_stopped(with_stdin) as stop:
        async with Broker(settings.broker, data=settings.data) as running:
            typer.echo(f"penstock broker ready: {' '.join(map(str, running.addresses))}")
            await stop.wait()
