"""Prometheus metrics of a component, read from its counters when they are scraped.

Reasons of rejections are patterns of the configuration, so there are few; the most frequent are
exported.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock_pump.config.settings import PumpSettings
from penstock_pump.status import ComponentControl

_LABELS: Final = ("component", "name", "instance")
_MAX_REASONS: Final = 20


def registry(settings: PumpSettings, control: ComponentControl) -> CollectorRegistry:
    found = CollectorRegistry(auto_describe=False)
    found.register(_ComponentCollector(settings, control))
    return found


class _ComponentCollector(Collector):
    def __init__(self, settings: PumpSettings, control: ComponentControl) -> None:
        self._values = [settings.component.value, settings.name, str(settings.instance)]
        self._control = control

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        counters = self._control.counters
        yield self._counter("messages", "Messages received, or files announced.", counters.received)
        yield self._counter("bytes", "Bytes of files fetched, sent or announced.", counters.bytes)
        yield self._counter("postponed", "Posts put into the retry store.", counters.postponed)
        outcomes = self._counters("outcomes", "Outcomes of posts by code.", "code")
        for code, count in list(counters.codes.items()):
            outcomes.add_metric([*self._values, str(code)], count)
        yield outcomes
        rejected = self._counters("rejected", "Rejected posts by reason.", "reason")
        for reason, count in counters.rejected.most_common(_MAX_REASONS):
            rejected.add_metric([*self._values, reason], count)
        yield rejected
        yield self._gauge("ready", "1 when subscribed.", float(self._control.ready.is_set()))
        lag = "Seconds from announcement to outcome of the last post."
        yield self._gauge("lag_seconds", lag, counters.lag)
        yield self._gauge("last_timestamp_seconds", "Time of the last outcome.", counters.last)
        if counters.queued is not None:
            yield self._gauge("queue_messages", "Messages waiting at the broker.", counters.queued)
        plugins = GaugeMetricFamily(
            "penstock_pump_plugin", "Metrics of plugins.", labels=[*_LABELS, "plugin", "metric"]
        )
        for plugin, numbers in self._control.plugin_metrics().items():
            for name, value in numbers.items():
                plugins.add_metric([*self._values, plugin, name], value)
        yield plugins
        transfers = len(self._control.transfers.longer_than(0.0))
        yield self._gauge("transfers", "Transfers in progress.", transfers)

    def _counter(self, name: str, meaning: str, value: float) -> CounterMetricFamily:
        counter = self._counters(name, meaning)
        counter.add_metric(self._values, value)
        return counter

    def _counters(self, name: str, meaning: str, *more: str) -> CounterMetricFamily:
        return CounterMetricFamily(f"penstock_pump_{name}", meaning, labels=[*_LABELS, *more])

    def _gauge(self, name: str, meaning: str, value: float) -> GaugeMetricFamily:
        gauge = GaugeMetricFamily(f"penstock_pump_{name}", meaning, labels=_LABELS)
        gauge.add_metric(self._values, value)
        return gauge
