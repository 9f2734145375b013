"""A run of the simulated fleet: its plan (start, end, speed), its outputs, and its progress."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from penstock.cli.shutdown import stop_event
from penstock.client import Fabric, connect
from penstock.core.errors import ConfigurationError
from penstock_hives.dates import SLOT_SECONDS
from penstock_hives.sensors.fleet import Fleet, FrameWindow, SensorFrame
from penstock_hives.sensors.fleet.fleet import WINDOW_SLOTS
from penstock_hives.sensors.protocol.topic import ALL_SENSOR_TOPICS, COMMAND_TOPICS
from penstock_hives.sensors.publisher import (
    FramePacer,
    FramePublisher,
    is_mqtt_url,
    to_broker_address,
)
from penstock_hives.sensors.recorder import TruthWriter, open_recording, open_truth, read_recording
from penstock_hives.sensors.simulation import publish_windows, run_until_first, serve_commands

FLUSH_SECONDS: Final = 5.0
#: Seconds between updates of the progress bar.
_SHOW_SECONDS: Final = 0.2


class FleetRun:
    def __init__(self, fleet: Fleet, plan: FleetPlan, truth: Path | None, events: bool) -> None:
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
        with open_recording(path) as record, self._shown() as shown:
            for window in self._fleet.windows(self._plan.until):
                record(window)
                shown.frames += window.frames.num_rows
                shown.done(window)

    async def send(self, url: str, with_stdin: bool) -> None:
        async with stop_event(with_stdin) as stop, connect(url) as fabric:
            with self._shown() as shown:
                await run_until_first(self._send(url, fabric, shown), stop.wait())

    def summary(self) -> str:
        return (
            f"{self._frames:,} frames of {len(self._fleet.sensors):,} sensors in "
            f"{len(self._fleet.hives):,} hives, {self._plan.start:%Y-%m-%d %H:%M} to "
            f"{self._fleet.now:%Y-%m-%d %H:%M} UTC"
        )

    async def _send(self, url: str, fabric: Fabric, shown: FleetProgress) -> None:
        plan = self._plan
        publisher = FramePublisher(fabric, url, stamped=plan.stamped)
        pacer = FramePacer(int(plan.first.timestamp() * 1000), plan.speed)
        windows = self._fleet.windows(plan.until, plan.slots)
        try:
            if plan.speed is None:
                await publish_windows(windows, publisher, pacer, shown)
                if not plan.live:
                    return
                pacer = FramePacer(int(time.time() * 1000), 1.0)
                windows = self._fleet.windows(None, 1)
            topics = to_broker_address(COMMAND_TOPICS, is_mqtt_url(url))
            async with fabric.subscribe(topics) as commands:
                typer.echo(f"penstock sensors ready: {ALL_SENSOR_TOPICS}")
                await run_until_first(
                    publish_windows(windows, publisher, pacer, shown),
                    serve_commands(commands, self._fleet, publisher),
                )
        except asyncio.CancelledError:
            async with asyncio.timeout(FLUSH_SECONDS):
                await publisher.flush()
            raise

    @contextmanager
    def _shown(self) -> Iterator[FleetProgress]:
        """Shows progress and writes the ground truth."""
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
        shown = FleetProgress(progress, self._plan)
        try:
            with progress:
                if self._truth is None:
                    yield shown
                    return
                with open_truth(self._truth, self._fleet, self._events) as shown.truth_writer:
                    yield shown
        finally:
            self._frames = shown.frames


class FleetProgress:
    """A `SimulationObserver` that updates the progress bar and writes the ground truth."""

    def __init__(self, progress: Progress, plan: FleetPlan) -> None:
        self._progress = progress
        self._begin = plan.start.timestamp()
        endless = plan.until is None or plan.live
        total = None if endless or plan.until is None else plan.until.timestamp() - self._begin
        self._task = progress.add_task("", total=total, frames=0)
        self._last = 0.0
        self.frames = 0
        self.truth_writer: TruthWriter | None = None

    def sent(self, frame: SensorFrame) -> None:
        self.frames += 1
        now = time.monotonic()
        if now - self._last > _SHOW_SECONDS:
            self._last = now
            self._show(frame.at / 1000)

    def done(self, window: FrameWindow) -> None:
        if self.truth_writer is not None:
            self.truth_writer.write(window)
        self._show(window.stop.timestamp())

    def _show(self, at: float) -> None:
        clock = time.strftime("%a %d %b %H:%M", time.gmtime(at))
        self._progress.update(
            self._task, description=clock, completed=at - self._begin, frames=self.frames
        )


async def replay_file(path: Path, url: str, speed: float | None, stamped: bool) -> int:
    """Returns the number of frames."""
    pacer: FramePacer | None = None
    async with connect(url) as fabric:
        publisher = FramePublisher(fabric, url, stamped)
        for frame in read_recording(path):
            pacer = pacer or FramePacer(frame.at, speed)
            await pacer.wait(frame.at)
            await publisher.send(frame)
        await publisher.flush()
    return publisher.sent


#: A fleet starts with an empty slot, which has passed when it starts now.
LEAD: Final = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class FleetPlan:
    start: datetime
    first: datetime  #: frames before this time are sent at once
    until: datetime | None  #: None: for ever
    speed: float | None  #: None: no limit
    stamped: bool  #: frames have the header x-received-at
    live: bool = False  #: continue in real time

    @classmethod
    def of(
        cls,
        backlog: float | None,
        live: bool,
        start: datetime | None,
        lasting: float | None,
        speed: float | None,
        now: datetime,
    ) -> FleetPlan:
        if backlog is not None:
            if lasting is not None:
                raise ConfigurationError("--backlog and --for exclude each other: omit --for")
            span = timedelta(seconds=backlog)
            begin = start or now - span
            # Fleets advance by slots: one that continues live must not send the future.
            end = _step_before(begin + span) if live else begin + span
            return cls(begin, begin, end, None, stamped=True, live=live)
        if live:
            raise ConfigurationError("--live needs --backlog")
        first = start or now
        until = None if lasting is None else first + timedelta(seconds=lasting)
        if until is None and speed is None:
            raise ConfigurationError("--speed max needs an end: add --for 1d")
        begin = start or now - LEAD
        return cls(begin, first, until, speed, stamped=speed != 1.0 or start is not None)

    @property
    def slots(self) -> int:
        """Slots simulated at once: one where commands may arrive."""
        return WINDOW_SLOTS if self.speed is None else 1


def _step_before(moment: datetime) -> datetime:
    return moment - timedelta(seconds=moment.timestamp() % SLOT_SECONDS)
