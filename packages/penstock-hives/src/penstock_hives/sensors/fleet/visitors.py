"""Visitors: how many people enter and leave each hive in five minutes, by which door and when.

Arrivals follow the weekly demand of the hive type (`shapes.csv`) and a random factor per day.
People stay for a while and leave by any door, at the latest when the hive closes. Passages at a
door are spread over its five minutes by arithmetic, for all doors at once, without a list of
people.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from typing import Final
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from penstock_hives.arrays import Flags, Floats, Numbers
from penstock_hives.sensors.fleet.catalogue import (
    HIVE_TYPES,
    OpenHours,
    SimulatedHive,
    SimulatedHiveType,
)

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
    def __init__(self, hives: Sequence[SimulatedHive], seed: int) -> None:
        kinds = {kind.code: number for number, kind in enumerate(HIVE_TYPES)}
        shapes = read_demand_shapes()
        self._weeks = np.array([weekly_demand(kind, shapes) for kind in HIVE_TYPES])
        self._kind = np.array([kinds[hive.hive_type.code] for hive in hives])
        self._capacity = np.array([hive.capacity for hive in hives])
        stay = np.array([hive.hive_type.stay_minutes * 60 for hive in hives])
        fullest = np.random.default_rng([seed, 1]).uniform(*_FULLEST, len(hives))
        self._arrivals = fullest * self._capacity / stay * SLOT_SECONDS
        self._leaving = 1.0 - np.exp(-SLOT_SECONDS / stay)
        zones = sorted({hive.time_zone for hive in hives})
        self._zones = [ZoneInfo(zone) for zone in zones]
        self._zone = np.array([zones.index(hive.time_zone) for hive in hives])
        self._doors = _DoorShares([hive.doors for hive in hives])
        self._seed = seed
        self._day = -1
        self._mood = np.ones(len(hives))
        self.occupancy: Numbers = np.zeros(len(hives), np.int64)

    def utc_offsets(self, slot: int) -> Numbers:
        """Of each hive, seconds east of Greenwich; it holds for the whole slot."""
        at = datetime.fromtimestamp(slot, UTC)
        offsets = [at.astimezone(zone).utcoffset() or timedelta() for zone in self._zones]
        seconds = np.array([int(offset.total_seconds()) for offset in offsets])
        of_hives: Numbers = seconds[self._zone]
        return of_hives

    def step(
        self, slot: int, offsets: Numbers, rng: np.random.Generator
    ) -> tuple[Numbers, Numbers]:
        """Who passes each door, in and out, in the five minutes from `slot` (Unix seconds)."""
        self._wake(slot // 86_400)
        time_of_week = (slot + offsets + _TO_MONDAY) // SLOT_SECONDS % SLOTS_PER_WEEK
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


class _DoorShares:
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

    def spread(self, hives: Numbers, people: Numbers, rng: np.random.Generator) -> Numbers:
        """By door, of all hives; nobody where none are named."""
        through: Numbers = np.zeros(self._doors.sum(), np.int64)
        turn = 0
        while len(hives):
            left = self._doors[hives] - turn
            # Those not through an earlier door take this one or a later one; of the last, all.
            taken = np.where(left == 1, people, draw_share(people, self._shares[left], rng))
            through[self._first[hives] + turn] = taken
            people = people - taken
            on = (left > 1) & (people > 0)
            hives, people, turn = hives[on], people[on], turn + 1
        return through


def draw_share(people: Numbers, share: float | Floats, rng: np.random.Generator) -> Numbers:
    """A share of each number, rounded by lot: right on average, at a tenth of a binomial's cost."""
    some: Numbers = (people * share + rng.random(len(people))).astype(np.int64)
    return some


SLOT_SECONDS: Final = 300
SLOTS_PER_DAY: Final = 86_400 // SLOT_SECONDS
SLOTS_PER_WEEK: Final = 7 * SLOTS_PER_DAY
_SLOTS_PER_HOUR: Final = 3600 // SLOT_SECONDS

WeeklyDemand = NDArray[np.float64]


def read_demand_shapes() -> dict[str, WeeklyDemand]:
    """The shapes by name: one number for every hour of a week that begins on Monday."""
    text = files(__package__).joinpath("shapes.csv").read_text()
    rows = csv.reader(line for line in text.splitlines() if not line.startswith("#"))
    next(rows)
    days: dict[str, list[float]] = {}
    for shape, _, *hours in rows:
        days.setdefault(shape, []).extend(map(float, hours))
    return {shape: np.array(hours) for shape, hours in days.items()}


def weekly_demand(kind: SimulatedHiveType, shapes: dict[str, WeeklyDemand]) -> WeeklyDemand:
    """One number for every five minutes of a week that begins on Monday."""
    hours = shapes[kind.shape]
    middle = np.arange(len(hours)) * _SLOTS_PER_HOUR + _SLOTS_PER_HOUR / 2
    slots = np.arange(SLOTS_PER_WEEK) + 0.5
    week: WeeklyDemand = np.interp(slots, middle, hours, period=SLOTS_PER_WEEK)
    week[~open_slots(kind.opening)] = 0.0
    week /= week.max()
    return week


def open_slots(opening: tuple[OpenHours | None, ...]) -> Flags:
    week = np.zeros(SLOTS_PER_WEEK, bool)
    for day, hours in enumerate(opening):
        if hours is None:
            continue
        begin, end = map(_slot, hours)
        if end <= begin:
            end += SLOTS_PER_DAY
        week[(day * SLOTS_PER_DAY + np.arange(begin, end)) % SLOTS_PER_WEEK] = True
    return week


def _slot(time: str) -> int:
    hour, minute = time.split(":")
    return (int(hour) * 60 + int(minute)) * 60 // SLOT_SECONDS


SLOT_MS: Final = SLOT_SECONDS * 1000
#: Nobody passes in the first moments: a device that starts then is there before anyone.
SETTLE_MS: Final = 3_000
_SPAN: Final = SLOT_MS - SETTLE_MS
_GOLDEN: Final = (5**0.5 - 1) / 2


@dataclass(frozen=True, slots=True)
class Passages:
    slot: int  #: Unix ms
    entries: Numbers  #: by door
    exits: Numbers
    phase: Floats  #: by door, where in its n-th each passage is
    tilt: Floats  #: by door, which of the passages are entries

    @classmethod
    def draw(
        cls, slot: int, entries: Numbers, exits: Numbers, rng: np.random.Generator
    ) -> Passages:
        phase = rng.random(len(entries))
        # A little less than 1, so that rounding never makes an entry of nothing.
        return cls(slot, entries, exits, phase, rng.random(len(entries)) * 0.999)

    @property
    def total(self) -> Numbers:
        return self.entries + self.exits

    def at(self, door: Numbers, number: Numbers) -> Numbers:
        """When the passage of this number happened, 1 the first; ms."""
        total = self.entries[door] + self.exits[door]
        place = number - 1 + self._within(door, number - 1)
        moment: Numbers = (place * (_SPAN / total)).astype(np.int64)
        return moment + (self.slot + SETTLE_MS)

    def entries_of(self, door: Numbers, number: Numbers) -> Numbers:
        """How many of the first so many were entries."""
        entries = self.entries[door]
        total = np.maximum(entries + self.exits[door], 1)
        count: Numbers = (number * (entries / total) + self.tilt[door]).astype(np.int64)
        # The product may miss a whole number by a hair, and the last passage must not.
        return np.minimum(count, entries)

    def up_to(self, door: Numbers, moment: Numbers) -> Numbers:
        """How many there were until then."""
        total = self.entries[door] + self.exits[door]
        place = np.clip((moment - (self.slot + SETTLE_MS)) * (total / _SPAN), 0.0, total)
        whole = place.astype(np.int64)
        one_more = self._within(door, whole) < place - whole
        count: Numbers = np.minimum(whole + one_more, total)
        return count

    def listed(self) -> tuple[Numbers, Numbers, Flags]:
        """One by one: when (ms), at which door, and whether it was an entry."""
        total = self.total
        door = np.repeat(np.arange(len(total)), total)
        number = count_up(total) + 1
        entered = self.entries_of(door, number) > self.entries_of(door, number - 1)
        return self.at(door, number), door, entered

    def _within(self, door: Numbers, place: Numbers) -> Floats:
        return (self.phase[door] + place * _GOLDEN) % 1.0


def count_up(counts: Numbers) -> Numbers:
    """0, 1, 2, … for each of the counts, one after the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) - np.repeat(ends - counts, counts)
