"""`penstock up`: everything there is, on this machine, under one supervisor."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import ConfigFile, Data, Listen, Overrides, effective
from penstock.core.config import Settings

if TYPE_CHECKING:
    from penstock.cli.supervisor import Part


def up(
    data: Data = None,
    listen: Listen = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    demo: Annotated[bool, typer.Option(help="A little traffic to look at.")] = True,
) -> None:
    """Start everything on this machine and show how to reach it; Ctrl-C stops it cleanly."""
    import asyncio

    from penstock.cli.lifetime import until_stopped
    from penstock.cli.panel import show
    from penstock.cli.supervisor import Supervisor

    settings = effective(file, pairs, data, listen).settings
    settings.data.mkdir(parents=True, exist_ok=True)
    flags = _flags(data, listen, file, pairs)
    if sys.stdout.isatty() and settings.log.format == "auto":
        flags += ["--set", "log.format=console"]  # the parts write to a pipe, but for a person

    async def run() -> None:
        async with until_stopped() as stop:
            with show(settings) as panel:
                supervisor = Supervisor(
                    parts(settings, flags, demo), panel.said, settings.broker.drain_seconds
                )
                panel.watch(supervisor.keepers)
                await supervisor.run(stop)

    asyncio.run(run())


def parts(settings: Settings, flags: list[str], demo: bool) -> list[Part]:
    """The parts of this machine in order of need, each a command of our own."""
    from penstock.cli.supervisor import Part

    own = [sys.executable, "-m", "penstock"]
    found = [
        Part(
            "broker",
            [*own, "broker", "--stop-with-stdin", *flags],
            "penstock sub '#' · penstock broker status",
        )
    ]
    amqp = next((url for url in settings.broker.listen if url.startswith("amqp://")), None)
    if demo and amqp and not amqp.endswith(":0"):
        found.append(
            Part(
                "demo", [*own, "demo", "--stop-with-stdin", "--url", amqp], "penstock sub 'demo.#'"
            )
        )
    return found


def _flags(
    data: Path | None, listen: list[str] | None, file: Path | None, pairs: list[str] | None
) -> list[str]:
    """Our own flags once more, for the parts; the environment they inherit."""
    flags: list[str] = []
    if data is not None:
        flags += ["--data", str(data)]
    for url in listen or ():
        flags += ["--listen", url]
    if file is not None:
        flags += ["--config", str(file)]
    for pair in pairs or ():
        flags += ["--set", pair]
    return flags
