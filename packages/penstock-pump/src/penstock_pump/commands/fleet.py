"""`penstock pump start | stop | status | sanity`: all components of a directory of configurations.

A directory is laid out as Sarracenia's: `subscribe/weather.conf`, `sarra/radar.toml`, … Each
instance is a process of its own, whose log and standing are kept beside its state.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from penstock.core.data_directory import private_directory, private_opener
from penstock.core.errors import ConfigurationError
from penstock_pump.commands.options import read
from penstock_pump.config.settings import Component, PumpSettings
from penstock_pump.names import state_folder
from penstock_pump.status import ComponentStatus, read_status

if TYPE_CHECKING:
    from rich.table import Table

#: What runs until it is stopped.
LONG_RUNNING: Final = frozenset(Component) - {Component.POST, Component.SAVE, Component.RESTORE}
#: Sarracenia's that are not ours.
NOT_OURS: Final = frozenset({"audit", "poll"})
START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 60.0
_PAUSE: Final = 0.05
#: So many are started at a time: each takes a second of a processor.
_TOGETHER: Final = 4

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A directory of configurations.")]


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


def members(folder: Path) -> Iterator[FleetMember]:
    found = sorted(path for form in ("*/*.conf", "*/*.toml") for path in folder.glob(form))
    for conf in found:
        component = Component(conf.parent.name) if conf.parent.name in list(Component) else None
        if component is None and conf.parent.name in NOT_OURS:
            typer.echo(f"{conf.parent.name}/{conf.stem} is left alone: see sr3", err=True)
            continue
        settings = read(conf, component, {})
        if settings.component in LONG_RUNNING:
            for instance in range(1, settings.instances + 1):
                yield FleetMember(conf, settings.model_copy(update={"instance": instance}))


def start(folder: Folder) -> None:
    """Start all that does not run; returns when it is ready."""
    _each(_all(folder), _begun)


def stop(folder: Folder) -> None:
    """Stop all that runs; returns when it has ended."""
    standings = [(each, each.current_status()) for each in _all(folder)]
    for _, current_status in standings:
        if current_status is not None:
            os.kill(current_status.pid, signal.SIGTERM)
    for member, current_status in standings:
        if current_status is not None:
            deadline = time.monotonic() + STOP_SECONDS
            while current_status.running and time.monotonic() < deadline:
                time.sleep(_PAUSE)
            word = "stopped" if not current_status.running else "does not stop"
            typer.echo(f"{member.name} {word}")


def sanity(folder: Folder) -> None:
    """Start again what has died; what was stopped on purpose stays so."""
    _each(_all(folder), _mended)


def status(
    folder: Folder,
    live: Annotated[bool, typer.Option("--live", help="Look again every second.")] = False,
) -> None:
    """A table of all components: what they heard, what came of it, how far they are behind."""
    from rich.console import Console, Group
    from rich.live import Live

    from penstock_pump.commands.run import draw_bars, new_bars

    console = Console()
    fleet = list(_all(folder))
    if not live:
        console.print(_table(fleet))
        return
    bars = new_bars(console)
    with Live(_table(fleet), console=console) as shown:
        while True:
            time.sleep(1.0)
            draw_bars(bars, _transfers(fleet))
            shown.update(Group(_table(fleet), bars))


def _transfers(fleet: list[FleetMember]) -> Iterator[tuple[str, int, int | None]]:
    for member in fleet:
        current_status = member.current_status()
        for name, done, total in current_status.transfers if current_status is not None else ():
            yield f"{member.name} {name}", done, total


def _table(fleet: list[FleetMember]) -> Table:
    from rich.table import Table

    table = Table()
    for head in ("component", "pid"):
        table.add_column(head, no_wrap=True)  # a narrow terminal is to have these whole
    for head in ("heard", "a second", "queued", "done", "postponed", "rejected", "lag", "last"):
        table.add_column(head, overflow="fold")
    for member in fleet:
        current_status = member.current_status()
        if current_status is None:
            died = read_status(member.settings) is not None
            table.add_row(member.name, "[red]died" if died else "[dim]stopped")
            continue
        codes = " ".join(f"{code}:{count}" for code, count in sorted(current_status.codes.items()))
        rejected = sum(current_status.rejected.values())
        why = f"{rejected} ({next(iter(current_status.rejected))})" if rejected else "0"
        ago = f"{time.time() - current_status.last:.0f}s ago" if current_status.last else "-"
        table.add_row(
            member.name,
            str(current_status.pid),
            str(current_status.heard),
            f"{current_status.rate:.1f}",
            "-" if current_status.queued is None else str(current_status.queued),
            codes,
            str(current_status.postponed),
            why,
            f"{current_status.lag:.1f}s",
            ago,
        )
    return table


def _all(folder: Path) -> list[FleetMember]:
    fleet = list(members(folder))
    if not fleet:
        raise ConfigurationError(f"{folder}: no configurations, as subscribe/weather.conf")
    return fleet


def _each(fleet: list[FleetMember], act: Callable[[FleetMember], str | None]) -> None:
    """What became of each, in their order; those who fail do not keep others from starting."""
    with ThreadPoolExecutor(_TOGETHER) as pool:
        acts = [(member, pool.submit(act, member)) for member in fleet]
        for member, done in acts:
            if done.exception() is None and (word := done.result()) is not None:
                typer.echo(f"{member.name} {word}")
    for _, done in acts:
        done.result()


def _begun(member: FleetMember) -> str:
    if member.current_status() is not None:
        return "runs"
    _start(member)
    return "started"


def _mended(member: FleetMember) -> str | None:
    left = read_status(member.settings)
    if left is None or left.running:
        return None
    _start(member)
    return "had died, started"


def _start(member: FleetMember) -> None:
    settings = member.settings
    home = private_directory(state_folder(settings))
    log = home / f"log_{settings.instance:02d}"
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
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        current_status = member.current_status()
        if current_status is not None and current_status.pid == child.pid and current_status.ready:
            return
        if child.poll() is not None:
            raise ConfigurationError(f"{member.name} ended at once: see {log}")
        time.sleep(_PAUSE)
    raise ConfigurationError(f"{member.name} is not ready yet: see {log}")
