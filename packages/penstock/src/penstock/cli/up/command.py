"""`penstock up`: runs the broker and all installed applications under one supervisor."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.options import ConfigFile, Data, Database, Listen, Overrides, effective
from penstock.cli.up.extension import UpOptions, flags
from penstock.cli.up.plan import plan
from penstock.core.config_sources import DEFAULT_ORIGIN, EffectiveSettings
from penstock.core.data_directory import FileLock, lock_directory, private_directory
from penstock.core.errors import ResourceLocked

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.core.config import Settings


def up(
    data: Data = None,
    listen: Listen = None,
    database: Database = None,
    file: ConfigFile = None,
    pairs: Overrides = None,
    pipeline: Annotated[bool, typer.Option(help="Run the database and the Spark pipeline.")] = True,
    demo: Annotated[bool, typer.Option(help="Run simulated people counters.")] = True,
    hives: Annotated[
        int, typer.Option(min=1, metavar="N", help="Number of simulated venues.")
    ] = 50,
    applications: Annotated[
        bool, typer.Option(help="Run public page, API, alerts, pump, jobs, history, dashboards.")
    ] = True,
) -> None:
    """Start the broker and all applications on this machine; Ctrl-C stops them."""
    import asyncio

    started = time.monotonic()
    found = effective(file, pairs, data, listen)
    lock = lock_home(found.settings.data)
    shared = flags("--config", [file] if file else ()) + flags("--set", pairs or ())
    if sys.stdout.isatty():
        shared += _log_options(found)
    certificate = found.settings.broker.tls.certificate
    options = UpOptions(
        data_dir=found.settings.data,
        shared=shared,
        broker=flags("--listen", listen or ()),
        data=flags("--data", [data] if data else ()),
        database=database,
        pipeline=pipeline,
        demo=demo,
        hives=hives,
        applications=applications,
        overlay=any(url.startswith("padres://") for url in found.settings.broker.listen),
        certificate=None if certificate is None else str(certificate),
        site=found.settings.up.site,
        dashboards=found.settings.up.dashboards,
    )
    with lock:
        asyncio.run(_run(found.settings, options, started))


def lock_home(data: Path) -> FileLock:
    """Locks the data directory; no broker may run in it."""
    from penstock.server.broker import LOCK_NAME

    advice = "stop it, or choose another directory with --data"
    lock = lock_directory(private_directory(data, traversable=True), "up.lock", advice)
    broker = FileLock(data / LOCK_NAME)
    if broker.is_held:
        lock.release()
        raise ResourceLocked(f"{data} is in use by a broker, {broker.holder}: {advice}")
    return lock


async def _run(settings: Settings, options: UpOptions, started: float) -> None:
    from penstock.cli.shutdown import stop_event
    from penstock.cli.up.monitor import Monitor
    from penstock.cli.up.panel import show
    from penstock.cli.up.supervisor import Supervisor

    parts = plan(options)
    probes = [each.probe() for each in parts.extensions if each.probe is not None]
    async with stop_event() as stop:
        with show(settings, parts, options.data, started) as panel:
            supervisor = Supervisor(parts.parts, panel.add_line, settings.broker.drain_seconds)
            panel.watch(supervisor)
            with Monitor(supervisor, probes, panel.update):
                await supervisor.run(stop)


def _log_options(found: EffectiveSettings) -> list[str]:
    """Parts write to a pipe, but a person reads it, below a panel that shows the usual events."""
    defaults = {"log.format": "console", "log.level": "warning"}
    unset = [key for key in defaults if found.origins.get(key, DEFAULT_ORIGIN) == DEFAULT_ORIGIN]
    return flags("--set", (f"{key}={defaults[key]}" for key in unset))
