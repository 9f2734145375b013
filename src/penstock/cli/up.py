"""`penstock up`: everything there is, on this machine, under one supervisor."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import ConfigFile, Data, Listen, Overrides, effective
from penstock.core.sources import DEFAULT, Effective

if TYPE_CHECKING:
    from penstock.cli.supervisor import Addresses, Part
    from penstock.core.config import Settings


def up(
    data: Data = None,
    listen: Listen = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    demo: Annotated[bool, typer.Option(help="A little traffic to look at.")] = True,
) -> None:
    """Start everything on this machine and show how to reach it; Ctrl-C stops it cleanly."""
    import asyncio

    found = effective(file, pairs, data, listen)
    found.settings.data.mkdir(parents=True, exist_ok=True)
    shared = _flags("--config", [file] if file else ()) + _flags("--set", pairs or ())
    if sys.stdout.isatty():
        shared += _manners(found)
    ours = _flags("--data", [data] if data else ()) + _flags("--listen", listen or ())
    asyncio.run(_run(found.settings, parts(shared, ours, demo)))


async def _run(settings: Settings, wanted: list[Part]) -> None:
    from penstock.cli.lifetime import until_stopped
    from penstock.cli.panel import show
    from penstock.cli.supervisor import Supervisor

    async with until_stopped() as stop:
        with show(settings) as panel:
            supervisor = Supervisor(wanted, panel.said, settings.broker.drain_seconds)
            panel.watch(supervisor)
            await supervisor.run(stop)


def parts(shared: list[str], brokers: list[str], demo: bool) -> list[Part]:
    """The parts of this machine in order of need, each a command of our own.

    They get our own flags once more, those all take and those for the broker alone; the
    environment they inherit.
    """
    from penstock.cli.supervisor import Part

    own = [sys.executable, "-m", "penstock"]

    def broker(_: Addresses) -> list[str]:
        return [*own, "broker", "--stop-with-stdin", *shared, *brokers]

    def traffic(addresses: Addresses) -> list[str]:
        amqp = [url for url in addresses["broker"] if url.startswith("amqp://")]
        return [*own, "demo", "--stop-with-stdin", *shared, *_flags("--url", amqp[:1])]

    return [Part("broker", broker), *([Part("demo", traffic)] if demo else [])]


def _flags(name: str, values: Iterable[object]) -> list[str]:
    return [word for value in values for word in (name, str(value))]


def _manners(found: Effective) -> list[str]:
    """Parts write to a pipe, but a person reads it, beside a table that shows the usual events."""
    usual = {"log.format": "console", "log.level": "warning"}
    unset = [key for key in usual if found.origins.get(key, DEFAULT) == DEFAULT]
    return _flags("--set", (f"{key}={usual[key]}" for key in unset))
