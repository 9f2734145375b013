"""`penstock pump start | stop | restart | status | sanity`: the processes of configurations.

Each instance is a process; its log and status file are in its state directory.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.core.data_directory import private_directory, private_opener
from penstock.core.errors import ConfigurationError, PenstockError
from penstock_pump.commands.configurations import (
    ALIASES,
    PumpConfiguration,
    Targets,
    find_configurations,
)
from penstock_pump.commands.options import read
from penstock_pump.components.topology import declare_component, notify_component
from penstock_pump.components.vip import has_address
from penstock_pump.config.settings import Component, PumpSettings
from penstock_pump.names import state_folder
from penstock_pump.status import ComponentStatus, read_status

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

LONG_RUNNING: Final = frozenset(Component) - {Component.POST, Component.SAVE, Component.RESTORE}
#: Components of Sarracenia that the pump does not have.
UNSUPPORTED: Final = {"audit": "the broker's own monitoring replaces it"}
START_SECONDS: Final = 60.0
#: How long brokers may take to declare what is started.
DECLARE_SECONDS: Final = 20.0
STOP_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05
#: What `status` shows of a component that runs.
FIGURES: Final = (
    *("pid", "received", "msg/s", "queued"),
    *("outcomes", "retries", "rejected", "lag", "last"),
)
#: Columns of a terminal on which every table fits.
BOUNDLESS: Final = 10_000
#: Processes started at a time: each start takes a second of CPU.
_CONCURRENCY: Final = 4


@dataclass(frozen=True, slots=True)
class FleetMember:
    """One instance of one configuration."""

    conf: Path
    settings: PumpSettings

    @property
    def name(self) -> str:
        settings = self.settings
        number = f" {settings.instance}" if settings.instances > 1 else ""
        return f"{settings.component}/{settings.name}{number}"

    def current_status(self) -> ComponentStatus | None:
        found = read_status(self.settings)
        return found if found is not None and found.running else None


def member_of(configuration: PumpConfiguration) -> FleetMember:
    folder = ALIASES.get(configuration.component, configuration.component)
    component = Component(folder) if folder in list(Component) else None
    return FleetMember(configuration.path, read(configuration.path, component, {}))


def members(targets: Sequence[str] | None) -> Iterator[FleetMember]:
    """The processes of the enabled configurations."""
    for configuration in find_configurations(targets):
        if configuration.component in UNSUPPORTED:
            typer.echo(f"{configuration} skipped: {UNSUPPORTED[configuration.component]}", err=True)
            continue
        if not configuration.is_enabled:
            continue
        member = member_of(configuration)
        if member.settings.component in LONG_RUNNING:
            for instance in range(1, member.settings.instances + 1):
                copy = member.settings.model_copy(update={"instance": instance})
                yield FleetMember(member.conf, copy)


def start(targets: Targets = None) -> None:
    """Start the components that are not running, and wait until they are ready.

    All queues are declared before the first component runs, so none misses what another announces.
    """
    fleet = list(members(targets))
    if stopped := [each for each in fleet if each.current_status() is None]:
        asyncio.run(_declare(stopped))
    _for_each(fleet, _start_stopped)


def restart(targets: Targets = None) -> None:
    """Stop the components, and start them again."""
    stop(targets)
    start(targets)


def stop(targets: Targets = None) -> None:
    """Stop the running components, and wait until they have ended."""
    fleet = [(each, each.current_status()) for each in members(targets)]
    for _, current_status in fleet:
        if current_status is not None:
            os.kill(current_status.pid, signal.SIGTERM)
    for member, current_status in fleet:
        if current_status is not None:
            deadline = time.monotonic() + STOP_SECONDS
            while current_status.running and time.monotonic() < deadline:
                time.sleep(_POLL_SECONDS)
            word = "stopped" if not current_status.running else "does not stop"
            typer.echo(f"{member.name} {word}")


def sanity(targets: Targets = None) -> None:
    """Show whose defaults each configuration has, and restart components that died. Stopped
    components stay stopped."""
    fleet = list(members(targets))
    for member in fleet:
        settings = member.settings
        if settings.instance == 1:
            reason = settings.dialect_reason
            typer.echo(
                f"{settings.component}/{settings.name} dialect {settings.dialect} ({reason})"
            )
            if settings.plugins:
                asyncio.run(notify_component(settings, "on_sanity"))
    _for_each(fleet, _restart_died)


def status(
    targets: Targets = None,
    live: Annotated[bool, typer.Option("--live", help="Update every second.")] = False,
) -> None:
    """Show all components: received messages, outcomes, retries and lag."""
    from rich.console import Console, Group
    from rich.live import Live

    from penstock_pump.commands.run import draw_bars, new_bars

    console = Console()
    fleet = list(members(targets or _default_targets()))
    if not live:
        console.print(_table(fleet, console))
        return
    bars = new_bars(console)
    with Live(_table(fleet, console), console=console) as shown:
        while True:
            time.sleep(1.0)
            draw_bars(bars, _transfers(fleet))
            shown.update(Group(_table(fleet, console), bars))


def _default_targets() -> list[str] | None:
    """All configurations of the home, and those of the demonstration of `penstock up`."""
    from penstock.cli.options import effective
    from penstock_pump.commands.configurations import config_home
    from penstock_pump.commands.pump import DEMO_FOLDER
    from penstock_pump.demo import CONFIG_FOLDER

    demo = effective().settings.data / DEMO_FOLDER / CONFIG_FOLDER
    return [str(each) for each in (config_home(), demo) if any(each.glob("*/*.*"))] or None


def _transfers(fleet: list[FleetMember]) -> Iterator[tuple[str, int, int | None]]:
    for member in fleet:
        current_status = member.current_status()
        for name, done, total in current_status.transfers if current_status is not None else ():
            yield f"{member.name} {name}", done, total


def _table(fleet: list[FleetMember], console: Console) -> Table:
    """On a narrow terminal the figures of a component share a column, each with its name."""
    from rich.table import Table

    rows = [(member.name, _figures(member)) for member in fleet]
    table = Table()
    for head in ("component", *FIGURES):
        table.add_column(head, no_wrap=True)
    for name, figures in rows:
        table.add_row(name, *figures)
    boundless = console.options.update(max_width=BOUNDLESS)
    if console.measure(table, options=boundless).maximum <= console.width:
        return table
    narrow = Table("component", "figures")
    narrow.columns[0].no_wrap = True
    for name, figures in rows:
        known = zip(FIGURES, figures, strict=True) if len(figures) > 1 else [("", figures[0])]
        narrow.add_row(name, ", ".join(f"{head} {value}".strip() for head, value in known if value))
    return narrow


def _figures(member: FleetMember) -> list[str]:
    """In the order of `FIGURES`; of a component that does not run, its state."""
    current_status = member.current_status()
    if current_status is None:
        died = read_status(member.settings) is not None
        return ["[red]died" if died else "[dim]stopped"]
    rejected = sum(current_status.rejected.values())
    return [
        str(current_status.pid),
        str(current_status.received),
        f"{current_status.rate:.1f}",
        "-" if current_status.queued is None else str(current_status.queued),
        " ".join(f"{code}:{count}" for code, count in sorted(current_status.codes.items())),
        str(current_status.postponed),
        f"{rejected} ({next(iter(current_status.rejected))})" if rejected else "0",
        f"{current_status.lag:.1f}s",
        f"{time.time() - current_status.last:.0f}s ago" if current_status.last else "-",
    ]


def _for_each(fleet: list[FleetMember], action: Callable[[FleetMember], str | None]) -> None:
    """Prints the results in order. The first error is raised when all are done."""
    with ThreadPoolExecutor(_CONCURRENCY) as pool:
        results = [(member, pool.submit(action, member)) for member in fleet]
        for member, result in results:
            if result.exception() is None and (word := result.result()) is not None:
                typer.echo(f"{member.name} {word}")
    for _, result in results:
        result.result()


async def _declare(fleet: Iterable[FleetMember]) -> None:
    """Their exchanges, queues and bindings. Plugins do not run here. What stands by without its
    `vip` gets no queue that nobody would empty."""
    settings = [
        each.settings.model_copy(update={"plugins": []})
        for each in fleet
        if each.settings.instance == 1 and (not each.settings.vip or has_address(each.settings.vip))
    ]
    await asyncio.gather(*map(_declare_one, settings))


async def _declare_one(settings: PumpSettings) -> None:
    """A component that cannot declare says so itself, or waits for its broker."""
    try:
        async with asyncio.timeout(DECLARE_SECONDS):
            await declare_component(settings)
    except (PenstockError, OSError, TimeoutError) as error:
        name = f"{settings.component}/{settings.name}"
        reason = str(error) or f"no answer in {DECLARE_SECONDS:.0f} s"
        typer.echo(f"{name} is not declared yet: {reason}", err=True)


def _start_stopped(member: FleetMember) -> str:
    current_status = member.current_status()
    if current_status is not None:
        _wait_until_ready(member, current_status.pid)
        return "runs"
    _start(member)
    return "started"


def _restart_died(member: FleetMember) -> str | None:
    left = read_status(member.settings)
    if left is None or left.running:
        return None
    _start(member)
    return "had died, started"


def log_file(settings: PumpSettings) -> Path:
    return state_folder(settings) / f"log_{settings.instance:02d}"


def _start(member: FleetMember) -> None:
    settings = member.settings
    private_directory(state_folder(settings))
    log = log_file(settings)
    with open(log, "ab", opener=private_opener) as output:
        child = subprocess.Popen(
            [
                *(sys.executable, "-m", "penstock", "pump", "--verbose"),
                *("--conf", str(member.conf), "--component", settings.component.value),
                *("--instance", str(settings.instance)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    _wait_until_ready(member, child.pid, lambda: child.poll() is not None)


def _wait_until_ready(
    member: FleetMember, pid: int, has_ended: Callable[[], bool] | None = None
) -> None:
    """Its queues are bound then."""
    log = log_file(member.settings)
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        current_status = member.current_status()
        if current_status is not None and current_status.pid == pid and current_status.ready:
            return
        if has_ended() if has_ended is not None else current_status is None:
            raise ConfigurationError(f"{member.name} ended during its start: see {log}")
        time.sleep(_POLL_SECONDS)
    raise ConfigurationError(
        f"{member.name} is not ready after {START_SECONDS:.0f} s, and still tries: see {log}"
    )
