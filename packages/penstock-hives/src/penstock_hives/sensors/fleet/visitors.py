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
from penstock_hives.dates import SLOT_SECONDS, minute_of_day
from penstock_hives.sensors.fleet.catalogue import (
    HIVE_TYPES,
    OpenHours,
    SimulatedHive,
    SimulatedHiveType,
)

#: 1970 began on a Thursday; a week here begins on Monday.
_TO_MONDAY: Final = 3 * 86_400
#: Greatest occupancy as a share of the capacity; standard deviation of days.
_FULLEST: Final = (0.45, 0.95)
_DAY_SIGMA: Final = 0.15
#: Use of each door relative to the door before it.
_LESSER_DOOR: Final = 0.55
#: Share of people inside who leave a closed hive in a slot.
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
        self._day_factor = np.ones(len(hives))
        self.occupancy: Numbers = np.zeros(len(hives), np.int64)

    def utc_offsets(self, slot: int) -> Numbers:
        """Seconds east of Greenwich of each hive in the slot."""
        at = datetime.fromtimestamp(slot, UTC)
        offsets = [at.astimezone(zone).utcoffset() or timedelta() for zone in self._zones]
        seconds = np.array([int(offset.total_seconds()) for offset in offsets])
        of_hives: Numbers = seconds[self._zone]
        return of_hives

    def step(
        self, slot: int, offsets: Numbers, rng: np.random.Generator
    ) -> tuple[Numbers, Numbers]:
        """Entries and exits of each door in the slot (Unix seconds)."""
        self._start_day(slot // 86_400)
        time_of_week = (slot + offsets + _TO_MONDAY) // SLOT_SECONDS % SLOTS_PER_WEEK
        busy = self._weeks[self._kind, time_of_week]
        # Most hives are closed and empty for most of the day and are skipped.
        some = np.flatnonzero((busy > 0) | (self.occupancy > 0))
        open_to, inside = busy[some], self.occupancy[some]
        coming = rng.poisson(open_to * self._arrivals[some] * self._day_factor[some])
        coming = np.minimum(coming, np.maximum(self._capacity[some] - inside, 0))
        leaving = rng.binomial(inside, np.where(open_to > 0, self._leaving[some], _CLOSED))
        leaving = np.where((open_to == 0) & (inside < _FEW), inside, leaving)
        self.occupancy = self.occupancy.copy()
        self.occupancy[some] += coming - leaving
        return self._doors.spread(some, coming, rng), self._doors.spread(some, leaving, rng)

    def _start_day(self, day: int) -> None:
        if day != self._day:
            self._day = day
            rng = np.random.default_rng([self._seed, 2, day])
            self._day_factor = rng.lognormal(
                -(_DAY_SIGMA**2) / 2, _DAY_SIGMA, len(self._day_factor)
            )


class _DoorShares:
    """How people choose doors. Doors are numbered hive by hive."""

    def __init__(self, doors: Sequence[int]) -> None:
        self._doors = np.array(doors)
        self._first = np.cumsum(self._doors) - self._doors
        #: Share of the next door, by the number of doors left.
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
        """By door of all hives; 0 for other hives."""
        through: Numbers = np.zeros(self._doors.sum(), np.int64)
        door = 0
        while len(hives):
            left = self._doors[hives] - door
            # The rest takes this door or a later one; all take the last door.
            taken = np.where(left == 1, people, draw_share(people, self._shares[left], rng))
            through[self._first[hives] + door] = taken
            people = people - taken
            on = (left > 1) & (people > 0)
            hives, people, door = hives[on], people[on], door + 1
        return through


def draw_share(people: Numbers, share: float | Floats, rng: np.random.Generator) -> Numbers:
    """A share of each number, rounded at random: a tenth of the cost of a binomial."""
    some: Numbers = (people * share + rng.random(len(people))).astype(np.int64)
    return some


SLOTS_PER_DAY: Final = 86_400 // SLOT_SECONDS
SLOTS_PER_WEEK: Final = 7 * SLOTS_PER_DAY
_SLOTS_PER_HOUR: Final = 3600 // SLOT_SECONDS

WeeklyDemand = NDArray[np.float64]


def read_demand_shapes() -> dict[str, WeeklyDemand]:
    """By name: a number for each hour of a week from Monday on."""
    text = files(__package__).joinpath("shapes.csv").read_text()
    rows = csv.reader(line for line in text.splitlines() if not line.startswith("#"))
    next(rows)
    days: dict[str, list[float]] = {}
    for shape, _, *hours in rows:
        days.setdefault(shape, []).extend(map(float, hours))
    return {shape: np.array(hours) for shape, hours in days.items()}


def weekly_demand(kind: SimulatedHiveType, shapes: dict[str, WeeklyDemand]) -> WeeklyDemand:
    """A number for each slot of a week from Monday on."""
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
        begin, end = (minute_of_day(time) * 60 // SLOT_SECONDS for time in hours)
        if end <= begin:
            end += SLOTS_PER_DAY
        week[(day * SLOTS_PER_DAY + np.arange(begin, end)) % SLOTS_PER_WEEK] = True
    return week


SLOT_MS: Final = SLOT_SECONDS * 1000
#: Nobody passes in this time, in which devices restart.
SETTLE_MS: Final = 3_000
_SPAN: Final = SLOT_MS - SETTLE_MS
_GOLDEN: Final = (5**0.5 - 1) / 2


@dataclass(frozen=True, slots=True)
class Passages:
    slot: int  #: Unix ms
    entries: Numbers  #: by door
    exits: Numbers
    phase: Floats  #: by door, position of passages in their intervals
    tilt: Floats  #: by door, which passages are entries

    @classmethod
    def draw(
        cls, slot: int, entries: Numbers, exits: Numbers, rng: np.random.Generator
    ) -> Passages:
        phase = rng.random(len(entries))
        # Less than 1, so that rounding never adds an entry.
        return cls(slot, entries, exits, phase, rng.random(len(entries)) * 0.999)

    @property
    def total(self) -> Numbers:
        return self.entries + self.exits

    def at(self, door: Numbers, number: Numbers) -> Numbers:
        """The time of a passage, numbered from 1; ms."""
        total = self.entries[door] + self.exits[door]
        position = number - 1 + self._within(door, number - 1)
        moment: Numbers = (position * (_SPAN / total)).astype(np.int64)
        return moment + (self.slot + SETTLE_MS)

    def entries_of(self, door: Numbers, number: Numbers) -> Numbers:
        """The number of entries among the first `number` passages."""
        entries = self.entries[door]
        total = np.maximum(entries + self.exits[door], 1)
        count: Numbers = (number * (entries / total) + self.tilt[door]).astype(np.int64)
        # Rounding must not add an entry to the last passage.
        return np.minimum(count, entries)

    def up_to(self, door: Numbers, moment: Numbers) -> Numbers:
        total = self.entries[door] + self.exits[door]
        position = np.clip((moment - (self.slot + SETTLE_MS)) * (total / _SPAN), 0.0, total)
        whole = position.astype(np.int64)
        one_more = self._within(door, whole) < position - whole
        count: Numbers = np.minimum(whole + one_more, total)
        return count

    def listed(self) -> tuple[Numbers, Numbers, Flags]:
        """Of each passage: time (ms), door, and whether it is an entry."""
        total = self.total
        door = np.repeat(np.arange(len(total)), total)
        number = count_up(total) + 1
        entered = self.entries_of(door, number) > self.entries_of(door, number - 1)
        return self.at(door, number), door, entered

    def _within(self, door: Numbers, number: Numbers) -> Floats:
        return (self.phase[door] + number * _GOLDEN) % 1.0


def count_up(counts: Numbers) -> Numbers:
    """0, 1, 2, … for each count."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) - np.repeat(ends - counts, counts)
