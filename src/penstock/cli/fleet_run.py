"""A run of the simulated fleet: where its frames and its truth go, and how far it is."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from penstock.cli.fleet_plan import Plan
from penstock.cli.lifetime import until_stopped
from penstock.client import Fabric, connect
from penstock.hives.sensors.fleet import Fleet, Frame, Window
from penstock.hives.sensors.messages.topic import COMMANDS, EVERYTHING
from penstock.hives.sensors.pace import Pace
from penstock.hives.sensors.recording import open_recording, read_recording
from penstock.hives.sensors.sending import Sender, speaks_mqtt, spelled
from penstock.hives.sensors.simulating import obey, send_windows, until_first
from penstock.hives.sensors.telling import Telling, open_telling

FLUSH_SECONDS: Final = 5.0
#: Oftener than this nobody can see.
_SHOW_SECONDS: Final = 0.2


class FleetRun:
    def __init__(self, fleet: Fleet, plan: Plan, truth: Path | None, events: bool) -> None:
        self._fleet = fleet
        self._plan = plan
        self._truth = truth
        self._events = events
        self._frames = 0

    def write_catalogue(self, path: Path) -> None:
        document = {
            "hives": [hive.to_json() for hive in self._fleet.hives],
            "sensors": [sensor.to_json() for sensor in self._fleet.sensors],
        }
        path.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n")

    def record(self, path: Path) -> None:
        with open_recording(path) as recorder, self._shown() as shown:
            for window in self._fleet.windows(self._plan.until):
                recorder.write(window)
                shown.frames += window.frames.num_rows
                shown.done(window)

    async def send(self, url: str, with_stdin: bool) -> None:
        async with until_stopped(with_stdin) as stop, connect(url) as fabric:
            with self._shown() as shown:
                await until_first(self._send(url, fabric, shown), stop.wait())

    def summary(self) -> str:
        return (
            f"{self._frames:,} frames of {len(self._fleet.sensors):,} sensors in "
            f"{len(self._fleet.hives):,} hives, {self._plan.start:%Y-%m-%d %H:%M} to "
            f"{self._fleet.now:%Y-%m-%d %H:%M} UTC"
        )

    async def _send(self, url: str, fabric: Fabric, shown: Shown) -> None:
        plan = self._plan
        sender = Sender(fabric, url, stamped=plan.stamped)
        pace = Pace(int(plan.first.timestamp() * 1000), plan.speed)
        windows = self._fleet.windows(plan.until, plan.slots)
        try:
            if plan.speed is None:
                await send_windows(windows, sender, pace, shown)
                if not plan.live:
                    return
                pace = Pace(int(time.time() * 1000), 1.0)
                windows = self._fleet.windows(None, 1)
            commands = spelled(COMMANDS, speaks_mqtt(url))
            async with fabric.subscribe(commands) as orders:
                typer.echo(f"penstock sensors ready: {EVERYTHING}")
                await until_first(
                    send_windows(windows, sender, pace, shown), obey(orders, self._fleet, sender)
                )
        except asyncio.CancelledError:
            async with asyncio.timeout(FLUSH_SECONDS):
                await sender.flush()
            raise

    @contextmanager
    def _shown(self) -> Iterator[Shown]:
        """The truth is written and progress shown while this is open."""
        console = Console(stderr=True)
        progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[frames]:,} frames"),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
            transient=True,
        )
        shown = Shown(progress, self._plan)
        try:
            with progress:
                if self._truth is None:
                    yield shown
                    return
                with open_telling(self._truth, self._fleet, self._events) as shown.telling:
                    yield shown
        finally:
            self._frames = shown.frames


class Shown:
    """Keeps `penstock.hives.sensors.simulating.Watcher`."""

    def __init__(self, progress: Progress, plan: Plan) -> None:
        self._progress = progress
        self._begin = plan.start.timestamp()
        endless = plan.until is None or plan.live
        total = None if endless or plan.until is None else plan.until.timestamp() - self._begin
        self._task = progress.add_task("", total=total, frames=0)
        self._last = 0.0
        self.frames = 0
        self.telling: Telling | None = None

    def sent(self, frame: Frame) -> None:
        self.frames += 1
        now = time.monotonic()
        if now - self._last > _SHOW_SECONDS:
            self._last = now
            self._show(frame.at / 1000)

    def done(self, window: Window) -> None:
        if self.telling is not None:
            self.telling.write(window)
        self._show(window.stop.timestamp())

    def _show(self, at: float) -> None:
        clock = time.strftime("%a %d %b %H:%M", time.gmtime(at))
        self._progress.update(
            self._task, description=clock, completed=at - self._begin, frames=self.frames
        )


async def replay_file(path: Path, url: str, speed: float | None, stamped: bool) -> int:
    """How many were sent."""
    pace: Pace | None = None
    async with connect(url) as fabric:
        sender = Sender(fabric, url, stamped)
        for frame in read_recording(path):
            pace = pace or Pace(frame.at, speed)
            await pace.wait(frame.at)
            await sender.send(frame)
        await sender.flush()
    return sender.sent
