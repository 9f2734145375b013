"""The engine: a flow's query started, watched, started again, and stopped between two batches.

    engine = Engine(spark, flow, Place(data, flow.name), Source("amqp://localhost"))
    engine.follow(stop)   # until the event is set
    engine.once()         # what there is now, and no more

A broker or a database that is away is waited for, however long, with a line in the log each time it
is tried. Another fault is tried a few times more, for it may be the machine's; then it is raised.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from penstock.core.logs import get_logger
from penstock.pipeline.applying import Applying, Halted
from penstock.pipeline.bronze import arriving
from penstock.pipeline.checkpoint import Checkpoint, open_checkpoint
from penstock.pipeline.claims import Claim
from penstock.pipeline.faults import explain
from penstock.pipeline.flow import Flow
from penstock.pipeline.place import Place
from penstock.pipeline.progress import Progress, State
from penstock.pipeline.sources import ensure
from penstock.store.patience import Patience

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = get_logger(__name__)

#: How often the engine looks whether it is to stop.
_LOOK_SECONDS: Final = 0.2
#: How long a batch that is applied may take to become known to the checkpoint. If it takes longer
#: it is given again, and its mark is found.
_COMMIT_SECONDS: Final = 5.0
#: What is away, or a machine that is too busy, is waited for.
FOREVER: Final = Patience(1.0, 30.0, float("inf"))
#: Tries of a fault that is not known to pass, without a batch in between.
_TRIES: Final = 3


@dataclass(frozen=True, slots=True)
class Source:
    """The broker, and how it is read."""

    url: str
    starting: str = "earliest"  #: for streams bronze knows nothing of
    max_offsets: int = 500_000  #: the largest batch: what fits in memory, and in a patient second
    fail_on_loss: bool = True
    every: float = 0.5  #: seconds from the beginning of a batch to the next


class Engine:
    """One flow on one session."""

    def __init__(self, spark: SparkSession, flow: Flow, place: Place, source: Source) -> None:
        self._spark = spark
        self._flow = flow
        self._place = place
        self._source = source
        self._progress = Progress(place.progress, flow.name)
        self._halt = threading.Event()
        self._cause: Exception | None = None
        self._restarts = 0
        self._was_ready = False

    def follow(
        self,
        stop: threading.Event,
        patience: Patience = FOREVER,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        """Apply batches as messages come, until told to stop; then finish the one at hand.

        `ready` is called once, when the streams have been reached.
        """
        trigger = {"processingTime": f"{round(self._source.every * 1000)} milliseconds"}
        self._keep_trying(trigger, stop, patience, ready)

    def once(self, patience: Patience = FOREVER) -> None:
        """Apply what the streams hold now."""
        self._keep_trying({"availableNow": True}, threading.Event(), patience)

    def _keep_trying(
        self,
        trigger: dict[str, Any],
        stop: threading.Event,
        patience: Patience,
        ready: Callable[[], None] = lambda: None,
    ) -> None:
        with self._place.claims.hold(Claim.RUNNING, wait=False):
            self._enter(State.STARTING)
            tries, pauses, deadline = 0, patience.pauses(), time.monotonic() + patience.total
            while not stop.is_set():
                before = self._progress.done()
                try:
                    self._run(trigger, stop, ready)
                    break
                except Exception as raised:
                    fault = explain(raised, self._cause)
                    if self._progress.done() != before:
                        tries, pauses = 0, patience.pauses()
                        deadline = time.monotonic() + patience.total
                    tries += not fault.passing
                    if fault.hopeless or tries >= _TRIES or time.monotonic() > deadline:
                        self._enter(State.FAILED, fault.reason)
                        if fault.error is raised:
                            raise
                        raise fault.error from raised
                pause = next(pauses)
                log.warning(
                    "waiting", flow=self._flow.name, reason=fault.reason, pause=round(pause, 1)
                )
                self._enter(State.WAITING, fault.reason)
                self._restarts += 1
                stop.wait(pause)
            self._enter(State.STOPPED)

    def _run(
        self, trigger: dict[str, Any], stop: threading.Event, ready: Callable[[], None]
    ) -> None:
        """One life of the query: returns when it has stopped as it was told, or is done."""
        self._cause = None
        self._halt.clear()
        ensure(self._source.url, self._flow.streams, self._flow.sources)
        lake = self._place.lake
        checkpoint = open_checkpoint(self._place.checkpoint, lake)
        applying = Applying(self._flow, self._place, checkpoint)
        if checkpoint.first and not checkpoint.committed(checkpoint.first):
            applying.again(self._spark)
        query = self._start(self._messages(checkpoint), applying, trigger)
        running = False
        try:
            while query.isActive:
                if not running and _has_looked(query):
                    running = True
                    self._enter(State.RUNNING)
                    self._tell(ready)
                if stop.wait(_LOOK_SECONDS):
                    self._finish(query, checkpoint)
                    return
            query.awaitTermination()  # raises what it ended with
        except Exception:
            if not isinstance(self._cause, Halted):
                raise
        finally:
            with suppress(Exception):  # it has ended, or Spark has
                query.stop()

    def _start(
        self, messages: DataFrame, applying: Applying, trigger: dict[str, Any]
    ) -> StreamingQuery:
        function: Callable[[DataFrame, int], None] = applying
        if not _remote(self._spark):
            function = self._here(replace(applying, halted=self._halt.is_set))
        return (
            messages.writeStream.queryName(self._flow.name)
            .foreachBatch(function)
            .option("checkpointLocation", str(applying.checkpoint.folder))
            .trigger(**trigger)
            .start()
        )

    def _here(self, applying: Applying) -> Callable[[DataFrame, int], None]:
        """In this process, what is raised can be kept: Spark hands on no more than its text."""

        def apply(messages: DataFrame, batch: int) -> None:
            try:
                applying(messages, batch)
            except Exception as error:
                self._cause = error
                raise

        return apply

    def _messages(self, checkpoint: Checkpoint) -> DataFrame:
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
        return arriving(reader)

    def _finish(self, query: StreamingQuery, checkpoint: Checkpoint) -> None:
        """Let the batch at hand end, and become known to Spark; the next one is not begun."""
        self._halt.set()
        with self._place.claims.hold(Claim.BATCH):
            done = self._progress.done()
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

    def _enter(self, state: State, reason: str = "") -> None:
        self._progress.enter(state, time.time(), reason, self._restarts)


def _has_looked(query: StreamingQuery) -> bool:
    """Whether it has reached its streams: it waits for messages, or has some."""
    message: str = query.status["message"]
    return message.startswith(("Waiting", "Processing")) or query.lastProgress is not None


def _remote(spark: SparkSession) -> bool:
    """Whether the session is a client's of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect")
