"""The people: how many come to each hive and leave it, five minutes at a time, and by which door.

They come as the place's week and its mood of the day say, stay for a while, and go at the latest
when it closes. They leave by any door, not by the one they came through. All hives are worked on
at once; `occupancy` is the truth about them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from penstock.hives.sensors.fleet.catalogue import Hive
from penstock.hives.sensors.fleet.demand import SLOT_SECONDS, SLOTS_A_WEEK, demand, read_shapes
from penstock.hives.sensors.fleet.hive_types import HIVE_TYPES

Counts = NDArray[np.int64]
Shares = NDArray[np.float64]

#: 1970 began on a Thursday; a week here begins on Monday.
_TO_MONDAY: Final = 3 * 86_400
#: How full places get, as a share of their capacity, and how days differ.
_FULLEST: Final = (0.45, 0.95)
_MOOD: Final = 0.15
#: Each door is used by this much of what the door before it is.
_LESSER_DOOR: Final = 0.55
#: Of those still inside, who leaves in the five minutes when it is closed.
_CLOSED: Final = 0.6
_FEW: Final = 4


class Visitors:
    def __init__(self, hives: Sequence[Hive], seed: int) -> None:
        kinds = {kind.code: number for number, kind in enumerate(HIVE_TYPES)}
        shapes = read_shapes()
        self._weeks = np.array([demand(kind, shapes) for kind in HIVE_TYPES])
        self._kind = np.array([kinds[hive.hive_type.code] for hive in hives])
        self._capacity = np.array([hive.capacity for hive in hives])
        stay = np.array([hive.hive_type.stay_minutes * 60 for hive in hives])
        fullest = np.random.default_rng([seed, 1]).uniform(*_FULLEST, len(hives))
        self._arrivals = fullest * self._capacity / stay * SLOT_SECONDS
        self._leaving = 1.0 - np.exp(-SLOT_SECONDS / stay)
        zones = sorted({hive.time_zone for hive in hives})
        self._zones = [ZoneInfo(zone) for zone in zones]
        self._zone = np.array([zones.index(hive.time_zone) for hive in hives])
        self._doors = _Doors([hive.doors for hive in hives])
        self._seed = seed
        self._day = -1
        self._mood = np.ones(len(hives))
        self.occupancy: Counts = np.zeros(len(hives), np.int64)

    def utc_offsets(self, slot: int) -> Counts:
        """Of each hive, seconds east of Greenwich; it holds for the whole slot."""
        at = datetime.fromtimestamp(slot, UTC)
        offsets = [at.astimezone(zone).utcoffset() or timedelta() for zone in self._zones]
        seconds = np.array([int(offset.total_seconds()) for offset in offsets])
        of_hives: Counts = seconds[self._zone]
        return of_hives

    def step(self, slot: int, offsets: Counts, rng: np.random.Generator) -> tuple[Counts, Counts]:
        """Who passes each door, in and out, in the five minutes from `slot` (Unix seconds)."""
        self._wake(slot // 86_400)
        time_of_week = (slot + offsets + _TO_MONDAY) // SLOT_SECONDS % SLOTS_A_WEEK
        busy = self._weeks[self._kind, time_of_week]
        # Most places are closed and empty for most of the day: only the others are drawn for.
        some = np.flatnonzero((busy > 0) | (self.occupancy > 0))
        open_to, inside = busy[some], self.occupancy[some]
        coming = rng.poisson(open_to * self._arrivals[some] * self._mood[some])
        coming = np.minimum(coming, np.maximum(self._capacity[some] - inside, 0))
        leaving = rng.binomial(inside, np.where(open_to > 0, self._leaving[some], _CLOSED))
        leaving = np.where((open_to == 0) & (inside < _FEW), inside, leaving)
        self.occupancy = self.occupancy.copy()
        self.occupancy[some] += coming - leaving
        return self._doors.spread(some, coming, rng), self._doors.spread(some, leaving, rng)

    def _wake(self, day: int) -> None:
        if day != self._day:
            self._day = day
            rng = np.random.default_rng([self._seed, 2, day])
            self._mood = rng.lognormal(-(_MOOD**2) / 2, _MOOD, len(self._mood))


class _Doors:
    """How people spread over the doors of their hive. Doors are numbered hive by hive."""

    def __init__(self, doors: Sequence[int]) -> None:
        self._doors = np.array(doors)
        self._first = np.cumsum(self._doors) - self._doors
        #: Of those who have so many doors left, who takes the next.
        self._shares = np.array(
            [
                0.0,
                *(
                    (1 - _LESSER_DOOR) / (1 - _LESSER_DOOR**left)
                    for left in range(1, max(doors) + 1)
                ),
            ]
        )

    def spread(self, hives: Counts, people: Counts, rng: np.random.Generator) -> Counts:
        """By door, of all hives; nobody where none are named."""
        through: Counts = np.zeros(self._doors.sum(), np.int64)
        turn = 0
        while len(hives):
            left = self._doors[hives] - turn
            # Those not through an earlier door take this one or a later one; of the last, all.
            taken = np.where(left == 1, people, some_of(people, self._shares[left], rng))
            through[self._first[hives] + turn] = taken
            people = people - taken
            on = (left > 1) & (people > 0)
            hives, people, turn = hives[on], people[on], turn + 1
        return through


def some_of(people: Counts, share: float | Shares, rng: np.random.Generator) -> Counts:
    """A share of each number, rounded by lot: right on average, at a tenth of a binomial's cost."""
    some: Counts = (people * share + rng.random(len(people))).astype(np.int64)
    return some
