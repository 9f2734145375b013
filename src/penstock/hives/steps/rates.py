"""How busy a sensor gets: its events per hour, and the 99th percentile of them.

An observation is what was counted between the first report of one clock hour (of receipt) and the
first report of a later one, brought to an hour; a stretch of less than an hour is taken for one.
Observations are tallied in buckets a fifth apart, whole numbers all: the same reports give the same
tally, however they are cut into batches, and a sensor takes as much room after years as after days.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.hives.steps.clocks import HOUR

Numbers = NDArray[np.int64]

#: The least rate of each bucket: 0 to 7 singly, then four to every doubling.
EDGES: Final = np.array(
    [*range(8), *(2**octave + 2 ** (octave - 2) * part for octave in range(3, 17) for part in range(4))],
    np.int64,
)
BUCKETS: Final = len(EDGES)
#: The greatest rate of each bucket, by which the percentile is told.
_MOST: Final = np.append(EDGES[1:] - 1, EDGES[-1])
NONE: Final = -1


@dataclass(slots=True)
class Rates:
    """Of many sensors, a row each."""

    since: Numbers  #: when the open observation began; -1: it has not
    events: Numbers  #: in the open observation
    tally: Numbers  #: how many observations are in each bucket

    @classmethod
    def unknown(cls, sensors: int) -> Rates:
        return cls(
            np.full(sensors, NONE, np.int64),
            np.zeros(sensors, np.int64),
            np.zeros((sensors, BUCKETS), np.int64),
        )

    def of(self, sensor: int) -> Rates:
        """One of them, apart from the others."""
        rows = slice(sensor, sensor + 1)
        return Rates(self.since[rows].copy(), self.events[rows].copy(), self.tally[rows].copy())

    def observe(self, sensor: Numbers, at: Numbers, events: Numbers) -> None:
        """Reports that count, by sensor and then in their order; `at` is the receipt."""
        if not len(sensor):
            return
        # What is open comes first, as a report of each sensor: so all are treated alike.
        present, first = np.unique(sensor, return_index=True)
        place = np.arange(len(sensor)) + np.searchsorted(present, sensor) + 1
        opening = first + np.arange(len(present))
        time, count = (np.empty(len(sensor) + len(present), np.int64) for _ in range(2))
        time[place], time[opening] = at, self.since[present]
        count[place], count[opening] = events, 0
        hour = time // HOUR
        owner = np.repeat(present, np.diff(np.append(opening, len(time))))
        begins = _begins(owner, hour, opening)
        begins[opening] = self.since[present] != NONE

        starts = np.flatnonzero(begins)
        so_far = np.cumsum(count)
        carried = np.zeros(len(time), np.int64)
        carried[opening] = self.events[present]
        self._close(owner, time, so_far, carried, starts)
        last = starts[np.append(owner[starts[1:]] != owner[starts[:-1]], True)]
        ends = np.append(opening[1:], len(time)) - 1
        sensors = owner[last]
        end = ends[np.searchsorted(present, sensors)]
        self.since[sensors] = time[last]
        self.events[sensors] = so_far[end] - so_far[last] + carried[last]

    def _close(
        self, owner: Numbers, time: Numbers, so_far: Numbers, carried: Numbers, starts: Numbers
    ) -> None:
        """Tally what lies between one beginning and the next of the same sensor."""
        begin, end = starts[:-1], starts[1:]
        whole = owner[begin] == owner[end]
        begin, end = begin[whole], end[whole]
        events = so_far[end] - so_far[begin] + carried[begin]
        rate = per_hour(events, time[end] - time[begin])
        np.add.at(self.tally, (owner[begin], bucket(rate)), 1)

    def percentile(self, until: Numbers) -> Numbers:
        """The 99th, what is open included: of few observations it is the greatest."""
        is_open = self.since != NONE
        rate = per_hour(self.events, until - self.since)
        tally = self.tally.copy()
        tally[np.arange(len(rate)), bucket(rate)] += is_open
        total = tally.sum(axis=1)
        rank = (total * 99 + 99) // 100
        place = (tally.cumsum(axis=1) < rank[:, None]).sum(axis=1)
        return np.where(total > 0, _MOST[np.minimum(place, BUCKETS - 1)], 0)


def _begins(owner: Numbers, hour: Numbers, opening: Numbers) -> NDArray[np.bool_]:
    """Which reports are the first of an hour later than all before them of their sensor."""
    group = np.cumsum(np.isin(np.arange(len(owner)), opening, assume_unique=True))
    least = int(hour.min())
    span = int(hour.max()) - least + 1
    ranked = group * span + (hour - least)
    highest = np.maximum.accumulate(ranked)
    begins = np.ones(len(owner), bool)
    begins[1:] = highest[1:] > highest[:-1]
    return begins


def per_hour(events: Numbers, elapsed: Numbers) -> Numbers:
    return np.maximum(events, 0) * HOUR // np.maximum(elapsed, HOUR)


def bucket(rate: Numbers) -> Numbers:
    return np.searchsorted(EDGES, rate, "right") - 1
