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
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
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
    """Progress of a simulation."""

    def sent(self, frame: SensorFrame) -> None: ...

    def done(self, window: FrameWindow) -> None:
        """All frames of a window were sent."""


async def publish_windows(
    windows: Iterable[FrameWindow],
    publisher: FramePublisher,
    pacer: FramePacer,
    observer: SimulationObserver,
) -> None:
    for window in windows:
        for frame in window:
            await pacer.wait(frame.at)
            await publisher.send(frame)
            observer.sent(frame)
        observer.done(window)
    await publisher.flush()


async def serve_commands(
    commands: MessageReceiver, fleet: Fleet, publisher: FramePublisher
) -> None:
    async for command in commands:
        status = apply_command(fleet, command)
        if status is not None:
            await publisher.send(status)
            await publisher.flush()


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
    """Run all until the first ends; raises its error. The others are cancelled."""
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
    """The file `demo.json`."""

    seed: int
    hives: int
    start: int  #: Unix ms, start of the fleet
    told: int  #: Unix ms, of the last confirmed frame
    inside: tuple[int, ...] = ()  #: people in the hives at the start; empty: nobody


@dataclass(frozen=True, slots=True)
class DemoStateFile:
    path: Path

    def read(self) -> DemoState | None:
        """None if there is no valid state."""
        try:
            found = json.loads(self.path.read_bytes())
            return DemoState(**{**found, "inside": tuple(found.get("inside", ()))})
        except (FileNotFoundError, ValueError, TypeError, AttributeError):
            return None

    def write(self, state: DemoState) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(asdict(state)))
        new.replace(self.path)


#: The fleet is simulated again from its start, a third of a second for a day; after this time a new
#: fleet starts.
MAX_RESUME: Final = timedelta(days=30)
#: Seconds between two writes of the state: frames of this time are sent twice after a crash.
_SAVE_SECONDS: Final = 5.0
_WINDOW: Final = timedelta(minutes=5 * WINDOW_SLOTS)


class DemoFleet:
    """A fleet and its state file."""

    def __init__(
        self, file: DemoStateFile, now: datetime, past: timedelta, hives: int = 50, seed: int = 0
    ) -> None:
        """`past` is the history of a new fleet, and the most that is sent after a pause."""
        self._file = file
        self._state = _load_state(file, now, hives, seed) or DemoState(
            seed, hives, _ms(now - past), 0
        )
        confirmed = self._state.told
        #: A new fleet sends from its start: counting needs the first reports.
        self._since = max(confirmed, _ms(now - past)) if confirmed else 0
        self._sent = confirmed
        self._saved = time.monotonic()
        self.fleet = self._new_fleet()

    @property
    def is_new(self) -> bool:
        """Whether nothing of it was sent."""
        return not self._state.told

    def begin_with(self, inside: Sequence[int]) -> None:
        """A new fleet starts with these numbers of people in its hives."""
        self._state = replace(self._state, inside=tuple(inside))
        self.fleet = self._new_fleet()

    async def send(
        self,
        past: FramePublisher,
        live: FramePublisher,
        pacer: FramePacer,
        caught_up: Callable[[], None],
    ) -> None:
        """Send for ever; `caught_up` is called when the past is confirmed.

        With two publishers, the past is confirmed before a live frame is sent.
        """
        behind, publisher = True, past
        for frame in self._frames():
            if behind and pacer.left(frame.at) > 0:
                await self.save_state(past)
                behind, publisher = False, live
                caught_up()
            await pacer.wait(frame.at)
            await publisher.send(frame)
            self._sent = frame.at
            if not behind and time.monotonic() - self._saved > _SAVE_SECONDS:
                await self.save_state(publisher)

    async def save_state(self, publisher: FramePublisher) -> None:
        """Wait for confirms of all sent frames, and write the state."""
        sent = self._sent
        await publisher.flush()
        self._state = replace(self._state, told=max(sent, self._state.told))
        self._file.write(self._state)
        self._saved = time.monotonic()

    def _new_fleet(self) -> Fleet:
        state = self._state
        return Fleet(
            start=_moment(state.start), seed=state.seed, hives=state.hives, inside=state.inside
        )

    def _frames(self) -> Iterator[SensorFrame]:
        while self.fleet.now + _WINDOW < _moment(self._since):
            next(self.fleet.windows())
        return (frame for frame in self.fleet.frames(slots=1) if frame.at >= self._since)


def _load_state(file: DemoStateFile, now: datetime, hives: int, seed: int) -> DemoState | None:
    """The stored state, if it is of this fleet and not too old."""
    state = file.read()
    if state is None or (state.seed, state.hives) != (seed, hives):
        return None
    return state if now - _moment(state.start) < MAX_RESUME else None


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
