"""How busy a kind of place is in every five minutes of its week: 0 closed, 1 at its busiest.

A place has the shape of a street's week (`shapes.csv`, with its credit) while it is open, drawn
from hour to hour with straight lines.
"""

from __future__ import annotations

import csv
from importlib.resources import files
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.hives.sensors.fleet.hive_types import HiveType, Hours

SLOT_SECONDS: Final = 300
SLOTS_A_DAY: Final = 86_400 // SLOT_SECONDS
SLOTS_A_WEEK: Final = 7 * SLOTS_A_DAY
_SLOTS_AN_HOUR: Final = 3600 // SLOT_SECONDS

Week = NDArray[np.float64]


def read_shapes() -> dict[str, Week]:
    """The shapes by name: one number for every hour of a week that begins on Monday."""
    text = files(__package__).joinpath("shapes.csv").read_text()
    rows = csv.reader(line for line in text.splitlines() if not line.startswith("#"))
    next(rows)
    days: dict[str, list[float]] = {}
    for shape, _, *hours in rows:
        days.setdefault(shape, []).extend(map(float, hours))
    return {shape: np.array(hours) for shape, hours in days.items()}


def demand(kind: HiveType, shapes: dict[str, Week]) -> Week:
    """One number for every five minutes of a week that begins on Monday."""
    hours = shapes[kind.shape]
    middle = np.arange(len(hours)) * _SLOTS_AN_HOUR + _SLOTS_AN_HOUR / 2
    slots = np.arange(SLOTS_A_WEEK) + 0.5
    week: Week = np.interp(slots, middle, hours, period=SLOTS_A_WEEK)
    week[~open_slots(kind.opening)] = 0.0
    week /= week.max()
    return week


def open_slots(opening: tuple[Hours | None, ...]) -> NDArray[np.bool_]:
    week = np.zeros(SLOTS_A_WEEK, bool)
    for day, hours in enumerate(opening):
        if hours is None:
            continue
        begin, end = map(_slot, hours)
        if end <= begin:
            end += SLOTS_A_DAY
        week[(day * SLOTS_A_DAY + np.arange(begin, end)) % SLOTS_A_WEEK] = True
    return week


def _slot(time: str) -> int:
    hour, minute = time.split(":")
    return (int(hour) * 60 + int(minute)) * 60 // SLOT_SECONDS
