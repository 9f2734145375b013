"""A component's figures for Prometheus, read from its tally when they are asked for.

Rates are for whoever scrapes to make of the counters. Reasons of rejections are the patterns of the
configuration: few, and the commonest are told.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock_pump.config.settings import PumpSettings
from penstock_pump.status import ComponentControl

_LABELS: Final = ("component", "name", "instance")
_REASONS: Final = 20


def registry(settings: PumpSettings, control: ComponentControl) -> CollectorRegistry:
    """A registry of the component's own."""
    found = CollectorRegistry(auto_describe=False)
    found.register(_Reader(settings, control))
    return found


class _Reader(Collector):
    def __init__(self, settings: PumpSettings, control: ComponentControl) -> None:
        self._values = [settings.component.value, settings.name, str(settings.instance)]
        self._control = control

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        counters = self._control.counters
        yield self._counter("messages", "Messages heard, or files announced.", counters.heard)
        yield self._counter("bytes", "Bytes of files fetched, sent or announced.", counters.bytes)
        yield self._counter("postponed", "Files to be tried again later.", counters.postponed)
        outcomes = self._counters("outcomes", "What became of posts, by code.", "code")
        for code, count in list(counters.codes.items()):
            outcomes.add_metric([*self._values, str(code)], count)
        yield outcomes
        rejected = self._counters("rejected", "Posts that are not wanted, and why.", "reason")
        for reason, count in counters.rejected.most_common(_REASONS):
            rejected.add_metric([*self._values, reason], count)
        yield rejected
        yield self._gauge("ready", "Whether it hears.", float(self._control.ready.is_set()))
        yield self._gauge(
            "lag_seconds", "From announcement to outcome, the last one.", counters.lag
        )
        yield self._gauge("last_timestamp_seconds", "When something was last done.", counters.last)
        if counters.queued is not None:
            yield self._gauge("queue_messages", "Messages waiting at the broker.", counters.queued)
        under_way = len(self._control.transfers.long(0.0))
        yield self._gauge("transfers", "Files under way now.", under_way)

    def _counter(self, name: str, meaning: str, value: float) -> CounterMetricFamily:
        counter = self._counters(name, meaning)
        counter.add_metric(self._values, value)
        return counter

    def _counters(self, name: str, meaning: str, *more: str) -> CounterMetricFamily:
        return CounterMetricFamily(f"penstock_pump_{name}", meaning, labels=[*_LABELS, *more])

    def _gauge(self, name: str, meaning: str, value: float) -> GaugeMetricFamily:
        labels: Sequence[str] = _LABELS
        gauge = GaugeMetricFamily(f"penstock_pump_{name}", meaning, labels=labels)
        gauge.add_metric(self._values, value)
        return gauge
