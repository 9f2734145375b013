"""Figures of a worker for Prometheus: plain integers on the way, read when it scrapes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

_COUNTERS: Final = {
    "taken": "Requests taken from the broker.",
    "done": "Jobs that ended well.",
    "failed": "Jobs that ended badly, for good.",
    "retried": "Attempts that failed and will be repeated.",
    "cancelled": "Jobs that were cancelled.",
    "refused": "Requests that were not begun.",
    "copies": "Requests that were there already.",
    "returned": "Requests given back unbegun.",
    "lost": "Connections lost.",
}
_BUCKETS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0, 300.0, 1800.0, 7200.0)


class WorkerMetrics(Collector):
    """A registry of its own: several workers live in one process."""

    def __init__(self) -> None:
        self.taken = self.done = self.failed = self.retried = self.cancelled = 0
        self.refused = self.copies = self.returned = self.lost = 0
        self.running = self.waiting = 0
        self.registry = CollectorRegistry()
        self.registry.register(self)
        self._seconds = Histogram(
            "penstock_job_seconds",
            "How long attempts took.",
            ["kind"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._by_kind: dict[str, Histogram] = {}

    def took(self, kind: str, seconds: float) -> None:
        child = self._by_kind.get(kind)
        if child is None:
            child = self._by_kind[kind] = self._seconds.labels(kind)
        child.observe(seconds)

    def collect(self) -> Iterator[Metric]:
        for name, meaning in _COUNTERS.items():
            yield CounterMetricFamily(f"penstock_jobs_{name}", meaning, getattr(self, name))
        yield GaugeMetricFamily("penstock_jobs_running", "Jobs being done now.", self.running)
        yield GaugeMetricFamily("penstock_jobs_waiting", "Jobs taken, not begun.", self.waiting)
