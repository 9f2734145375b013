"""Hours and days by a hive's own clock, for columns of slots.

An hour begins when the hive's clock shows a full hour: in Kolkata that is half past by UTC, and on
the night the clocks go back there are two of the same name. A day has 23, 24 or 25 of them. Some
zones skip midnight; their day begins when the clock first shows its date.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.hives.steps.clocks import Zone, zone
from penstock.hives.steps.occupancy import SLOT

Numbers = NDArray[np.int64]

HOUR_SLOTS: Final = 12
DAY: Final = 86_400_000_000


class Calendars:
    """The zones of hives."""

    __slots__ = ("_hive", "_names", "_zone")

    def __init__(self, zones: Mapping[int, str]) -> None:
        self._names = sorted(set(zones.values()))
        numbers = {name: number for number, name in enumerate(self._names)}
        self._hive = np.array(sorted(zones), np.int64)
        self._zone = np.array([numbers[zones[hive]] for hive in sorted(zones)], np.int64)

    def offsets(self, hives: Numbers, slots: Numbers) -> Numbers:
        """How far the clocks of hives are ahead of UTC in these slots: microseconds."""
        found = np.zeros(len(hives), np.int64)
        for name, rows in self._by_zone(hives):
            found[rows] = _offsets(zone(name), slots[rows] * SLOT)
        return found

    def hour(self, hives: Numbers, slots: Numbers) -> Numbers:
        """The slots in which the hours of these slots began."""
        return slots - (slots + self.offsets(hives, slots) // SLOT) % HOUR_SLOTS

    def day(self, hives: Numbers, slots: Numbers) -> Numbers:
        """The dates of these slots, as days since 1970."""
        return (slots * SLOT + self.offsets(hives, slots)) // DAY

    def midnight(self, hives: Numbers, days: Numbers) -> Numbers:
        """The slots with which these dates begin."""
        found = np.zeros(len(hives), np.int64)
        for name, rows in self._by_zone(hives):
            found[rows] = -(-_first_moment(zone(name), days[rows] * DAY) // SLOT)
        return found

    def _by_zone(self, hives: Numbers) -> list[tuple[str, Numbers]]:
        if not len(hives):
            return []
        places = self._zone[np.searchsorted(self._hive, hives)]
        return [(self._names[each], np.flatnonzero(places == each)) for each in np.unique(places)]


def _offsets(held: Zone, moments: Numbers) -> Numbers:
    place = np.searchsorted(held.starts - held.offsets, moments, "right") - 1
    offsets: Numbers = held.offsets[np.maximum(place, 0)]
    return offsets


def _first_moment(held: Zone, wall: Numbers) -> Numbers:
    """When clocks first show this or later, and go on from there."""
    place = np.minimum(np.searchsorted(held.ends, wall, "right"), len(held.ends) - 1)
    return np.maximum(wall, held.starts[place]) - held.offsets[place]
