"""A flow's figures for Prometheus, read from its progress files when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.pipeline.place import Place
from penstock.pipeline.progress import Done, Progress, Standing, State


def registry(place: Place) -> CollectorRegistry:
    """A registry of the flow's own."""
    found = CollectorRegistry(auto_describe=False)
    found.register(_Reader(place))
    return found


class _Reader(Collector):
    def __init__(self, place: Place) -> None:
        self._progress = Progress(place.progress, place.flow)
        self._flow = place.flow

    def collect(self) -> Iterator[Metric]:
        standing, done = self._progress.standing(), self._progress.done()
        if standing is not None:
            yield from self._standing(standing)
        if done is not None:
            yield from self._done(done)

    def describe(self) -> list[Metric]:
        return []

    def _standing(self, standing: Standing) -> Iterator[Metric]:
        running = float(standing.state is State.RUNNING)
        yield self._gauge("running", "Whether the flow's query runs.", running)
        restarts = CounterMetricFamily(
            "penstock_pipeline_restarts", "Times the query was started again.", labels=["flow"]
        )
        restarts.add_metric([self._flow], standing.restarts)
        yield restarts

    def _done(self, done: Done) -> Iterator[Metric]:
        for name, meaning, total in (
            ("messages", "Messages applied by this process.", done.total_rows),
            ("batches", "Batches applied by this process.", done.total_batches),
        ):
            counter = CounterMetricFamily(f"penstock_pipeline_{name}", meaning, labels=["flow"])
            counter.add_metric([self._flow], total)
            yield counter
        yield self._gauge("batch", "The last batch.", done.batch)
        yield self._gauge("batch_rows", "Messages in it.", done.rows)
        yield self._gauge("batch_seconds", "Time it took.", done.seconds)
        yield self._gauge("bronze_seconds", "Time it took to keep it.", done.bronze_seconds)
        yield self._gauge("batch_timestamp_seconds", "When it was done.", done.at)
        if done.newest is not None:
            meaning = "When the newest message in it came to the broker."
            yield self._gauge("newest_message_timestamp_seconds", meaning, done.newest)
        if done.behind is not None:
            yield self._gauge("lag_seconds", "The age it had when the batch was done.", done.behind)
        ends = GaugeMetricFamily(
            "penstock_pipeline_next_offset",
            "The next offset of each stream: subtract from the broker's for the lag.",
            labels=["flow", "stream"],
        )
        for stream, end in done.ends.items():
            ends.add_metric([self._flow, stream], end)
        yield ends

    def _gauge(self, name: str, meaning: str, value: float) -> GaugeMetricFamily:
        gauge = GaugeMetricFamily(f"penstock_pipeline_{name}", meaning, labels=["flow"])
        gauge.add_metric([self._flow], value)
        return gauge
