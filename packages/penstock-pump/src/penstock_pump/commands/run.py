"""Running a component from the command line: one line when it is ready, one when it has ended."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import typer

from penstock.cli.metrics_server import serve_metrics
from penstock.cli.shutdown import stop_event
from penstock.core.config import LogSettings
from penstock.core.logs import configure_logs
from penstock_pump import components
from penstock_pump.components import ComponentControl
from penstock_pump.config.settings import Component, PumpSettings
from penstock_pump.posts.reports import PostReport
from penstock_pump.status import LONG_TRANSFER_SECONDS, write_status_regularly
from penstock_pump.transfer import TransferRegistry

if TYPE_CHECKING:
    from rich.progress import Progress


#: New objects before Python looks for cycles among them; 700 unless told.
_YOUNG: Final = 100_000
_RUN: Final[dict[Component, Callable[[PumpSettings, ComponentControl], Awaitable[None]]]] = {
    Component.WATCH: components.watch,
    Component.SUBSCRIBE: components.subscribe,
    Component.SARRA: components.sarra,
    Component.WINNOW: components.winnow,
    Component.SHOVEL: components.shovel,
    Component.SENDER: components.sender,
}


def run(settings: PumpSettings, *, verbose: bool = False, metrics: int | None = None) -> None:
    """Whatever the settings are of; raises `typer.Exit` where something was left undone."""
    configure_logs(LogSettings(level="info" if verbose else "warning"))
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


async def _report(settings: PumpSettings, control: ComponentControl) -> None:
    await components.report(settings, _show, control)


def _show(report: PostReport) -> None:
    took = f"{report.seconds:.3f}s"
    typer.echo(
        f"{report.code} {took} {report.user}@{report.host} {report.post.url} {report.message}"
    )


async def _until_stopped(
    settings: PumpSettings,
    component: Callable[[PumpSettings, ComponentControl], Awaitable[None]],
    metrics: int | None,
) -> None:
    async with stop_event() as stop:
        control = ComponentControl(stop=stop)
        if metrics is not None:
            _serve(settings, control, metrics)
        task = asyncio.ensure_future(component(settings, control))
        ready = asyncio.ensure_future(control.ready.wait())
        stopped = asyncio.ensure_future(stop.wait())
        current_status = asyncio.ensure_future(write_status_regularly(settings, control))
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
            for beside in (current_status, bars):
                beside.cancel()
            await asyncio.gather(current_status, bars, return_exceptions=True)
    _summary(control)


def _serve(settings: PumpSettings, control: ComponentControl, port: int) -> None:
    from penstock_pump.metrics import registry

    serve_metrics(port, registry(settings, control))


def _summary(control: ComponentControl) -> None:
    counters = control.counters
    if not counters.heard:
        return
    codes = ", ".join(f"{code}: {count}" for code, count in sorted(counters.codes.items()))
    rejected = counters.rejected.total()
    typer.echo(f"heard {counters.heard}; {codes or 'nothing done'}; rejected {rejected}")


# Bars for transfers that take long: on a terminal, below what else is said; else not at all.

_LOOK_SECONDS: Final = 0.2


async def show_transfers(transfers: TransferRegistry) -> None:
    """Until cancelled."""
    if not sys.stderr.isatty():
        return
    from rich.console import Console

    with new_bars(Console(stderr=True)) as bars:
        while True:
            long = transfers.long(LONG_TRANSFER_SECONDS)
            draw_bars(bars, ((each.name, each.done, each.total) for each in long))
            await asyncio.sleep(_LOOK_SECONDS)


def new_bars(console: object = None) -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=console if isinstance(console, Console) else None,
        transient=True,
    )


def draw_bars(bars: Progress, transfers: Iterable[tuple[str, int, int | None]]) -> None:
    """A bar for each of these, and none for what has ended."""
    known = {task.description: task.id for task in bars.tasks}
    seen = set()
    for name, done, total in transfers:
        seen.add(name)
        if name not in known:
            known[name] = bars.add_task(name, total=total)
        bars.update(known[name], completed=done, total=total)
    for name, task in known.items():
        if name not in seen:
            bars.remove_task(task)
