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
        seconds: Counts = np.array([int(offset.total_seconds()) for offset in offsets])
        return seconds[self._zone]

    def step(self, slot: int, offsets: Counts, rng: np.random.Generator) -> tuple[Counts, Counts]:
        """Who passes each door, in and out, in the five minutes from `slot` (Unix seconds)."""
        self._wake(slot // 86_400)
        time_of_week = (slot + offsets + _TO_MONDAY) // SLOT_SECONDS % SLOTS_A_WEEK
        busy = self._weeks[self._kind, time_of_week]
        room = np.maximum(self._capacity - self.occupancy, 0)
        coming = np.minimum(rng.poisson(busy * self._arrivals * self._mood), room)
        leaving = rng.binomial(self.occupancy, np.where(busy > 0, self._leaving, _CLOSED))
        last_ones = (busy == 0) & (self.occupancy < _FEW)
        leaving = np.where(last_ones, self.occupancy, leaving)
        self.occupancy = self.occupancy + coming - leaving
        return self._doors.spread(coming, rng), self._doors.spread(leaving, rng)

    def _wake(self, day: int) -> None:
        if day != self._day:
            self._day = day
            rng = np.random.default_rng([self._seed, 2, day])
            self._mood = rng.lognormal(-(_MOOD**2) / 2, _MOOD, len(self._mood))


class _Doors:
    """How people spread over the doors of their hive. Doors are numbered hive by hive."""

    def __init__(self, doors: Sequence[int]) -> None:
        self._total = sum(doors)
        first = np.cumsum([0, *doors[:-1]])
        self._turns: list[tuple[Counts, Counts, NDArray[np.float64]]] = []
        for turn in range(max(doors)):
            hives = np.array([hive for hive, many in enumerate(doors) if many > turn])
            left = np.array([doors[hive] for hive in hives]) - turn
            # Those not through an earlier door take this one or a later one; of the last, all.
            share = (1 - _LESSER_DOOR) / (1 - _LESSER_DOOR**left)
            self._turns.append((hives, first[hives] + turn, share))

    def spread(self, people: Counts, rng: np.random.Generator) -> Counts:
        through: Counts = np.zeros(self._total, np.int64)
        rest = people.copy()
        for hives, doors, share in self._turns:
            taken = rng.binomial(rest[hives], share)
            through[doors] = taken
            rest[hives] -= taken
        return through
