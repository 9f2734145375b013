"""Runs a flow's query: starts it, restarts it after a failure, stops it between two batches.

    runner = FlowRunner(spark, flow, FlowDirectory(data, flow.name), SourceOptions("amqp://…"))
    runner.run(stop)              # until the event is set
    runner.run_available_now()    # the messages that exist now

An unavailable broker or database is waited for without limit, with a log record for each attempt.
Any other failure is retried a few times and then raised.

What a flow raises, or the runner before its query, is an exception. What the source or a task
raises in another process of Spark arrives as a text with a traceback; the class in its last line is
classified as if the exception were at hand.
"""

from __future__ import annotations

import builtins
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from penstock.core import errors
from penstock.core.logs import get_logger
from penstock.core.resources import memory_total
from penstock.core.retry import RetryPolicy, is_transient
from penstock.core.units import MiB
from penstock.wire.amqp091.errors import is_transient_amqp_error
from penstock_spark import bronze
from penstock_spark.batch_processor import (
    BatchProcessor,
    FlowCheckpoint,
    StopRequested,
    open_checkpoint,
)
from penstock_spark.directory import FlowDirectory, FlowLock
from penstock_spark.errors import DataLost
from penstock_spark.flow import LARGEST_BATCH, PipelineFlow
from penstock_spark.lake.storage import StorageFull
from penstock_spark.progress import FlowProgress, RunState
from penstock_spark.session import BATCH_PLANNER, end_planners
from penstock_spark.stream_declaration import declare_missing_streams

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


log = get_logger(__name__)

#: The interval of checks for a stop.
_POLL_SECONDS: Final = 0.2
#: How long Spark may take to commit an applied batch on a stop. If it takes longer, the batch is
#: attempted again and its mark is found.
_COMMIT_SECONDS: Final = 5.0
#: For unavailable services.
FOREVER: Final = RetryPolicy(1.0, 30.0, float("inf"))
#: Attempts for other failures, without a batch in between.
_MAX_ATTEMPTS: Final = 3


#: Bytes of a batch: the share of the memory, and at most. Workers hold a few messages of it, in
#: several forms; the database holds what it changes.
_BATCH_SHARE: Final = 1 / 32
_LARGEST_BATCH_BYTES: Final = 512 * MiB


def largest_batch_bytes() -> int:
    return min(int(memory_total() * _BATCH_SHARE), _LARGEST_BATCH_BYTES)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    url: str
    management_url: str | None = None  #: None: where the broker says, or its default port
    starting: str = "earliest"  #: for streams that are not in bronze
    max_offsets: int = LARGEST_BATCH
    max_bytes: int | None = None  #: of a batch; None: by the memory of the machine
    fail_on_loss: bool = True
    every: float = 0.25  #: seconds between the beginnings of batches
    shards: int | None = None  #: of a new bronze table; None: the default


class FlowRunner:
    def __init__(
        self,
        spark: SparkSession,
        flow: PipelineFlow,
        directory: FlowDirectory,
        source: SourceOptions,
        *,
        owns_session: bool = False,
    ) -> None:
        """`owns_session`: nothing else plans queries in it, so Spark need not be ready for more."""
        self._spark = spark
        self._owns_session = owns_session
        self._flow = flow
        self._directory = directory
        self._source = source
        self._progress = FlowProgress(directory.progress, flow.name)
        self._stopping = threading.Event()
        self._cause: Exception | None = None
        self._restarts = 0
        self._was_ready = False
        self._writer: int | None = None

    def run(
        self,
        stop: threading.Event,
        retry: RetryPolicy = FOREVER,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        """Apply batches until `stop` is set, then finish the current one.

        `ready` is called once, when the streams have been reached.
        """
        trigger = {"processingTime": f"{round(self._source.every * 1000)} milliseconds"}
        self._run_with_retry(trigger, stop, retry, ready)

    def run_available_now(self, retry: RetryPolicy = FOREVER) -> None:
        """Apply the messages that the streams have now."""
        self._run_with_retry({"availableNow": True}, threading.Event(), retry)

    def _run_with_retry(
        self,
        trigger: dict[str, Any],
        stop: threading.Event,
        retry: RetryPolicy,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        with self._directory.locks.hold(FlowLock.RUNNING, wait=False):
            self._set_state(RunState.STARTING)
            attempts, pauses, deadline = 0, retry.delays(), time.monotonic() + retry.total
            while not stop.is_set():
                before = self._progress.last_batch()
                try:
                    self._run(trigger, stop, ready)
                    break
                except Exception as raised:
                    failure = classify_failure(raised, self._cause)
                    if self._progress.last_batch() != before:
                        attempts, pauses = 0, retry.delays()
                        deadline = time.monotonic() + retry.total
                    attempts += not failure.transient
                    if (
                        failure.permanent
                        or attempts >= _MAX_ATTEMPTS
                        or time.monotonic() > deadline
                    ):
                        self._set_state(RunState.FAILED, failure.reason)
                        if failure.error is raised:
                            raise
                        raise failure.error from raised
                pause = next(pauses)
                log.warning(
                    "waiting",
                    flow=self._flow.name,
                    reason=failure.reason,
                    pause=round(pause, 1),
                )
                self._set_state(RunState.WAITING, failure.reason)
                self._restarts += 1
                stop.wait(pause)
            self._set_state(RunState.STOPPED)

    def _run(
        self, trigger: dict[str, Any], stop: threading.Event, ready: Callable[[], None]
    ) -> None:
        """Run the query once: returns when it is stopped or complete."""
        self._cause = None
        self._stopping.clear()
        source = self._source
        declare_missing_streams(
            source.url, self._flow.streams, self._flow.sources, source.management_url
        )
        lake = self._directory.lake
        bronze.open_table(lake, self._source.shards)
        if self._writer is None:  # once: a flow that was taken over is not taken back
            self._writer = bronze.claim(lake)
        checkpoint = open_checkpoint(self._directory.checkpoint, lake)
        processor = BatchProcessor(self._flow, self._directory, checkpoint, writer=self._writer)
        if checkpoint.first and not checkpoint.committed(checkpoint.first):
            processor.reapply_last_batch(self._spark)
        query = self._start(self._messages(checkpoint), processor, trigger)
        running = planned = False
        try:
            while query.isActive:
                if not running and _has_polled(query):
                    running = True
                    self._set_state(RunState.RUNNING)
                    self._end_planners(keep=BATCH_PLANNER)
                    self._call_ready(ready)
                if not planned and _has_read(query):
                    planned = True
                    self._end_planners()
                if stop.wait(_POLL_SECONDS):
                    self._finish(query, checkpoint)
                    return
            query.awaitTermination()  # raises the error of the query
        except Exception:
            if not isinstance(self._cause, StopRequested):
                raise
        finally:
            with suppress(Exception):  # the query or Spark has ended
                query.stop()

    def _end_planners(self, keep: str | None = None) -> None:
        if self._owns_session and not _is_remote(self._spark):
            end_planners(self._spark, keep)

    def _start(
        self, messages: DataFrame, processor: BatchProcessor, trigger: dict[str, Any]
    ) -> StreamingQuery:
        function: Callable[[DataFrame, int], None] = processor
        if not _is_remote(self._spark):
            function = self._recording_cause(replace(processor, stopping=self._stopping.is_set))
        return (
            messages.writeStream.queryName(self._flow.name)
            .foreachBatch(function)
            .option("checkpointLocation", str(processor.checkpoint.folder))
            .trigger(**trigger)
            .start()
        )

    def _recording_cause(self, processor: BatchProcessor) -> Callable[[DataFrame, int], None]:
        """Record the exception of a batch in this process: Spark passes on only its text."""

        def apply(messages: DataFrame, batch: int) -> None:
            try:
                processor(messages, batch)
            except Exception as error:
                self._cause = error
                raise

        return apply

    def _messages(self, checkpoint: FlowCheckpoint) -> DataFrame:
        source = self._source
        known = dict(checkpoint.starting)
        starting = json.dumps(known) if known else source.starting
        reader = self._spark.readStream.format("penstock").options(
            url=source.url,
            streams=self._flow.streams,
            startingOffsets=starting,
            maxOffsetsPerTrigger=source.max_offsets,
            maxBytesPerTrigger=source.max_bytes or largest_batch_bytes(),
            failOnDataLoss=source.fail_on_loss,
        )
        if source.management_url is not None:
            reader = reader.option("managementUrl", source.management_url)
        return bronze.load_messages(reader)

    def _finish(self, query: StreamingQuery, checkpoint: FlowCheckpoint) -> None:
        """Let the current batch end and Spark commit it; the next one does not begin."""
        self._stopping.set()
        with self._directory.locks.hold(FlowLock.BATCH):
            done = self._progress.last_batch()
        deadline = time.monotonic() + _COMMIT_SECONDS
        while (
            done is not None
            and done.batch >= checkpoint.first
            and not checkpoint.committed(done.batch)
            and query.isActive
            and time.monotonic() < deadline
        ):
            time.sleep(0.02)
        query.stop()

    def _call_ready(self, ready: Callable[[], None]) -> None:
        if not self._was_ready:
            self._was_ready = True
            ready()

    def _set_state(self, state: RunState, reason: str = "") -> None:
        self._progress.set_state(state, time.time(), reason, self._restarts)


def _has_polled(query: StreamingQuery) -> bool:
    """Whether the query has reached its streams."""
    message: str = query.status["message"]
    return message.startswith(("Waiting", "Processing")) or query.lastProgress is not None


def _has_read(query: StreamingQuery) -> bool:
    """Whether a batch had messages: all that a batch needs is planned."""
    last = query.lastProgress
    return last is not None and last["numInputRows"] > 0


def _is_remote(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect")


#: A retry cannot succeed.
_PERMANENT: Final = (errors.ConfigurationError, errors.AccessRefused, DataLost)
_DISK_FULL: Final = "No space left on device"
#: Spark gives a Python process ten seconds to start, which a busy machine may exceed.
_WORKER_START_TIMEOUT: Final = "Python worker failed to connect back"
#: The line of a traceback with the class and the text of an exception.
_TRACEBACK_LINE: Final = re.compile(
    r"^(?:(penstock\w*(?:\.\w+)+)\.)?([A-Za-z]\w+): (.+)$", re.MULTILINE
)


class QueryFailed(errors.PenstockError):
    """The query of a flow failed, also after retries."""


@dataclass(frozen=True, slots=True)
class QueryFailure:
    reason: str
    transient: bool
    permanent: bool
    error: Exception  #: to raise without a further retry


def classify_failure(raised: Exception, cause: Exception | None) -> QueryFailure:
    """`cause` is the exception of the batch, if there is one."""
    error = raised if cause is None else cause
    text = str(error)
    if _DISK_FULL in text:  # in the flow, in its database, or in Java
        full = StorageFull(next(line for line in text.splitlines() if _DISK_FULL in line).strip())
        return _classified(full, StorageFull, str(full), full)
    if not _is_from_spark(error):
        return _classified(error, type(error), text, error)
    named = list(_named_errors(text))
    if not named:
        return QueryFailure(
            _first_line(text), _WORKER_START_TIMEOUT in text, False, QueryFailed(text)
        )
    kind, words = named[-1]
    permanent = issubclass(kind, _PERMANENT)
    return _classified(
        _empty_error(kind), kind, words, kind(words) if permanent else QueryFailed(words)
    )


def _classified(
    error: Exception, kind: type[Exception], words: str, final: Exception
) -> QueryFailure:
    # A missing stream may be declared later.
    transient = (
        is_transient_amqp_error(error) or is_transient(error) or issubclass(kind, errors.NotFound)
    )
    reason = f"{kind.__name__}: {words}" if words else kind.__name__
    return QueryFailure(_first_line(reason), transient, issubclass(kind, _PERMANENT), final)


def _named_errors(text: str) -> Iterator[tuple[type[Exception], str]]:
    """The known exception classes in a text, with their texts."""
    for module, name, words in _TRACEBACK_LINE.findall(text):
        try:
            found = getattr(import_module(module) if module else builtins, name, None)
        except ImportError:
            continue
        if isinstance(found, type) and issubclass(found, Exception):
            yield found, words


def _empty_error(kind: type[Exception]) -> Exception:
    """An instance for classification; constructors have different arguments."""
    return kind.__new__(kind)


def _is_from_spark(error: Exception) -> bool:
    """Whether Spark reports an exception of another process."""
    return type(error).__module__.partition(".")[0] in ("py4j", "pyspark")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
