"""The status of a flow, from its progress, its lake and the broker's streams; and its metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.wire.amqp091.address import parse_amqp_url
from penstock_spark.directory import FlowDirectory, FlowLock
from penstock_spark.lake import TableSize
from penstock_spark.progress import BatchProgress, FlowProgress, RunState, RunStatus
from penstock_spark.streams.endpoint import find_endpoint

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class StreamLag:
    """The lag of a flow behind its streams; None if the broker does not answer."""

    messages: int | None
    seconds: float | None
    reason: str = ""  #: why it is unknown


@dataclass(frozen=True, slots=True)
class FlowStatus:
    flow: str
    state: RunState | None  #: None: it has never run
    reason: str
    since: float | None
    restarts: int
    done: BatchProgress | None
    lag: StreamLag
    generation: int
    dead_letters: int
    tables: dict[str, TableSize]
    damaged_files: int = 0  #: of bronze, that could not be read


def flow_status(directory: FlowDirectory, broker: str, now: float) -> FlowStatus:
    progress = FlowProgress(directory.progress, directory.flow)
    run_status, done = progress.run_status(), progress.last_batch()
    state = None if run_status is None else run_status.state
    alive = directory.locks.held(FlowLock.RUNNING)
    if state in (RunState.STARTING, RunState.RUNNING, RunState.WAITING) and not alive:
        state = RunState.GONE
    lake = directory.lake
    tables = {table.name: table.size() for table in lake.tables()}
    return FlowStatus(
        directory.flow,
        state,
        run_status.reason if run_status else "",
        run_status.since if run_status else None,
        run_status.restarts if run_status else 0,
        done,
        stream_lag(done, broker, now),
        lake.generation,
        _dead_letter_rows(tables),
        tables,
        len(progress.damaged_files()),
    )


def dead_letter_count(directory: FlowDirectory) -> int:
    return _dead_letter_rows({table.name: table.size() for table in directory.lake.tables()})


def _dead_letter_rows(tables: Mapping[str, TableSize]) -> int:
    return sum(size.rows for name, size in tables.items() if name.endswith(".dead_letters"))


def stream_lag(done: BatchProgress | None, broker: str, now: float) -> StreamLag:
    """The number of messages that are not applied, and the age of the oldest."""
    if done is None or not done.ends:
        return StreamLag(None, None, "no batch yet")
    try:
        latest = _latest_offsets(done, broker)
    except (OSError, EOFError, PenstockError) as error:
        return StreamLag(None, None, f"the broker does not answer: {error}")
    behind = sum(max(0, end - done.ends[name]) for name, end in latest.items())
    if not behind or done.newest is None:
        return StreamLag(behind, 0.0 if not behind else None)
    # The oldest waiting message is newer than the newest applied one.
    return StreamLag(behind, max(0.0, now - done.newest))


def _latest_offsets(done: BatchProgress, broker: str) -> dict[str, int]:
    """The next offset of each stream at the broker."""
    with closing(find_endpoint(parse_amqp_url(broker), None).open()) as streams:
        ends = streams.next_offsets(list(done.ends), done.ends)
    return {name: end or 0 for name, end in ends.items()}


def flow_metrics(directory: FlowDirectory, broker: str) -> CollectorRegistry:
    """Prometheus metrics, read from the progress files and the broker on each scrape."""
    found = CollectorRegistry(auto_describe=False)
    found.register(_FlowCollector(directory, broker))
    return found


class _FlowCollector(Collector):
    def __init__(self, directory: FlowDirectory, broker: str) -> None:
        self._progress = FlowProgress(directory.progress, directory.flow)
        self._flow = directory.flow
        self._broker = broker

    def collect(self) -> Iterator[Metric]:
        run_status, done = self._progress.run_status(), self._progress.last_batch()
        if run_status is not None:
            yield from self._run_status(run_status)
        if done is not None:
            yield from self._done(done)

    def describe(self) -> list[Metric]:
        return []

    def _run_status(self, run_status: RunStatus) -> Iterator[Metric]:
        running = float(run_status.state is RunState.RUNNING)
        yield self._gauge("running", "Whether the query of the flow runs.", running)
        restarts = CounterMetricFamily(
            "penstock_pipeline_restarts", "Restarts of the query.", labels=["flow"]
        )
        restarts.add_metric([self._flow], run_status.restarts)
        yield restarts
        full = float(
            run_status.state is RunState.WAITING and run_status.reason.startswith("StorageFull")
        )
        yield self._gauge("storage_full", "Whether the flow waits for space.", full)
        damaged = len(self._progress.damaged_files())
        yield self._gauge("damaged_files", "Files of bronze that cannot be read.", damaged)

    def _done(self, done: BatchProgress) -> Iterator[Metric]:
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
        yield self._gauge("bronze_seconds", "Time to write it to bronze.", done.bronze_seconds)
        yield self._gauge("batch_timestamp_seconds", "When it was complete.", done.at)
        if done.newest is not None:
            meaning = "When the broker received its newest message."
            yield self._gauge("newest_message_timestamp_seconds", meaning, done.newest)
        if done.behind is not None:
            yield self._gauge(
                "lag_seconds",
                "The age of its newest message when the batch was complete.",
                done.behind,
            )
        yield self._by_stream("next_offset", "The next offset to apply.", done.ends)
        try:
            latest = _latest_offsets(done, self._broker)
        except (OSError, EOFError, PenstockError) as error:  # no value is better than an old one
            log.warning("lag unknown", flow=self._flow, reason=str(error))
            latest = {}
        yield self._by_stream("latest_offset", "The next offset of the stream.", latest)
        lag = {name: max(0, end - done.ends[name]) for name, end in latest.items()}
        yield self._by_stream("lag_messages", "Messages that are not applied.", lag)

    def _by_stream(self, name: str, meaning: str, values: Mapping[str, float]) -> GaugeMetricFamily:
        gauge = GaugeMetricFamily(f"penstock_pipeline_{name}", meaning, labels=["flow", "stream"])
        for stream, value in values.items():
            gauge.add_metric([self._flow, stream], value)
        return gauge

    def _gauge(self, name: str, meaning: str, value: float) -> GaugeMetricFamily:
        gauge = GaugeMetricFamily(f"penstock_pipeline_{name}", meaning, labels=["flow"])
        gauge.add_metric([self._flow], value)
        return gauge
