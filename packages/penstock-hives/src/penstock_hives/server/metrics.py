"""Prometheus metrics of the site: workers count, the master adds up and exports.

A worker sends its totals with each heartbeat. The master retains the totals of workers that have
ended, so counters never fall while it runs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import Any, Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
#: Seconds.
_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_BOUNDS: Final = (*map(str, _BUCKETS), "+Inf")

#: Metrics of the site: name, type, meaning, labels.
SITE_METRICS: Final = (
    ("http_requests_total", "counter", "Requests answered.", ("location", "method", "status")),
    ("http_request_seconds", "histogram", "Time to the end of the response.", ("location",)),
    ("http_response_bytes_total", "counter", "Bytes of response bodies.", ("location",)),
    ("http_connections", "gauge", "Open connections.", ()),
    ("live_streams", "gauge", "Open streams of live figures.", ()),
    ("live_figures_total", "counter", "Figures received from the broker.", ()),
    ("snapshot_age_seconds", "gauge", "Age of the oldest snapshot that a worker serves.", ()),
    ("workers_ready", "gauge", "Workers that serve.", ()),
    ("worker_restarts_total", "counter", "Workers that ended unexpectedly.", ()),
    ("reloads_total", "counter", "Reloads of the configuration.", ("result",)),
)
PREFIX: Final = "penstock_hives_"

Report = Mapping[str, Any]


class RequestMetrics:
    """Of one worker."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._bytes: Counter[str] = Counter()
        self._seconds: dict[str, list[float]] = {}  #: the sum, then the buckets

    def observe(self, location: str, method: str, status: int, sent: int, seconds: float) -> None:
        known = method if method in _METHODS else "other"
        self._requests[location, known, status] += 1
        self._bytes[location] += sent
        held = self._seconds.get(location)
        if held is None:
            held = self._seconds[location] = [0.0] * (len(_BOUNDS) + 1)
        held[0] += seconds
        held[1 + bisect_left(_BUCKETS, seconds)] += 1

    def report(self, figures: Report) -> dict[str, Any]:
        """For the master, as JSON; `figures` are other totals and gauges of the worker."""
        requests = [[*labels, count] for labels, count in self._requests.items()]
        return {"requests": requests, "bytes": self._bytes, "seconds": self._seconds, **figures}


class SiteMetrics(Collector):
    """Of all workers."""

    def __init__(self) -> None:
        self.ready: set[object] = set()  #: workers
        self.restarts = 0
        self.reloads = self.refused_reloads = 0
        self._reports: dict[object, Report] = {}
        self._requests: Counter[tuple[str, str, int]] = Counter()  #: of workers that have ended
        self._bytes: Counter[str] = Counter()
        self._seconds: dict[str, list[float]] = {}
        self._figures = 0
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def update(self, worker: object, report: Report) -> None:
        self._reports[worker] = report

    def end(self, worker: object) -> None:
        """Retain the totals of a worker."""
        self.ready.discard(worker)
        report = self._reports.pop(worker, None)
        if report is not None:
            reports = [report]
            self._requests = self._sum_requests(reports)
            self._bytes = self._sum_bytes(reports)
            self._seconds = self._sum_seconds(reports)
            self._figures += int(report.get("figures", 0))

    def collect(self) -> Iterator[Metric]:
        # A scrape runs in a thread: the dictionary may change meanwhile.
        reports = list(self._reports.values())
        labels = {name: list(names) for name, _, _, names in SITE_METRICS}
        helps = {name: text for name, _, text, _ in SITE_METRICS}

        def counter(name: str, values: Iterable[tuple[list[str], float]]) -> CounterMetricFamily:
            family = CounterMetricFamily(PREFIX + name, helps[name], labels=labels[name])
            for given, value in values:
                family.add_metric(given, value)
            return family

        def gauge(name: str, value: float) -> GaugeMetricFamily:
            return GaugeMetricFamily(PREFIX + name, helps[name], value=value)

        requests = self._sum_requests(reports).items()
        yield counter("http_requests_total", (([*map(str, by)], n) for by, n in requests))
        seconds = HistogramMetricFamily(
            f"{PREFIX}http_request_seconds", helps["http_request_seconds"], labels=["location"]
        )
        for location, (total, *counts) in self._sum_seconds(reports).items():
            buckets = list(zip(_BOUNDS, accumulate(counts), strict=True))
            seconds.add_metric([location], buckets, total)
        yield seconds
        sent = self._sum_bytes(reports).items()
        yield counter("http_response_bytes_total", (([by], n) for by, n in sent))
        yield gauge("http_connections", sum(each.get("connections", 0) for each in reports))
        yield gauge("live_streams", sum(each.get("streams", 0) for each in reports))
        figures = self._figures + sum(each.get("figures", 0) for each in reports)
        yield counter("live_figures_total", [([], figures)])
        ages = [each["age"] for each in reports if each.get("age") is not None]
        if ages:
            yield gauge("snapshot_age_seconds", max(ages))
        yield gauge("workers_ready", len(self.ready))
        yield counter("worker_restarts_total", [([], self.restarts)])
        results = [(["done"], self.reloads), (["refused"], self.refused_reloads)]
        yield counter("reloads_total", results)

    def _sum_requests(self, reports: Iterable[Report]) -> Counter[tuple[str, str, int]]:
        total = self._requests.copy()
        for report in reports:
            for location, method, status, count in report.get("requests", ()):
                total[location, method, status] += count
        return total

    def _sum_bytes(self, reports: Iterable[Report]) -> Counter[str]:
        total = self._bytes.copy()
        for report in reports:
            total.update(report.get("bytes", {}))
        return total

    def _sum_seconds(self, reports: Iterable[Report]) -> dict[str, list[float]]:
        total = {name: list(values) for name, values in self._seconds.items()}
        for report in reports:
            for name, values in report.get("seconds", {}).items():
                held = total.get(name, [0.0] * len(values))
                total[name] = [a + b for a, b in zip(held, values, strict=True)]
        return total
