"""`penstock broker`: the broker alone, until it is told to stop."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from penstock.cli.lifetime import until_stopped
from penstock.cli.options import ConfigFile, Data, Listen, Overrides, prepare
from penstock.cli.status import status
from penstock.core.config import Settings
from penstock.core.garbage_collection import short_gc_pauses
from penstock.core.machine import give_back_large_blocks, raise_descriptor_limit

app = typer.Typer(help="Run a broker alone, or look at one that runs.")
app.command()(status)


@app.callback(invoke_without_command=True)
def broker(
    context: typer.Context,
    file: ConfigFile = None,
    pairs: Overrides = None,
    data: Data = None,
    listen: Listen = None,
    with_stdin: Annotated[
        bool,
        typer.Option("--stop-with-stdin", help="Stop when standard input ends.", hidden=True),
    ] = False,
) -> None:
    """Run a broker alone: one line when it is ready, a clean stop on SIGTERM or Ctrl-C."""
    if context.invoked_subcommand is None:
        from penstock.server.poll import new_loop

        settings = prepare(file, pairs, data, listen).settings
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_run(settings, with_stdin))


async def _run(settings: Settings, with_stdin: bool) -> None:
    from penstock.server import Broker

    give_back_large_blocks()
    raise_descriptor_limit()
    async with (
        until_stopped(with_stdin) as stop,
        Broker(settings.broker, data=settings.data, on_shutdown=stop.set) as broker,
    ):
        typer.echo(f"penstock broker ready: {' '.join(broker.addresses)}")
        with short_gc_pauses():
            await stop.wait()
