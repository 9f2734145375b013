"""Rates: how fast the broker's counters grow, from samples taken once a second.

A minute of them is kept, for the page's curve and for `msg_rates_age`. A rate is over the last few
seconds, so that a burst shows at once and a single second's chance does not.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from operator import attrgetter
from typing import Any, Final

from penstock.core.metrics import Metrics

SAMPLE_SECONDS: Final = 1.0
KEPT: Final = 61
#: How many seconds a rate is over.
WINDOW: Final = 5

#: RabbitMQ's name of a counter, and ours.
MESSAGE_STATS: Final = {
    "publish": "published",
    "confirm": "confirmed",
    "return_unroutable": "returned",
    "drop_unroutable": "unroutable",
    "deliver_get": "delivered",
    "deliver": "delivered",
    "redeliver": "redelivered",
    "ack": "acknowledged",
}
CHURN: Final = {
    "connection_created": "connections_opened",
    "connection_closed": "connections_closed",
}
TRAFFIC: Final = {"recv_oct": "bytes_in", "send_oct": "bytes_out"}

_COUNTERS: Final = tuple(
    dict.fromkeys((*MESSAGE_STATS.values(), *CHURN.values(), *TRAFFIC.values()))
)
_READ: Final = attrgetter(*_COUNTERS)


class Rates:
    def __init__(self, loop: asyncio.AbstractEventLoop, metrics: Metrics) -> None:
        self._loop = loop
        self._metrics = metrics
        self._samples: deque[tuple[float, tuple[int, ...]]] = deque(maxlen=KEPT)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._sample()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _sample(self) -> None:
        self._samples.append((time.time(), _READ(self._metrics)))
        self._timer = self._loop.call_later(SAMPLE_SECONDS, self._sample)

    def of(self, names: dict[str, str], age: int = 0) -> dict[str, Any]:
        """Counters under RabbitMQ's names, each with its rate; with samples of the last `age`
        seconds, newest first, when asked."""
        figures: dict[str, Any] = {}
        for name, attribute in names.items():
            column = _COUNTERS.index(attribute)
            figures[name] = getattr(self._metrics, attribute)
            figures[f"{name}_details"] = self._details(column, age)
        return figures

    def _details(self, column: int, age: int) -> dict[str, Any]:
        recent = list(self._samples)[-WINDOW - 1 :]
        details: dict[str, Any] = {"rate": self._slope(recent, column)}
        if age > 0:
            kept = list(self._samples)[-age - 1 :]
            details["samples"] = [
                {"sample": counters[column], "timestamp": int(at * 1000)}
                for at, counters in reversed(kept)
            ]
            details["avg_rate"] = self._slope(kept, column)
            details["avg"] = sum(counters[column] for _, counters in kept) / len(kept)
        return details

    @staticmethod
    def _slope(samples: list[tuple[float, tuple[int, ...]]], column: int) -> float:
        (start, before), (stop, after) = samples[0], samples[-1]
        if stop <= start:
            return 0.0
        return round((after[column] - before[column]) / (stop - start), 1)
