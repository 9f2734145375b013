"""The way from the devices to the broker, where things get lost.

Each row is given its fate when it is sent: what arrives, when, and in which state. A device never
learns of it, and nothing is sent again.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.hives.sensors.fleet.demand import SLOT_SECONDS
from penstock.hives.sensors.fleet.makings import Makings
from penstock.hives.sensors.fleet.quirks import Quirks
from penstock.hives.sensors.fleet.sent import Fate, Form, Sent, picked

_OUTAGE: Final = (5 * 60_000, 2 * 3_600_000)
#: How much later a late frame is, ms: enough to arrive after those that were sent after it.
_LATENESS: Final = (2_000, 600_000)
_SECOND_COPY: Final = (500, 60_000)


class Line:
    def __init__(self, makings: Makings, quirks: Quirks) -> None:
        self._transit = makings.transit
        self._outages = quirks.outages * SLOT_SECONDS / 86_400
        self._until = np.zeros(len(makings), np.int64)
        order = (Fate.LOST, Fate.DAMAGED, Fate.SCRAMBLED, Fate.TWICE, Fate.LATE)
        self._fates = np.array(order, np.uint8)
        self._chances = np.cumsum(
            [quirks.loss, quirks.corrupt, quirks.scrambled, quirks.duplicates, quirks.late]
        )

    def carry_well(self, sent: Sent) -> None:
        """Nothing happens to these."""
        sent["arrives"] = sent["at"] + self._transit[sent["sensor"]]

    def carry(self, sent: Sent, slot: int, rng: np.random.Generator) -> None:
        """Decide, for what was sent in the five minutes from `slot` (ms)."""
        if self._outages:
            begin = np.flatnonzero(rng.random(len(self._until)) < self._outages)
            self._until[begin] = slot + rng.integers(*_OUTAGE, len(begin))
        self.carry_well(sent)
        sent["dice"] = rng.integers(0, 1 << 32, len(sent), np.uint32)
        lot = rng.random(len(sent))
        troubled = np.flatnonzero(lot < self._chances[-1])
        fate = self._fates[np.searchsorted(self._chances, lot[troubled], "right")]
        # Only a v1 report can be scrambled unseen: others would not pass for messages.
        unseen = sent["form"][troubled] == Form.REPORT
        fate[(fate == Fate.SCRAMBLED) & ~unseen] = Fate.DAMAGED
        sent["fate"][troubled] = fate
        sent["fate"][sent["at"] < self._until[sent["sensor"]]] = Fate.LOST
        late = np.flatnonzero(sent["fate"] == Fate.LATE)
        sent["arrives"][late] += _between(_LATENESS, sent["dice"][late])


def copies(sent: Sent) -> Sent:
    """The second ones of what arrives twice."""
    again = picked(sent, np.flatnonzero(sent["fate"] == Fate.TWICE))
    again["arrives"] += _between(_SECOND_COPY, again["dice"])
    return again


def _between(bounds: tuple[int, int], dice: NDArray[np.uint32]) -> NDArray[np.int64]:
    low, high = bounds
    return low + dice.astype(np.int64) % (high - low)
