"""Who passed which door when, in five minutes of all doors, without a list of them.

The n passages at a door are spread over its five minutes, one in each n-th of them, at a moment
that a low-discrepancy sequence picks; entries are spread among them as evenly as they go. So when
the i-th happened, how many of the first i were entries, and how many happened up to a moment, are
arithmetic, for all doors at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.hives.sensors.fleet.demand import SLOT_SECONDS

Numbers = NDArray[np.int64]
Fractions = NDArray[np.float64]

SLOT: Final = SLOT_SECONDS * 1000
#: Nobody passes in the first moments: a device that starts then is there before anyone.
SETTLE: Final = 3_000
_SPAN: Final = SLOT - SETTLE
_GOLDEN: Final = (5**0.5 - 1) / 2


@dataclass(frozen=True, slots=True)
class Passages:
    slot: int  #: Unix ms
    entries: Numbers  #: by door
    exits: Numbers
    phase: Fractions  #: by door, where in its n-th each passage is
    tilt: Fractions  #: by door, which of the passages are entries

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
        return moment + (self.slot + SETTLE)

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
        place = np.clip((moment - (self.slot + SETTLE)) * (total / _SPAN), 0.0, total)
        whole = place.astype(np.int64)
        one_more = self._within(door, whole) < place - whole
        count: Numbers = np.minimum(whole + one_more, total)
        return count

    def listed(self) -> tuple[Numbers, Numbers, NDArray[np.bool_]]:
        """One by one: when (ms), at which door, and whether it was an entry."""
        total = self.total
        door = np.repeat(np.arange(len(total)), total)
        number = counted_up(total) + 1
        entered = self.entries_of(door, number) > self.entries_of(door, number - 1)
        return self.at(door, number), door, entered

    def _within(self, door: Numbers, place: Numbers) -> Fractions:
        return (self.phase[door] + place * _GOLDEN) % 1.0


def counted_up(counts: Numbers) -> Numbers:
    """0, 1, 2, … for each of the counts, one after the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total) - np.repeat(ends - counts, counts)
