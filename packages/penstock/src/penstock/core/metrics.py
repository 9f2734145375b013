"""Metrics of a broker, for Prometheus and the management API.

The hot path adds to plain integers (`metrics.published += 1`); a collector reads them at a scrape.
Gauges that are cheaper to compute than to count are set by `on_scrape` callbacks before. The first
scrape loads `prometheus_client`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from prometheus_client.core import Metric

#: The content type of Prometheus' text format.
EXPOSITION_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

MetricKind = Literal["counter", "gauge"]


class MetricDefinition(NamedTuple):
    attribute: str  #: of `Metrics`
    kind: MetricKind
    name: str
    help: str


METRICS: Final = tuple(
    MetricDefinition(*row)
    for row in (
        ("published", "counter", "messages_published", "Messages received from publishers."),
        ("confirmed", "counter", "messages_confirmed", "Publishes confirmed."),
        ("delivered", "counter", "messages_delivered", "Messages delivered to consumers."),
        ("redelivered", "counter", "messages_redelivered", "Messages delivered again."),
        ("acknowledged", "counter", "messages_acknowledged", "Messages acknowledged by consumers."),
        ("returned", "counter", "messages_returned", "Mandatory messages returned."),
        ("unroutable", "counter", "messages_unroutable", "Unroutable messages dropped."),
        ("expired", "counter", "messages_expired", "Messages expired."),
        ("dropped", "counter", "messages_dropped", "Messages dropped for slow subscribers."),
        ("dead_lettered", "counter", "messages_dead_lettered", "Messages dead-lettered."),
        ("bytes_in", "counter", "received_bytes", "Bytes read from clients."),
        ("bytes_out", "counter", "sent_bytes", "Bytes written to clients."),
        ("connections_opened", "counter", "connections_opened", "Connections accepted."),
        ("connections_closed", "counter", "connections_closed", "Connections closed."),
        ("refused", "counter", "authentication_failures", "Logins refused."),
        ("corrupt_chunks", "counter", "log_corrupt_chunks", "Log chunks with a wrong checksum."),
        ("torn_tails", "counter", "log_torn_tails", "Incomplete log tails cut in recovery."),
        ("connections", "gauge", "connections", "Open connections."),
        ("blocked", "gauge", "connections_blocked", "Connections blocked from publishing."),
        ("channels", "gauge", "channels", "Open channels."),
        ("consumers", "gauge", "consumers", "Consumers."),
        ("queues", "gauge", "queues", "Queues and streams."),
        ("exchanges", "gauge", "exchanges", "Exchanges."),
        ("ready", "gauge", "messages_ready", "Messages ready for delivery."),
        (
            "unacknowledged",
            "gauge",
            "messages_unacknowledged",
            "Messages delivered, not acknowledged.",
        ),
        ("memory_used", "gauge", "memory_used_bytes", "Resident memory of the process."),
        ("disk_free", "gauge", "disk_free_bytes", "Free space of the data directory."),
        ("cluster_epoch", "gauge", "cluster_epoch", "The leader's epoch; 0 without a cluster."),
        ("cluster_in_sync", "gauge", "cluster_in_sync_members", "Members of the in-sync set."),
        (
            "cluster_lag_bytes",
            "gauge",
            "cluster_lag_bytes",
            "Lag of the slowest follower; at a follower, its own.",
        ),
        (
            "cluster_lag_seconds",
            "gauge",
            "cluster_lag_seconds",
            "Lag of the slowest follower; at a follower, its own.",
        ),
        ("cluster_leads", "gauge", "cluster_leader", "1 if this member leads its cluster."),
        (
            "cluster_member_in_sync",
            "gauge",
            "cluster_in_sync",
            "1 if this member is in the in-sync set.",
        ),
        (
            "cluster_forwarded",
            "gauge",
            "cluster_forwarded_connections",
            "Connections that a follower forwards to the leader.",
        ),
    )
)

#: What a follower has figures for. Those of queues and clients are the leader's alone, so that a
#: sum over all members counts them once.
FOLLOWER_METRICS: Final = frozenset(
    {
        *("memory_used", "disk_free", "cluster_epoch", "cluster_leads", "cluster_member_in_sync"),
        *("cluster_lag_bytes", "cluster_lag_seconds", "cluster_forwarded"),
    }
)

#: Seconds: good disks take tens of microseconds, failing ones seconds.
_SYNC_BUCKETS: Final = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1, 5)


class Metrics:
    def __init__(self, only: Collection[str] | None = None) -> None:
        """`only` are the attributes that are shown; all without it."""
        self._only = only
        self.published = self.confirmed = self.returned = self.unroutable = 0
        self.delivered = self.redelivered = self.acknowledged = 0
        self.expired = self.dead_lettered = self.dropped = 0
        self.bytes_in = self.bytes_out = 0
        self.connections_opened = self.connections_closed = self.refused = 0
        self.corrupt_chunks = self.torn_tails = 0
        self.connections = self.blocked = self.channels = self.consumers = 0
        self.queues = self.exchanges = self.ready = self.unacknowledged = 0
        self.memory_used = self.disk_free = 0
        self.cluster_epoch = self.cluster_in_sync = self.cluster_lag_bytes = 0
        self.cluster_lag_seconds = 0.0
        self.cluster_leads = self.cluster_member_in_sync = self.cluster_forwarded = 0
        self.refreshers: list[Callable[[Metrics], None]] = []
        #: Group commits by the duration of their sync, the last without an upper bound; the total.
        self.syncs = [0] * (len(_SYNC_BUCKETS) + 1)
        self.sync_seconds = 0.0

    def observe_sync(self, seconds: float) -> None:
        self.syncs[bisect_left(_SYNC_BUCKETS, seconds)] += 1
        self.sync_seconds += seconds

    def on_scrape(self, refresh: Callable[[Metrics], None]) -> None:
        """Call `refresh` before a scrape, to set gauges."""
        self.refreshers.append(refresh)

    def refresh(self) -> None:
        for refresh in self.refreshers:
            refresh(self)

    def exposition(self) -> bytes:
        """In Prometheus' text format."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> Iterator[Metric]:
        """As collectors of `prometheus_client` do."""
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        self.refresh()
        for metric in METRICS:
            if self._only is not None and metric.attribute not in self._only:
                continue
            family = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            value = getattr(self, metric.attribute)
            yield family(f"penstock_{metric.name}", metric.help, value=value)
        bounds = (*map(str, map(float, _SYNC_BUCKETS)), "+Inf")
        yield HistogramMetricFamily(
            "penstock_log_sync_seconds",
            "Duration of the sync of a group commit.",
            buckets=list(zip(bounds, accumulate(self.syncs), strict=True)),
            sum_value=self.sync_seconds,
        )
