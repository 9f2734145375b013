"""The engine: a flow's query started, watched, started again, and stopped between two batches.

    engine = Engine(spark, flow, Place(data, flow.name), Source("amqp://localhost"))
    engine.run(stop)   # until the event is set
    engine.run_available_now()         # what there is now, and no more

A broker or a database that is away is waited for, however long, with a line in the log each time it
is tried. Another fault is tried a few times more, for it may be the machine's; then it is raised.
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
from penstock.core.retry import RetryPolicy, is_transient
from penstock.wire.amqp091.errors import is_transient_amqp_error as broker_passing
from penstock_spark.batch_processor import (
    BatchProcessor,
    FlowCheckpoint,
    StopRequested,
    open_checkpoint,
)
from penstock_spark.bronze import load_messages
from penstock_spark.directory import FlowDirectory, FlowLock
from penstock_spark.errors import DataLost
from penstock_spark.flow import PipelineFlow
from penstock_spark.progress import FlowProgress, RunState
from penstock_spark.stream_declaration import declare_missing_streams

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


log = get_logger(__name__)

#: How often the engine looks whether it is to stop.
_POLL_SECONDS: Final = 0.2
#: How long a batch that is applied may take to become known to the checkpoint. If it takes longer
#: it is given again, and its mark is found.
_COMMIT_SECONDS: Final = 5.0
#: What is away, or a machine that is too busy, is waited for.
FOREVER: Final = RetryPolicy(1.0, 30.0, float("inf"))
#: Tries of a fault that is not known to pass, without a batch in between.
_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The broker, and how it is read."""

    url: str
    starting: str = "earliest"  #: for streams bronze knows nothing of
    max_offsets: int = 500_000  #: the largest batch: what fits in memory, and in a patient second
    fail_on_loss: bool = True
    every: float = 0.5  #: seconds from the beginning of a batch to the next


class FlowRunner:
    """One flow on one session."""

    def __init__(
        self,
        spark: SparkSession,
        flow: PipelineFlow,
        directory: FlowDirectory,
        source: SourceOptions,
    ) -> None:
        self._spark = spark
        self._flow = flow
        self._directory = directory
        self._source = source
        self._progress = FlowProgress(directory.progress, flow.name)
        self._halt = threading.Event()
        self._cause: Exception | None = None
        self._restarts = 0
        self._was_ready = False

    def run(
        self,
        stop: threading.Event,
        patience: RetryPolicy = FOREVER,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        """Apply batches as messages come, until told to stop; then finish the one at hand.

        `ready` is called once, when the streams have been reached.
        """
        trigger = {"processingTime": f"{round(self._source.every * 1000)} milliseconds"}
        self._keep_trying(trigger, stop, patience, ready)

    def run_available_now(self, patience: RetryPolicy = FOREVER) -> None:
        """Apply what the streams hold now."""
        self._keep_trying({"availableNow": True}, threading.Event(), patience)

    def _keep_trying(
        self,
        trigger: dict[str, Any],
        stop: threading.Event,
        patience: RetryPolicy,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        with self._directory.locks.hold(FlowLock.RUNNING, wait=False):
            self._enter(RunState.STARTING)
            tries, pauses, deadline = 0, patience.delays(), time.monotonic() + patience.total
            while not stop.is_set():
                before = self._progress.last_batch()
                try:
                    self._run(trigger, stop, ready)
                    break
                except Exception as raised:
                    fault = classify_failure(raised, self._cause)
                    if self._progress.last_batch() != before:
                        tries, pauses = 0, patience.delays()
                        deadline = time.monotonic() + patience.total
                    tries += not fault.passing
                    if fault.hopeless or tries >= _TRIES or time.monotonic() > deadline:
                        self._enter(RunState.FAILED, fault.reason)
                        if fault.error is raised:
                            raise
                        raise fault.error from raised
                pause = next(pauses)
                log.warning(
                    "waiting", flow=self._flow.name, reason=fault.reason, pause=round(pause, 1)
                )
                self._enter(RunState.WAITING, fault.reason)
                self._restarts += 1
                stop.wait(pause)
            self._enter(RunState.STOPPED)

    def _run(
        self, trigger: dict[str, Any], stop: threading.Event, ready: Callable[[], None]
    ) -> None:
        """One life of the query: returns when it has stopped as it was told, or is done."""
        self._cause = None
        self._halt.clear()
        declare_missing_streams(self._source.url, self._flow.streams, self._flow.sources)
        lake = self._directory.lake
        checkpoint = open_checkpoint(self._directory.checkpoint, lake)
        processor = BatchProcessor(self._flow, self._directory, checkpoint)
        if checkpoint.first and not checkpoint.committed(checkpoint.first):
            processor.reapply_last_batch(self._spark)
        query = self._start(self._messages(checkpoint), processor, trigger)
        running = False
        try:
            while query.isActive:
                if not running and _has_polled(query):
                    running = True
                    self._enter(RunState.RUNNING)
                    self._tell(ready)
                if stop.wait(_POLL_SECONDS):
                    self._finish(query, checkpoint)
                    return
            query.awaitTermination()  # raises what it ended with
        except Exception:
            if not isinstance(self._cause, StopRequested):
                raise
        finally:
            with suppress(Exception):  # it has ended, or Spark has
                query.stop()

    def _start(
        self, messages: DataFrame, processor: BatchProcessor, trigger: dict[str, Any]
    ) -> StreamingQuery:
        function: Callable[[DataFrame, int], None] = processor
        if not _is_remote(self._spark):
            function = self._here(replace(processor, halted=self._halt.is_set))
        return (
            messages.writeStream.queryName(self._flow.name)
            .foreachBatch(function)
            .option("checkpointLocation", str(processor.checkpoint.folder))
            .trigger(**trigger)
            .start()
        )

    def _here(self, processor: BatchProcessor) -> Callable[[DataFrame, int], None]:
        """In this process, what is raised can be kept: Spark hands on no more than its text."""

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
            failOnDataLoss=source.fail_on_loss,
        )
        return load_messages(reader)

    def _finish(self, query: StreamingQuery, checkpoint: FlowCheckpoint) -> None:
        """Let the batch at hand end, and become known to Spark; the next one is not begun."""
        self._halt.set()
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

    def _tell(self, ready: Callable[[], None]) -> None:
        if not self._was_ready:
            self._was_ready = True
            ready()

    def _enter(self, state: RunState, reason: str = "") -> None:
        self._progress.set_state(state, time.time(), reason, self._restarts)


def _has_polled(query: StreamingQuery) -> bool:
    """Whether it has reached its streams: it waits for messages, or has some."""
    message: str = query.status["message"]
    return message.startswith(("Waiting", "Processing")) or query.lastProgress is not None


def _is_remote(spark: SparkSession) -> bool:
    """Whether the session is a client's of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")


# Why a query ended, and whether starting it again may help.
#
# What a flow raises, or the engine before its query, is at hand. What the source, or a task, raises
# in a process of Spark's arrives as a text with a traceback in it, whose last line names the
# error's class: by that it is judged as if it were at hand.

#: Trying again does not cure these: somebody has to do something.
_PERMANENT: Final = (errors.ConfigurationError, errors.AccessRefused, DataLost)
#: Spark gives a Python process ten seconds to start, and a machine may be too busy for that.
_WORKER_START_TIMEOUT: Final = "Python worker failed to connect back"
#: A line of a traceback that names an error of Python's or ours, and what it said.
_TRACEBACK_LINE: Final = re.compile(
    r"^(?:(penstock\w*(?:\.\w+)+)\.)?([A-Za-z]\w+): (.+)$", re.MULTILINE
)


class QueryFailed(errors.PenstockError):
    """A flow's query ended, and starting it again did not help; says what Spark said."""


@dataclass(frozen=True, slots=True)
class QueryFault:
    """A reason in a line, and what to make of it."""

    reason: str
    passing: bool  #: waiting may help
    hopeless: bool  #: nothing but a person will
    error: Exception  #: to be raised when there is nothing left to try


def classify_failure(raised: Exception, cause: Exception | None) -> QueryFault:
    """`cause` is what applying the batch raised, if it was that."""
    told = raised if cause is None else cause
    if not _is_from_spark(told):
        return _classified(told, type(told), str(told), told)
    text = str(told)
    named = list(_named_errors(text))
    if not named:
        return QueryFault(
            _first_line(text), _WORKER_START_TIMEOUT in text, False, QueryFailed(text)
        )
    kind, words = named[-1]
    hopeless = issubclass(kind, _PERMANENT)
    return _classified(
        _empty_error(kind), kind, words, kind(words) if hopeless else QueryFailed(words)
    )


def _classified(
    error: Exception, kind: type[Exception], words: str, final: Exception
) -> QueryFault:
    # A stream that is not there may be declared yet.
    passes = broker_passing(error) or is_transient(error) or issubclass(kind, errors.NotFound)
    reason = f"{kind.__name__}: {words}" if words else kind.__name__
    return QueryFault(_first_line(reason), passes, issubclass(kind, _PERMANENT), final)


def _named_errors(text: str) -> Iterator[tuple[type[Exception], str]]:
    """The errors a text names that are known here, with what they said."""
    for module, name, words in _TRACEBACK_LINE.findall(text):
        try:
            found = getattr(import_module(module) if module else builtins, name, None)
        except ImportError:
            continue
        if isinstance(found, type) and issubclass(found, Exception):
            yield found, words


def _empty_error(kind: type[Exception]) -> Exception:
    """One of that class, to be judged by; errors differ in what they are made of."""
    return kind.__new__(kind)


def _is_from_spark(error: Exception) -> bool:
    """Whether it is Spark's telling of what happened in another process."""
    return type(error).__module__.partition(".")[0] in ("py4j", "pyspark")


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]
