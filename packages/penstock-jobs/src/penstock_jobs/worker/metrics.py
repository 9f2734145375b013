"""Prometheus metrics of a worker: plain integers, read on each scrape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_COUNTERS: Final = {
    "taken": "Requests received from the broker.",
    "done": "Jobs that succeeded.",
    "failed": "Jobs that failed permanently.",
    "retried": "Attempts that failed and will be retried.",
    "cancelled": "Jobs that were cancelled.",
    "refused": "Requests that were refused.",
    "copies": "Requests that were received before.",
    "returned": "Requests requeued before they finished.",
    "lost": "Connections lost.",
}
_BUCKETS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0, 300.0, 1800.0, 7200.0)


class WorkerMetrics(Collector):
    """Has a registry of its own: one process may run several workers."""

    def __init__(self) -> None:
        self.taken = self.done = self.failed = self.retried = self.cancelled = 0
        self.refused = self.copies = self.returned = self.lost = 0
        self.running = self.waiting = 0
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self._seconds = Histogram(
            "penstock_job_seconds",
            "Duration of attempts.",
            ["kind"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._by_kind: dict[str, Histogram] = {}

    def observe(self, kind: str, seconds: float) -> None:
        child = self._by_kind.get(kind)
        if child is None:
            child = self._by_kind[kind] = self._seconds.labels(kind)
        child.observe(seconds)

    def collect(self) -> Iterator[Metric]:
        for name, meaning in _COUNTERS.items():
            yield CounterMetricFamily(f"penstock_jobs_{name}", meaning, getattr(self, name))
        yield GaugeMetricFamily("penstock_jobs_running", "Jobs running.", self.running)
        yield GaugeMetricFamily("penstock_jobs_waiting", "Jobs waiting for a slot.", self.waiting)
