"""`/metrics` and `/metrics/detailed` for Prometheus; rates of counters for the API.

`/metrics` has totals only and needs no authentication. `/metrics/detailed` names virtual hosts and
queues and needs a user with the tag `monitoring` (`basic_auth` in Prometheus).
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from operator import attrgetter
from typing import Any, Final
from weakref import WeakKeyDictionary

from penstock.broker.contract import Queue
from penstock.core.metrics import EXPOSITION_TYPE, Metrics
from penstock.server.management.api_call import AccessLevel, ApiCall, ApiRoute, iterate_in_slices
from penstock.server.management.http import HttpResponse

_TEXT: Final = {"content-type": EXPOSITION_TYPE}

#: Metrics of a queue: the field in `describe`, the name, the help text.
QUEUE_METRICS: Final = (
    ("messages_ready", "queue_messages_ready", "Messages waiting in the queue."),
    ("messages_unacknowledged", "queue_messages_unacknowledged", "Messages not acknowledged."),
    ("consumers", "queue_consumers", "Consumers of the queue."),
    ("memory", "queue_memory_bytes", "Memory that the queue's messages take."),
    ("message_bytes_ready", "queue_message_bytes_ready", "Bodies waiting in the queue."),
    ("next_offset", "stream_next_offset", "The offset the stream's next message gets."),
    ("first_offset", "stream_first_offset", "The oldest offset the stream keeps."),
)


async def metrics(call: ApiCall) -> HttpResponse:
    """The metrics of the broker, as text for Prometheus."""
    return HttpResponse(200, call.broker.kernel.metrics.exposition(), _TEXT)


async def detailed(call: ApiCall) -> HttpResponse:
    """The metrics of each queue and stream, as text for Prometheus."""
    wanted = call.request.query.get("vhost")
    return HttpResponse(200, _by_queue(call, wanted), _TEXT)


async def _by_queue(call: ApiCall, wanted: str | None) -> AsyncIterator[bytes]:
    for field, name, meaning in QUEUE_METRICS:
        lines = [f"# HELP penstock_{name} {meaning}", f"# TYPE penstock_{name} gauge"]
        for vhost in list(call.broker.vhosts.values()):
            if wanted is not None and vhost.name != wanted:
                continue
            async for queue in iterate_in_slices(list(vhost.queues.values())):
                value = queue.describe().get(field)
                if value is not None:
                    labels = f'vhost="{_escaped(vhost.name)}",queue="{_escaped(queue.name)}"'
                    lines.append(f"penstock_{name}{{{labels}}} {value}")
        yield ("\n".join(lines) + "\n").encode("utf-8", "replace")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


routes: Final = (
    ApiRoute("GET", "/metrics", metrics, AccessLevel.ANYONE),
    ApiRoute("GET", "/metrics/detailed", detailed, AccessLevel.MONITORING),
    ApiRoute("GET", "/metrics/per-object", detailed, AccessLevel.MONITORING),
)


SAMPLE_SECONDS: Final = 1.0
MAX_SAMPLES: Final = 61
#: The period of a rate.
RATE_SECONDS: Final = 5

#: Names of counters in RabbitMQ and in `Metrics`.
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


class RateSampler:
    """Samples counters once a second, for a minute; a rate is over the last few seconds."""

    def __init__(self, loop: asyncio.AbstractEventLoop, metrics: Metrics) -> None:
        self._loop = loop
        self._metrics = metrics
        self._samples: deque[tuple[float, tuple[int, ...]]] = deque(maxlen=MAX_SAMPLES)
        self._timer: asyncio.TimerHandle | None = None
        #: When a queue was asked for, its counters then, and their rates.
        self._queues: WeakKeyDictionary[Queue, tuple[float, dict[str, int], dict[str, float]]]
        self._queues = WeakKeyDictionary()

    def start(self) -> None:
        self._sample()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def reset(self) -> None:
        """Forget the samples; rates begin anew."""
        self.stop()
        self._samples.clear()
        self._sample()

    def _sample(self) -> None:
        self._samples.append((time.time(), _READ(self._metrics)))
        self._timer = self._loop.call_later(SAMPLE_SECONDS, self._sample)

    def rates(self, names: dict[str, str], age: int = 0) -> dict[str, Any]:
        """Counters with their rates; with `age`, also samples of so many seconds, newest first."""
        figures: dict[str, Any] = {}
        for name, attribute in names.items():
            column = _COUNTERS.index(attribute)
            figures[name] = getattr(self._metrics, attribute)
            figures[f"{name}_details"] = self._details(column, age)
        return figures

    def of_queue(self, queue: Queue, counters: dict[str, int]) -> dict[str, Any]:
        """The counters of a queue with their rates since it was last asked for."""
        now = self._loop.time()
        last, before, rates = self._queues.get(queue, (now, counters, dict.fromkeys(counters, 0.0)))
        seconds = now - last
        if seconds >= SAMPLE_SECONDS:
            rates = {
                name: round((count - before[name]) / seconds, 1) for name, count in counters.items()
            }
        if seconds >= SAMPLE_SECONDS or queue not in self._queues:
            self._queues[queue] = (now, counters, rates)
        return counters | {f"{name}_details": {"rate": rate} for name, rate in rates.items()}

    def _details(self, column: int, age: int) -> dict[str, Any]:
        recent = list(self._samples)[-RATE_SECONDS - 1 :]
        details: dict[str, Any] = {"rate": self._slope(recent, column)}
        if age > 0:
            samples = list(self._samples)[-age - 1 :]
            details["samples"] = [
                {"sample": counters[column], "timestamp": int(at * 1000)}
                for at, counters in reversed(samples)
            ]
            details["avg_rate"] = self._slope(samples, column)
            details["avg"] = sum(counters[column] for _, counters in samples) / len(samples)
        return details

    @staticmethod
    def _slope(samples: list[tuple[float, tuple[int, ...]]], column: int) -> float:
        (start, before), (stop, after) = samples[0], samples[-1]
        if stop <= start:
            return 0.0
        return round((after[column] - before[column]) / (stop - start), 1)
