"""Figures about a broker, for Prometheus and the management API.

The hot path only adds to plain integers (`metrics.published += 1`); Prometheus reads them when it
scrapes, through one collector. What is cheaper to ask than to count (messages in queues, memory)
is filled in by `on_scrape` callbacks just before. Each `Metrics` has a registry of its own, so
several brokers live in one process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Literal, NamedTuple

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

MetricKind = Literal["counter", "gauge"]


class MetricDefinition(NamedTuple):
    """One figure: the attribute that counts it, its name outside, and what it means."""

    attribute: str
    kind: MetricKind
    name: str
    meaning: str


#: Counters only grow; gauges are what is now.
METRICS: Final = (
    MetricDefinition(
        "published", "counter", "messages_published", "Messages taken from publishers."
    ),
    MetricDefinition("confirmed", "counter", "messages_confirmed", "Publishes answered as safe."),
    MetricDefinition("delivered", "counter", "messages_delivered", "Messages handed to consumers."),
    MetricDefinition(
        "redelivered", "counter", "messages_redelivered", "Messages handed out once more."
    ),
    MetricDefinition(
        "acknowledged", "counter", "messages_acknowledged", "Messages consumers are done with."
    ),
    MetricDefinition("returned", "counter", "messages_returned", "Mandatory messages given back."),
    MetricDefinition(
        "unroutable", "counter", "messages_unroutable", "Messages no queue wanted, dropped."
    ),
    MetricDefinition(
        "expired", "counter", "messages_expired", "Messages whose time to live ended."
    ),
    MetricDefinition(
        "dropped", "counter", "messages_dropped", "Messages a slow subscriber did not get."
    ),
    MetricDefinition(
        "dead_lettered", "counter", "messages_dead_lettered", "Messages sent on as dead."
    ),
    MetricDefinition("bytes_in", "counter", "received_bytes", "Bytes read from clients."),
    MetricDefinition("bytes_out", "counter", "sent_bytes", "Bytes written to clients."),
    MetricDefinition(
        "connections_opened", "counter", "connections_opened", "Connections accepted."
    ),
    MetricDefinition("connections_closed", "counter", "connections_closed", "Connections ended."),
    MetricDefinition(
        "refused", "counter", "authentication_failures", "Clients that were not let in."
    ),
    MetricDefinition(
        "corrupt_chunks", "counter", "log_corrupt_chunks", "Chunks that failed their checksum."
    ),
    MetricDefinition(
        "torn_tails", "counter", "log_torn_tails", "Half-written tails cut in recovery."
    ),
    MetricDefinition("connections", "gauge", "connections", "Connections now."),
    MetricDefinition(
        "blocked", "gauge", "connections_blocked", "Connections told to stop publishing."
    ),
    MetricDefinition("channels", "gauge", "channels", "Channels open now."),
    MetricDefinition("consumers", "gauge", "consumers", "Consumers now."),
    MetricDefinition("queues", "gauge", "queues", "Queues and streams now."),
    MetricDefinition("exchanges", "gauge", "exchanges", "Exchanges now."),
    MetricDefinition("ready", "gauge", "messages_ready", "Messages waiting in queues."),
    MetricDefinition(
        "unacknowledged", "gauge", "messages_unacknowledged", "Delivered, not yet answered."
    ),
    MetricDefinition(
        "memory_used", "gauge", "memory_used_bytes", "Resident memory of the process."
    ),
    MetricDefinition(
        "disk_free", "gauge", "disk_free_bytes", "Space left under the data directory."
    ),
)

#: A sync takes tens of microseconds on good disks and seconds on sick ones.
_SYNC_BUCKETS: Final = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5)


class Metrics:
    """The figures of one broker."""

    __slots__ = (
        "acknowledged",
        "blocked",
        "bytes_in",
        "bytes_out",
        "channels",
        "confirmed",
        "connections",
        "connections_closed",
        "connections_opened",
        "consumers",
        "corrupt_chunks",
        "dead_lettered",
        "delivered",
        "disk_free",
        "dropped",
        "exchanges",
        "expired",
        "memory_used",
        "published",
        "queues",
        "ready",
        "redelivered",
        "refreshers",
        "refused",
        "registry",
        "returned",
        "sync_seconds",
        "torn_tails",
        "unacknowledged",
        "unroutable",
    )

    def __init__(self) -> None:
        self.published = self.confirmed = self.returned = self.unroutable = 0
        self.delivered = self.redelivered = self.acknowledged = 0
        self.expired = self.dead_lettered = self.dropped = 0
        self.bytes_in = self.bytes_out = 0
        self.connections_opened = self.connections_closed = self.refused = 0
        self.corrupt_chunks = self.torn_tails = 0
        self.connections = self.blocked = self.channels = self.consumers = 0
        self.queues = self.exchanges = self.ready = self.unacknowledged = 0
        self.memory_used = self.disk_free = 0
        self.refreshers: list[Callable[[Metrics], None]] = []
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(_Reader(self))
        #: How long each group commit's sync took; one observation per commit, not per message.
        self.sync_seconds = Histogram(
            "penstock_log_sync_seconds",
            "Time to make a group commit safe on disk.",
            buckets=_SYNC_BUCKETS,
            registry=self.registry,
        )

    def on_scrape(self, refresh: Callable[[Metrics], None]) -> None:
        """Have `refresh` fill in gauges before they are read."""
        self.refreshers.append(refresh)

    def refresh(self) -> None:
        for refresh in self.refreshers:
            refresh(self)

    def exposition(self) -> bytes:
        """All figures in Prometheus' text format."""
        return generate_latest(self.registry)


class _Reader(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        self._metrics.refresh()
        for figure in METRICS:
            family = CounterMetricFamily if figure.kind == "counter" else GaugeMetricFamily
            value = getattr(self._metrics, figure.attribute)
            yield family(f"penstock_{figure.name}", figure.meaning, value=value)

    def describe(self) -> list[Metric]:
        return []
