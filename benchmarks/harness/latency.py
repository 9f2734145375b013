"""When batches left and when they arrived.

A batch is what one write holds. Its latency is the time from before its write until its last
message has been read. Under load this is mostly the wait behind what was published before (at most
the window divided by the rate); in a ping-pong it is the broker's own. Arrivals are counted, not
recognised: where many publishers are served in any order, it is a figure for all of them together.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Seconds = npt.NDArray[np.float64]


class Latencies:
    """Departures are shared by all consumers; arrivals are one consumer's."""

    __slots__ = ("_arrived", "_batch", "departures", "seconds")

    def __init__(self, departures: Seconds, batch: int) -> None:
        self.departures = departures
        self.seconds: Seconds = np.zeros(len(departures))
        self._batch = batch
        self._arrived = 0

    def arrived(self, messages: int, now: float) -> None:
        """`messages` have been received so far."""
        batches = messages // self._batch
        if batches > self._arrived:
            new = slice(self._arrived, batches)
            np.subtract(now, self.departures[new], out=self.seconds[new])
            self._arrived = batches


def percentile(seconds: Seconds, percent: float) -> float:
    return float(np.percentile(seconds, percent)) if len(seconds) else 0.0
