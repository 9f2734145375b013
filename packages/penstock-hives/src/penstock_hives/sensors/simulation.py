"""Run a simulated fleet on a broker: publish its frames and execute configuration commands.

A command on `commands/sensor/<serial>` takes effect in the next five minutes; the status that
acknowledges it is published at once. Invalid commands and commands for other sensors are ignored.

`DemoFleet` continues across restarts: its state file has the seed, the start and the time of the
last confirmed frame, which is enough to simulate the same fleet again. Frames since then, up to a
limit, are published at once with their timestamps; then frames follow in real time.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, Protocol

from penstock.client import MessageReceiver, ReceivedMessage
from penstock.core.errors import NotFound
from penstock.core.logs import get_logger
from penstock_hives.sensors.fleet import Fleet, FrameWindow, SensorFrame
from penstock_hives.sensors.fleet.fleet import WINDOW_SLOTS
from penstock_hives.sensors.protocol import MalformedFrame, SensorConfiguration
from penstock_hives.sensors.protocol.topic import parse_command_topic
from penstock_hives.sensors.publisher import FramePacer, FramePublisher


class SimulationObserver(Protocol):
    """Whoever wants to know how far it is."""

    def sent(self, frame: SensorFrame) -> None: ...

    def done(self, window: FrameWindow) -> None:
        """All of a window was sent."""


async def publish_windows(
    windows: Iterable[FrameWindow],
    sender: FramePublisher,
    pace: FramePacer,
    watcher: SimulationObserver,
) -> None:
    for window in windows:
        for frame in window:
            await pace.wait(frame.at)
            await sender.send(frame)
            watcher.sent(frame)
        watcher.done(window)
    await sender.flush()


async def serve_commands(orders: MessageReceiver, fleet: Fleet, sender: FramePublisher) -> None:
    """Take commands for as long as there are any."""
    async for command in orders:
        answer = apply_command(fleet, command)
        if answer is not None:
            await sender.send(answer)
            await sender.flush()


def apply_command(fleet: Fleet, command: ReceivedMessage) -> SensorFrame | None:
    log = get_logger("penstock.sensors")
    try:
        serial = parse_command_topic(command.address)
        configuration = SensorConfiguration.decode(command.body, fleet.sensor(serial).profile)
    except (MalformedFrame, NotFound) as error:
        log.warning("command ignored", address=command.address, reason=str(error))
        return None
    log.info("sensor configured", sensor=serial, configuration=configuration.configuration_id)
    return fleet.configure(serial, configuration, datetime.now(UTC))


async def run_until_first(*works: Coroutine[Any, Any, Any]) -> None:
    """All at once, until the first ends; if it failed, that is raised. The others are cancelled."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class DemoState:
    seed: int
    hives: int
    start: int  #: Unix ms, when the fleet began
    told: int  #: Unix ms, of the last frame that is safe


@dataclass(frozen=True, slots=True)
class DemoStateFile:
    path: Path

    def read(self) -> DemoState | None:
        """The last entry; none as well if it cannot be made out."""
        try:
            return DemoState(**json.loads(self.path.read_bytes()))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def write(self, entry: DemoState) -> None:
        aside = self.path.with_suffix(".new")
        aside.write_text(json.dumps(asdict(entry)))
        aside.replace(self.path)


#: What was simulated before is simulated again, a third of a second a day; after so long the fleet
#: begins anew.
MAX_RESUME: Final = timedelta(days=30)
#: Seconds between two entries: what is sent twice if the process is killed, at most.
_SAVE_SECONDS: Final = 5.0
_WINDOW: Final = timedelta(minutes=5 * WINDOW_SLOTS)


class DemoFleet:
    """A fleet and its diary; made anew in every process that goes on with it."""

    def __init__(
        self, diary: DemoStateFile, now: datetime, past: timedelta, hives: int = 50, seed: int = 0
    ) -> None:
        """`past` is what a new fleet has behind it, and the most that is made up for."""
        self._diary = diary
        self._entry = _load_state(diary, now, hives, seed) or DemoState(
            seed, hives, _ms(now - past), 0
        )
        told = self._entry.told
        #: A new fleet tells from its beginning: everything is counted from the first reports.
        self._since = max(told, _ms(now - past)) if told else 0
        self._sent = told
        self._entered = time.monotonic()
        self.fleet = Fleet(start=_moment(self._entry.start), seed=seed, hives=hives)

    async def send(
        self,
        past: FramePublisher,
        live: FramePublisher,
        pace: FramePacer,
        caught_up: Callable[[], None],
    ) -> None:
        """For ever; `caught_up` is called when the past is with the broker.

        The two may be one. If not, the past is safe before anything live is sent.
        """
        behind, sender = True, past
        for frame in self._frames():
            if behind and pace.left(frame.at) > 0:
                await self.enter(past)
                behind, sender = False, live
                caught_up()
            await pace.wait(frame.at)
            await sender.send(frame)
            self._sent = frame.at
            if not behind and time.monotonic() - self._entered > _SAVE_SECONDS:
                await self.enter(sender)

    async def enter(self, sender: FramePublisher) -> None:
        """See that what was sent is safe, and remember it."""
        sent = self._sent
        await sender.flush()
        self._entry = replace(self._entry, told=max(sent, self._entry.told))
        self._diary.write(self._entry)
        self._entered = time.monotonic()

    def _frames(self) -> Iterator[SensorFrame]:
        while self.fleet.now + _WINDOW < _moment(self._since):
            next(self.fleet.windows())
        return (frame for frame in self.fleet.frames(slots=1) if frame.at >= self._since)


def _load_state(diary: DemoStateFile, now: datetime, hives: int, seed: int) -> DemoState | None:
    """What there is to go on with, if it is this fleet's and not too long ago."""
    entry = diary.read()
    if entry is None or (entry.seed, entry.hives) != (seed, hives):
        return None
    return entry if now - _moment(entry.start) < MAX_RESUME else None


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
