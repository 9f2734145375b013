"""Offsets and lag of streaming queries, from Spark's progress reports; and as Prometheus metrics.

Spark has no custom metrics for Python sources, but its reports contain what is needed: for each
source where the batch started and ended, and the latest offset that the broker had.

    metrics = QueryMetrics()                  # in the default registry
    spark.streams.addListener(metrics)
    prometheus_client.start_http_server(9464)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)


@dataclass(frozen=True, slots=True)
class StreamOffsets:
    """A stream after a batch."""

    start: int | None  #: of the batch; None in the first batch, or if the stream is new
    end: int  #: the next offset to read
    latest: int  #: the next offset of the stream when the batch was planned

    @property
    def lag(self) -> int:
        """The number of offsets that were not read yet."""
        return max(0, self.latest - self.end)


def stream_offsets(progress: Any) -> dict[str, StreamOffsets]:
    """The streams of a query, from a progress report such as `query.lastProgress`."""
    found: dict[str, StreamOffsets] = {}
    for source in progress["sources"]:
        start, end, latest = (
            _offsets(source[name]) for name in ("startOffset", "endOffset", "latestOffset")
        )
        for stream, offset in end.items():
            found[stream] = StreamOffsets(start.get(stream), offset, latest.get(stream, offset))
    return found


def _offsets(given: Any) -> Mapping[str, int]:
    """The offsets of a source; empty if they are not by stream, as those of other sources."""
    value = json.loads(given) if isinstance(given, str) and given else given
    if not isinstance(value, dict):
        return {}
    return value if all(isinstance(each, int) for each in value.values()) else {}


#: Names, the attributes of `StreamOffsets`, and descriptions.
_STREAM_GAUGES: Final = (
    ("next_offset", "end", "The next offset that the query will read."),
    ("latest_offset", "latest", "The next offset of the stream, at the last batch."),
    ("lag_messages", "lag", "Offsets that the query has not read, at the last batch."),
)


@dataclass(slots=True)
class _QueryState:
    name: str
    rows: int = 0
    seconds: float = 0.0
    streams: Mapping[str, StreamOffsets] | None = None


class QueryMetrics(StreamingQueryListener, Collector):
    """A listener of streaming queries, and a collector for Prometheus."""

    def __init__(self, registry: CollectorRegistry | None = REGISTRY) -> None:
        self._queries: dict[str, _QueryState] = {}
        self._lock = Lock()
        if registry is not None:
            registry.register(self)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        with self._lock:
            self._queries[str(event.runId)] = _QueryState(event.name or str(event.id))

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        with self._lock:
            state = self._queries.setdefault(
                str(progress.runId), _QueryState(progress.name or str(progress.id))
            )
            state.rows += progress.numInputRows
            state.seconds = progress.batchDuration / 1000
            state.streams = stream_offsets(json.loads(progress.json))

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._lock:
            self._queries.pop(str(event.runId), None)

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        with self._lock:
            states = list(self._queries.values())
        rows = CounterMetricFamily("penstock_spark_rows", "Rows read.", labels=["query"])
        seconds = GaugeMetricFamily(
            "penstock_spark_batch_seconds", "Time of the last batch.", labels=["query"]
        )
        for state in states:
            rows.add_metric([state.name], state.rows)
            seconds.add_metric([state.name], state.seconds)
        yield rows
        yield seconds
        for name, attribute, meaning in _STREAM_GAUGES:
            gauge = GaugeMetricFamily(f"penstock_spark_{name}", meaning, labels=["query", "stream"])
            for state in states:
                for stream, each in (state.streams or {}).items():
                    gauge.add_metric([state.name, stream], getattr(each, attribute))
            yield gauge
