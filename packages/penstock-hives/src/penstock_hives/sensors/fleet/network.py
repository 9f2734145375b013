"""The network between devices and the broker, which loses, damages, repeats and delays messages.

Each message gets its delivery outcome when it is sent. Devices do not learn of it and do not
resend.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock_hives.arrays import Numbers
from penstock_hives.sensors.fleet.devices import DeviceTraits
from penstock_hives.sensors.fleet.quirks import Quirks
from penstock_hives.sensors.fleet.sent_messages import (
    DeliveryOutcome,
    MessageForm,
    SentMessages,
    take_messages,
)
from penstock_hives.sensors.fleet.visitors import SLOT_SECONDS

_OUTAGE: Final = (5 * 60_000, 2 * 3_600_000)
#: How much later a late frame is, ms: enough to arrive after those that were sent after it.
_LATENESS: Final = (2_000, 600_000)
_SECOND_COPY: Final = (500, 60_000)


class SensorNetwork:
    def __init__(self, traits: DeviceTraits, quirks: Quirks) -> None:
        self._transit = traits.transit
        self._outages = quirks.outages * SLOT_SECONDS / 86_400
        self._until = np.zeros(len(traits), np.int64)
        order = (
            DeliveryOutcome.LOST,
            DeliveryOutcome.DAMAGED,
            DeliveryOutcome.SCRAMBLED,
            DeliveryOutcome.TWICE,
            DeliveryOutcome.LATE,
        )
        self._fates = np.array(order, np.uint8)
        self._chances = np.cumsum(
            [quirks.loss, quirks.corrupt, quirks.scrambled, quirks.duplicates, quirks.late]
        )

    def deliver_all(self, sent: SentMessages) -> None:
        """Nothing happens to these."""
        sent["arrives"] = sent["at"] + self._transit[sent["sensor"]]

    def carry(self, sent: SentMessages, slot: int, rng: np.random.Generator) -> None:
        """Decide, for what was sent in the five minutes from `slot` (ms)."""
        if self._outages:
            begin = np.flatnonzero(rng.random(len(self._until)) < self._outages)
            self._until[begin] = slot + rng.integers(*_OUTAGE, len(begin))
        self.deliver_all(sent)
        sent["dice"] = rng.integers(0, 1 << 32, len(sent), np.uint32)
        lot = rng.random(len(sent))
        troubled = np.flatnonzero(lot < self._chances[-1])
        fate = self._fates[np.searchsorted(self._chances, lot[troubled], "right")]
        # Only a v1 report can be scrambled unseen: others would not pass for messages.
        unseen = sent["form"][troubled] == MessageForm.REPORT
        fate[(fate == DeliveryOutcome.SCRAMBLED) & ~unseen] = DeliveryOutcome.DAMAGED
        sent["fate"][troubled] = fate
        sent["fate"][sent["at"] < self._until[sent["sensor"]]] = DeliveryOutcome.LOST
        late = np.flatnonzero(sent["fate"] == DeliveryOutcome.LATE)
        sent["arrives"][late] += _between(_LATENESS, sent["dice"][late])


def duplicate_messages(sent: SentMessages) -> SentMessages:
    """The second ones of what arrives twice."""
    again = take_messages(sent, np.flatnonzero(sent["fate"] == DeliveryOutcome.TWICE))
    again["arrives"] += _between(_SECOND_COPY, again["dice"])
    return again


def _between(bounds: tuple[int, int], dice: NDArray[np.uint32]) -> Numbers:
    low, high = bounds
    return low + dice.astype(np.int64) % (high - low)
