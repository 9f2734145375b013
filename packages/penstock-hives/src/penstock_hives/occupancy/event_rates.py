"""How busy a sensor gets: its events per hour, and the 99th percentile of them.

An observation is what was counted between the first report of one clock hour (of receipt) and the
first report of a later one, brought to an hour; a stretch of less than an hour is taken for one.
Observations are tallied in buckets a fifth apart, whole numbers all: the same reports give the same
tally, however they are cut into batches, and a sensor takes as much room after years as after days.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from penstock_hives.arrays import Flags, Numbers
from penstock_hives.occupancy.device_clock import HOUR_MICROS

#: The least rate of each bucket: 0 to 7 singly, then four to every doubling.
BUCKET_EDGES: Final = np.array(
    [
        *range(8),
        *(2**octave + 2 ** (octave - 2) * part for octave in range(3, 17) for part in range(4)),
    ],
    np.int64,
)
_BUCKET_EDGES: Final = BUCKET_EDGES.tolist()
BUCKETS: Final = len(BUCKET_EDGES)
#: The greatest rate of each bucket, by which the percentile is told.
_MOST: Final = np.append(BUCKET_EDGES[1:] - 1, BUCKET_EDGES[-1])
#: More than this would not fit when brought to an hour.
_MOST_EVENTS: Final = 1 << 31
#: Up to so many reports are sooner observed one by one.
_FEW: Final = 100
NOT_STARTED: Final = -1


@dataclass(slots=True)
class EventRate:
    """Of one sensor, a report at a time."""

    since: int = NOT_STARTED  #: when the open observation began; -1: it has not
    events: int = 0  #: in the open observation
    tally: list[int] = field(default_factory=lambda: [0] * BUCKETS)

    def observe(self, at: int, events: int) -> None:
        if self.since == NOT_STARTED:
            self.since = at
        elif at // HOUR_MICROS > self.since // HOUR_MICROS:
            self.tally[self._bucket(self.events + events, at)] += 1
            self.since, self.events = at, 0
        else:
            self.events += events

    def observe_all(self, at: Numbers, events: Numbers) -> None:
        if len(at) <= _FEW:
            for time, count in zip(at.tolist(), events.tolist(), strict=True):
                self.observe(time, count)
            return
        rates = EventRates(np.array([self.since]), np.array([self.events]), np.array([self.tally]))
        rates.observe(np.zeros(len(at), np.int64), at, events)
        self.since, self.events = int(rates.since[0]), int(rates.events[0])
        self.tally = rates.tally[0].tolist()

    def percentile(self, until: int) -> int:
        """The 99th, what is open included: of few observations it is the greatest."""
        is_open = self.since != NOT_STARTED
        now = self._bucket(self.events, until) if is_open else 0
        rank = ((sum(self.tally) + is_open) * 99 + 99) // 100
        reached = 0
        for place, count in enumerate(self.tally):
            reached += count + (is_open and place == now)
            if reached >= rank > 0:
                return int(_MOST[place])
        return 0

    def _bucket(self, events: int, until: int) -> int:
        rate = (
            min(max(events, 0), _MOST_EVENTS) * HOUR_MICROS // max(until - self.since, HOUR_MICROS)
        )
        return bisect_right(_BUCKET_EDGES, rate) - 1


@dataclass(slots=True)
class EventRates:
    """Of many sensors, a row each, and any number of reports at a time."""

    since: Numbers
    events: Numbers
    tally: Numbers

    @classmethod
    def unknown(cls, sensors: int) -> EventRates:
        return cls(
            np.full(sensors, NOT_STARTED, np.int64),
            np.zeros(sensors, np.int64),
            np.zeros((sensors, BUCKETS), np.int64),
        )

    def one(self, sensor: int) -> EventRate:
        """A copy of one of them."""
        tally = self.tally[sensor].tolist()
        return EventRate(int(self.since[sensor]), int(self.events[sensor]), tally)

    def observe(self, sensor: Numbers, at: Numbers, events: Numbers) -> None:
        """Reports that count, by sensor and then in their order; `at` is the receipt."""
        if not len(sensor):
            return
        # What is open comes first, as a report of each sensor: so all are treated alike.
        present, first, group = np.unique(sensor, return_index=True, return_inverse=True)
        place = np.arange(len(sensor)) + group + 1
        opening = first + np.arange(len(present))
        time, count = (np.empty(len(sensor) + len(present), np.int64) for _ in range(2))
        time[place], time[opening] = at, self.since[present]
        count[place], count[opening] = events, 0
        ends = np.append(opening[1:], len(time))
        group = np.repeat(np.arange(len(present)), ends - opening)
        owner = present[group]
        begins = _begins(group, time // HOUR_MICROS)
        begins[opening] = self.since[present] != NOT_STARTED

        starts = np.flatnonzero(begins)
        so_far = np.cumsum(count)
        carried = np.zeros(len(time), np.int64)
        carried[opening] = self.events[present]
        self._close(owner, time, so_far, carried, starts)
        last = starts[np.append(owner[starts[1:]] != owner[starts[:-1]], True)]
        self.since[owner[last]] = time[last]
        self.events[owner[last]] = so_far[ends[group[last]] - 1] - so_far[last] + carried[last]

    def _close(
        self, owner: Numbers, time: Numbers, so_far: Numbers, carried: Numbers, starts: Numbers
    ) -> None:
        """Tally what lies between one beginning and the next of the same sensor."""
        begin, end = starts[:-1], starts[1:]
        whole = owner[begin] == owner[end]
        begin, end = begin[whole], end[whole]
        events = so_far[end] - so_far[begin] + carried[begin]
        rate = per_hour(events, time[end] - time[begin])
        np.add.at(self.tally, (owner[begin], bucket_of(rate)), 1)

    def percentile(self, until: Numbers) -> Numbers:
        is_open = self.since != NOT_STARTED
        rate = per_hour(self.events, until - self.since)
        tally = self.tally.copy()
        tally[np.arange(len(rate)), bucket_of(rate)] += is_open
        total = tally.sum(axis=1)
        rank = (total * 99 + 99) // 100
        place = (tally.cumsum(axis=1) < rank[:, None]).sum(axis=1)
        return np.where(total > 0, _MOST[np.minimum(place, BUCKETS - 1)], 0)


def _begins(group: Numbers, hour: Numbers) -> Flags:
    """Which reports are the first of an hour later than all before them of their sensor."""
    least = int(hour.min())
    span = int(hour.max()) - least + 1
    highest = np.maximum.accumulate(group * span + (hour - least))
    begins = np.ones(len(group), bool)
    begins[1:] = highest[1:] > highest[:-1]
    return begins


def per_hour(events: Numbers, elapsed: Numbers) -> Numbers:
    return np.clip(events, 0, _MOST_EVENTS) * HOUR_MICROS // np.maximum(elapsed, HOUR_MICROS)


def bucket_of(rate: Numbers) -> Numbers:
    return np.searchsorted(BUCKET_EDGES, rate, "right") - 1
