"""Runs a component from the command line: prints a line when it is ready and one at its end, and
shows progress bars of long transfers on a terminal."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal

import typer

from penstock.cli.metrics_server import serve_metrics
from penstock.cli.shutdown import stop_event
from penstock.core.config import LogSettings
from penstock.core.errors import ConfigurationError
from penstock.core.logs import configure_logs
from penstock_pump import components
from penstock_pump.components import ComponentControl
from penstock_pump.config.settings import Component, PumpSettings
from penstock_pump.posts.reports import PostReport
from penstock_pump.status import LONG_TRANSFER_SECONDS, write_status_regularly
from penstock_pump.transfer import TransferRegistry

if TYPE_CHECKING:
    from rich.progress import Progress

#: New objects before Python's garbage collector runs; its default is 700.
_GC_THRESHOLD: Final = 100_000
_BAR_SECONDS: Final = 0.2
LogLevel = Literal["debug", "info", "warning", "error"]
_LOG_LEVELS: Final[dict[str, LogLevel]] = {
    "debug": "debug",
    "info": "info",
    "warning": "warning",
    "error": "error",
    "critical": "error",  # Sarracenia's
    "none": "error",
    "notset": "debug",
}
_RUN: Final[dict[Component, Callable[[PumpSettings, ComponentControl], Awaitable[None]]]] = {
    Component.WATCH: components.watch,
    Component.SUBSCRIBE: components.subscribe,
    Component.SARRA: components.sarra,
    Component.WINNOW: components.winnow,
    Component.SHOVEL: components.shovel,
    Component.SENDER: components.sender,
    Component.FLOW: components.flow,
    Component.POLL: components.poll,
}


def log_level(settings: PumpSettings) -> LogLevel:
    word = (settings.log_level or "warning").lower()
    if word not in _LOG_LEVELS:
        raise ConfigurationError(f"log_level {word!r} should be one of {', '.join(_LOG_LEVELS)}")
    return _LOG_LEVELS[word]


def run(settings: PumpSettings, *, verbose: bool = False, metrics: int | None = None) -> None:
    """Runs the component of the settings; raises `typer.Exit` if `post` could not announce all
    files."""
    configure_logs(LogSettings(level="info" if verbose else log_level(settings)))
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
    """uvloop, where installed, saves a fifth of the CPU per file."""
    # A thousand posts in progress are a hundred thousand short-lived objects, none of them in a
    # cycle: with Python's default the garbage collector took a third of the time.
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD)
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
            task.cancel()  # still connecting
        for waiting in (ready, stopped):
            waiting.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return
        finally:
            for background in (current_status, bars):
                background.cancel()
            await asyncio.gather(current_status, bars, return_exceptions=True)
    _summary(control)


def _serve(settings: PumpSettings, control: ComponentControl, port: int) -> None:
    from penstock_pump.metrics import registry

    serve_metrics(port, registry(settings, control))


def _summary(control: ComponentControl) -> None:
    counters = control.counters
    if not counters.received:
        return
    codes = ", ".join(f"{code}: {count}" for code, count in sorted(counters.codes.items()))
    rejected = counters.rejected.total()
    typer.echo(f"received {counters.received}; {codes or 'no outcomes'}; rejected {rejected}")


async def show_transfers(transfers: TransferRegistry) -> None:
    """Until cancelled; nothing where stderr is no terminal."""
    if not sys.stderr.isatty():
        return
    from rich.console import Console

    with new_bars(Console(stderr=True)) as bars:
        while True:
            long = transfers.longer_than(LONG_TRANSFER_SECONDS)
            draw_bars(bars, ((each.name, each.done, each.total) for each in long))
            await asyncio.sleep(_BAR_SECONDS)


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
    """A bar for each transfer; bars of others are removed."""
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
