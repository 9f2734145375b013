"""A fleet that has a past, lives on as time does, and after a break goes on where it was.

What it would have sent since its beginning, or since the break, is sent at once, with its time;
then frames follow as they are due. Devices have gone on counting meanwhile, as real ones do: a
break longer than the past that is wanted is an outage to whoever reads, and no more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final

from penstock.hives.sensors.diary import Diary, Entry
from penstock.hives.sensors.fleet import Fleet, Frame
from penstock.hives.sensors.fleet.fleet import WINDOW_SLOTS
from penstock.hives.sensors.pace import Pace
from penstock.hives.sensors.sending import Sender

#: What was simulated before is simulated again, a third of a second a day; after so long the fleet
#: begins anew.
LONGEST: Final = timedelta(days=30)
#: Seconds between two entries: what is sent twice if the process is killed, at most.
_ENTRY_SECONDS: Final = 5.0
_WINDOW: Final = timedelta(minutes=5 * WINDOW_SLOTS)


class Demonstration:
    """A fleet and its diary; made anew in every process that goes on with it."""

    def __init__(
        self, diary: Diary, now: datetime, past: timedelta, hives: int = 50, seed: int = 0
    ) -> None:
        """`past` is what a new fleet has behind it, and the most that is made up for."""
        self._diary = diary
        self._entry = _known(diary, now, hives, seed) or Entry(seed, hives, _ms(now - past), 0)
        told = self._entry.told
        #: A new fleet tells from its beginning: everything is counted from the first reports.
        self._since = max(told, _ms(now - past)) if told else 0
        self._sent = told
        self._entered = time.monotonic()
        self.fleet = Fleet(start=_moment(self._entry.start), seed=seed, hives=hives)

    async def send(
        self, past: Sender, live: Sender, pace: Pace, caught_up: Callable[[], None]
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
            if not behind and time.monotonic() - self._entered > _ENTRY_SECONDS:
                await self.enter(sender)

    async def enter(self, sender: Sender) -> None:
        """See that what was sent is safe, and remember it."""
        sent = self._sent
        await sender.flush()
        self._entry = replace(self._entry, told=max(sent, self._entry.told))
        self._diary.write(self._entry)
        self._entered = time.monotonic()

    def _frames(self) -> Iterator[Frame]:
        while self.fleet.now + _WINDOW < _moment(self._since):
            next(self.fleet.windows())
        return (frame for frame in self.fleet.frames(slots=1) if frame.at >= self._since)


def _known(diary: Diary, now: datetime, hives: int, seed: int) -> Entry | None:
    """What there is to go on with, if it is this fleet's and not too long ago."""
    entry = diary.read()
    if entry is None or (entry.seed, entry.hives) != (seed, hives):
        return None
    return entry if now - _moment(entry.start) < LONGEST else None


def _moment(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)
