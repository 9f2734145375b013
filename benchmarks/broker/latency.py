"""When batches left and when they arrived.

A batch's latency is the time from before its write until its last message has been read and
checked. Under load this is mostly the wait behind what was published before (at most the window
divided by the rate); in the ping-pong it is the broker's own.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Seconds = npt.NDArray[np.float64]

#: Messages a write.
BATCH: Final = 100


class Latencies:
    """Departures are shared by all consumers; arrivals are one consumer's."""

    __slots__ = ("_arrived", "departures", "seconds")

    def __init__(self, departures: Seconds) -> None:
        self.departures = departures
        self.seconds: Seconds = np.zeros(len(departures))
        self._arrived = 0

    def arrived(self, messages: int, now: float) -> None:
        """`messages` have been received so far."""
        batches = messages // BATCH
        if batches > self._arrived:
            new = slice(self._arrived, batches)
            np.subtract(now, self.departures[new], out=self.seconds[new])
            self._arrived = batches


def percentile(seconds: Seconds, percent: float) -> float:
    return float(np.percentile(seconds, percent)) if len(seconds) else 0.0
