"""Events per hour of sensors, and their 99th percentile.

An observation is the count between the first report of one clock hour (of receipt) and the first
report of a later one, scaled to an hour; shorter periods count as an hour. Observations are tallied
in buckets, in integers: the same reports give the same tally in any batches, and the state of a
sensor does not grow.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from penstock_hives.arrays import Flags, Numbers
from penstock_hives.occupancy.device_clock import HOUR_MICROS

#: The least rate of each bucket: 0 to 7 singly, then four buckets for each doubling.
BUCKET_EDGES: Final = np.array(
    [
        *range(8),
        *(2**octave + 2 ** (octave - 2) * part for octave in range(3, 17) for part in range(4)),
    ],
    np.int64,
)
_BUCKET_EDGES: Final = BUCKET_EDGES.tolist()
BUCKETS: Final = len(BUCKET_EDGES)
#: The greatest rate of each bucket: the value of the percentile.
_MOST: Final = np.append(BUCKET_EDGES[1:] - 1, BUCKET_EDGES[-1])
#: Counts above this would overflow when scaled to an hour.
_MOST_EVENTS: Final = 1 << 31
#: Up to this many reports are faster observed one by one.
_FEW: Final = 100
NOT_STARTED: Final = -1


@dataclass(slots=True)
class EventRate:
    """The rate of one sensor, observed report by report."""

    since: int = NOT_STARTED  #: start of the open observation; -1: none
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
        """With the open observation; of few observations it is the greatest."""
        is_open = self.since != NOT_STARTED
        now = self._bucket(self.events, until) if is_open else 0
        rank = ((sum(self.tally) + is_open) * 99 + 99) // 100
        reached = 0
        for bucket, count in enumerate(self.tally):
            reached += count + (is_open and bucket == now)
            if reached >= rank > 0:
                return int(_MOST[bucket])
        return 0

    def _bucket(self, events: int, until: int) -> int:
        rate = (
            min(max(events, 0), _MOST_EVENTS) * HOUR_MICROS // max(until - self.since, HOUR_MICROS)
        )
        return bisect_right(_BUCKET_EDGES, rate) - 1


@dataclass(slots=True)
class EventRates:
    """The rates of many sensors, a row each."""

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
        tally = self.tally[sensor].tolist()
        return EventRate(int(self.since[sensor]), int(self.events[sensor]), tally)

    def observe(self, sensor: Numbers, at: Numbers, events: Numbers) -> None:
        """Accepted reports, by sensor and then in order; `at` is the time of receipt."""
        if not len(sensor):
            return
        # The open observation is inserted as a first report of each sensor.
        present, first, group = np.unique(sensor, return_index=True, return_inverse=True)
        index = np.arange(len(sensor)) + group + 1
        opening = first + np.arange(len(present))
        time, count = (np.empty(len(sensor) + len(present), np.int64) for _ in range(2))
        time[index], time[opening] = at, self.since[present]
        count[index], count[opening] = events, 0
        ends = np.append(opening[1:], len(time))
        group = np.repeat(np.arange(len(present)), ends - opening)
        owner = present[group]
        begins = _begins(group, time // HOUR_MICROS)
        begins[opening] = self.since[present] != NOT_STARTED

        starts = np.flatnonzero(begins)
        so_far = np.cumsum(count)
        open_events = np.zeros(len(time), np.int64)
        open_events[opening] = self.events[present]
        self._close(owner, time, so_far, open_events, starts)
        last = starts[np.append(owner[starts[1:]] != owner[starts[:-1]], True)]
        self.since[owner[last]] = time[last]
        self.events[owner[last]] = so_far[ends[group[last]] - 1] - so_far[last] + open_events[last]

    def _close(
        self, owner: Numbers, time: Numbers, so_far: Numbers, open_events: Numbers, starts: Numbers
    ) -> None:
        """Tally the period between one start and the next of the same sensor."""
        begin, end = starts[:-1], starts[1:]
        whole = owner[begin] == owner[end]
        begin, end = begin[whole], end[whole]
        events = so_far[end] - so_far[begin] + open_events[begin]
        rate = per_hour(events, time[end] - time[begin])
        np.add.at(self.tally, (owner[begin], bucket_of(rate)), 1)

    def percentile(self, until: Numbers) -> Numbers:
        is_open = self.since != NOT_STARTED
        rate = per_hour(self.events, until - self.since)
        tally = self.tally.copy()
        tally[np.arange(len(rate)), bucket_of(rate)] += is_open
        total = tally.sum(axis=1)
        rank = (total * 99 + 99) // 100
        index = (tally.cumsum(axis=1) < rank[:, None]).sum(axis=1)
        return np.where(total > 0, _MOST[np.minimum(index, BUCKETS - 1)], 0)


def _begins(group: Numbers, hour: Numbers) -> Flags:
    """Reports in a later hour than all reports before them of their sensor."""
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
