"""Running a component from the command line: one line when it is ready, one when it has ended."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine
from importlib import import_module
from typing import Any, Final

import typer

from penstock.cli.fabric import hush_libraries
from penstock.cli.lifetime import until_stopped
from penstock.cli.metrics_server import serve_metrics
from penstock.cli.pump_bars import show_transfers
from penstock.core.config import LogSettings
from penstock.core.logs import configure
from penstock.pump import components
from penstock.pump.components import Control
from penstock.pump.config.settings import Component, PumpSettings
from penstock.pump.posts.reports import Report
from penstock.pump.standing import keep_standing

#: New objects before Python looks for cycles among them; 700 unless told.
_YOUNG: Final = 100_000
_RUN: Final[dict[Component, Callable[[PumpSettings, Control], Awaitable[None]]]] = {
    Component.WATCH: components.watch,
    Component.SUBSCRIBE: components.subscribe,
    Component.SARRA: components.sarra,
    Component.WINNOW: components.winnow,
    Component.SHOVEL: components.shovel,
    Component.SENDER: components.sender,
}


def run(settings: PumpSettings, *, verbose: bool = False, metrics: int | None = None) -> None:
    """Whatever the settings are of; raises `typer.Exit` where something was left undone."""
    configure(LogSettings(level="info" if verbose else "warning"))
    hush_libraries()
    component = settings.component
    if component is Component.POST:
        _post(settings)
    elif component is Component.SAVE:
        typer.echo(f"saved {asyncio.run(components.save(settings))} messages")
    elif component is Component.RESTORE:
        typer.echo(f"restored {asyncio.run(components.restore(settings))} messages")
    elif component is Component.REPORT:
        _on_loop(_until_stopped(settings, _report, metrics))
    else:
        _on_loop(_until_stopped(settings, _RUN[component], metrics))


def _on_loop(work: Coroutine[Any, Any, None]) -> None:
    """Many small sockets are what uvloop is good at: a fifth less CPU a file, where it is there."""
    # A thousand posts in hand are a hundred thousand objects that come and go, none of them in a
    # cycle: to look for cycles among them as often as Python does took a third of the time.
    gc.freeze()
    gc.set_threshold(_YOUNG)
    try:
        run_loop = import_module("uvloop").run
    except ImportError:
        run_loop = asyncio.run
    run_loop(work)


def _post(settings: PumpSettings) -> None:
    posted = asyncio.run(components.post(settings))
    rejected = f", {posted.rejected} rejected" if posted.rejected else ""
    typer.echo(f"announced {posted.announced}{rejected}")
    for path, reason in posted.failed.items():
        typer.echo(f"not announced: {path}: {reason}", err=True)
    if posted.failed:
        raise typer.Exit(1)


async def _report(settings: PumpSettings, control: Control) -> None:
    await components.report(settings, _show, control)


def _show(report: Report) -> None:
    took = f"{report.seconds:.3f}s"
    typer.echo(
        f"{report.code} {took} {report.user}@{report.host} {report.post.url} {report.message}"
    )


async def _until_stopped(
    settings: PumpSettings,
    component: Callable[[PumpSettings, Control], Awaitable[None]],
    metrics: int | None,
) -> None:
    async with until_stopped() as stop:
        control = Control(stop=stop)
        if metrics is not None:
            _serve(settings, control, metrics)
        task = asyncio.ensure_future(component(settings, control))
        ready = asyncio.ensure_future(control.ready.wait())
        stopped = asyncio.ensure_future(stop.wait())
        standing = asyncio.ensure_future(keep_standing(settings, control))
        bars = asyncio.ensure_future(show_transfers(control.transfers))
        await asyncio.wait([task, ready, stopped], return_when=asyncio.FIRST_COMPLETED)
        if control.ready.is_set():
            typer.echo(f"penstock pump ready: {settings.component} {settings.name}")
        elif stop.is_set():
            task.cancel()  # it is still waiting for a broker
        for waiting in (ready, stopped):
            waiting.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return
        finally:
            for beside in (standing, bars):
                beside.cancel()
            await asyncio.gather(standing, bars, return_exceptions=True)
    _summary(control)


def _serve(settings: PumpSettings, control: Control, port: int) -> None:
    from penstock.pump.metrics import registry

    serve_metrics(port, registry(settings, control))


def _summary(control: Control) -> None:
    tally = control.tally
    if not tally.heard:
        return
    codes = ", ".join(f"{code}: {count}" for code, count in sorted(tally.codes.items()))
    rejected = tally.rejected.total()
    typer.echo(f"heard {tally.heard}; {codes or 'nothing done'}; rejected {rejected}")
