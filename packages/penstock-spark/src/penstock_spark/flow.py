"""What the engine asks of a flow: how an application's messages become its tables.

The engine reads streams, keeps bronze, cuts batches, stops and starts again; a flow says what a
batch means. Spark's checkpoint and this contract together make it exactly once:

* A batch has the same id and the same messages however often it is tried. It is tried again only
  if the try before did not return, and the next one comes only when it has.
* `apply` writes silver through `batch.lake`, where a later try replaces an earlier one, and gold in
  one transaction with a mark of the batch's id. A batch whose mark is there is left out: a process
  killed between gold's commit and Spark's comes back with it.
* Ids grow, and may leave gaps. What a batch does to the tables is the same however the same
  messages are cut into batches: a replay cuts them larger.

A rebuild makes a second set of tables, a *generation*, from bronze, while batches go on being
applied to the first. The engine says when: `begin_rebuild`, then `apply` with batches that are
`aside`, then `adopt`, during which no other batch is applied.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from penstock.core.errors import ResourceLocked
from penstock.core.logs import get_logger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock_spark.bronze import BronzeFiles
    from penstock_spark.lake import Lake
    from penstock_spark.stream_declaration import StreamDeclaration


@dataclass(frozen=True, slots=True)
class FlowBatch:
    """Some messages, and where what is made of them goes."""

    id: int
    #: As bronze has them: the connector's columns, `timestamp` never null, with `day` (UTC, of the
    #: timestamp) and `batch`. It is read from files: any number of actions on it is cheap.
    messages: DataFrame
    bronze_files: BronzeFiles  #: the same, for workers that read files themselves
    rows: int
    lake: Lake  #: of this batch's generation
    is_rebuild: bool = False  #: of a rebuild: the current tables stay unchanged

    @property
    def spark(self) -> SparkSession:
        return self.messages.sparkSession

    @property
    def generation(self) -> int:
        return self.lake.generation


class PipelineFlow(Protocol):
    """An application's way from messages to tables. Over Spark Connect it has to be picklable."""

    @property
    def name(self) -> str:
        """A short word of a-z, 0-9, - and _: names its checkpoint, its bronze, its marks."""

    @property
    def streams(self) -> str:
        """Which streams it reads, as the connector's option has it."""

    @property
    def sources(self) -> Sequence[StreamDeclaration]:
        """What of it is to be declared, where none of these streams is there yet."""

    @property
    def periodic_tasks(self) -> Sequence[PeriodicTask]:
        """What is to be done beside its batches, now and then, while it runs for long."""

    def apply(self, batch: FlowBatch) -> None:
        """Silver and gold of a batch; returns when both are safe."""

    def begin_rebuild(self, generation: int, since: int) -> int:
        """Make room for a generation of gold that has nothing of batch `since` and later.

        The answer is the first batch to be applied to it: `since` if the tables can be had as they
        were before it, an earlier one if not; 0 always does. Room left by a rebuild that did not
        come to its end is cleared.
        """

    def check_adoption(self) -> None:
        """Raises unless what `adopt` needs is there: asked before a rebuild that is to be adopted,
        which may take hours."""

    def adopt(self, generation: int) -> None:
        """Make that generation what people look at, marks included, in one transaction.

        Done already, it does nothing: after a crash it is asked for again.
        """

    def discard(self, generation: int) -> None:
        """Throw away a generation that is not to be adopted, if there is anything of it."""


@dataclass(frozen=True, slots=True)
class FlowContext:
    """What a flow may want to know of where it runs."""

    data: Path
    broker: str  #: its URL
    database: str | None = None  #: its URL; none: the embedded one under `data`
    cache: str | None = None  #: its URL; none: in process


#: How a flow is made: `module:function`, with what it opened closed at the end.
FlowFactory = Callable[[FlowContext], AbstractContextManager[PipelineFlow]]


# What is done now and then beside a query that runs for long: compaction, a nightly forecast.
#
# Each chore has a thread of its own, looks every so often whether there is something to do, and
# shares the session with the query. Its jobs are in a pool of Spark's of their own, so that a batch
# that comes meanwhile need not wait for all of them. A chore that fails is told of and tried again
# later: nothing live depends on it.

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PeriodicTask:
    name: str
    work: Callable[[SparkSession], None]  #: returns at once if there is nothing to do
    every: float  #: seconds, from one look to the next
    retry_after: float  #: seconds, after a failure


@contextmanager
def run_periodic_tasks(
    spark: SparkSession, flow: str, periodic_tasks: Sequence[PeriodicTask]
) -> Iterator[None]:
    """For the length of the block."""
    end = threading.Event()
    for chore in periodic_tasks:
        threading.Thread(
            target=_run_periodically, args=(spark, flow, chore, end), name=chore.name, daemon=True
        ).start()
    try:
        yield
    finally:
        # What is at work is not waited for: cut short, it has changed nothing.
        end.set()


def _run_periodically(
    spark: SparkSession, flow: str, chore: PeriodicTask, end: threading.Event
) -> None:
    use_scheduler_pool(spark, chore.name)
    pause = chore.every
    while not end.wait(pause):
        pause = chore.every
        try:
            chore.work(spark)
        except ResourceLocked:
            continue  # somebody else is at it: next time
        except Exception as error:
            if not end.is_set():
                reason = str(error).partition("\n")[0]
                log.warning("chore failed", flow=flow, chore=chore.name, reason=reason)
            pause = chore.retry_after


def use_scheduler_pool(spark: SparkSession, pool: str) -> None:
    """Have this thread's jobs take turns with others' instead of queueing up before them."""
    if not type(spark).__module__.startswith("pyspark.sql.connect"):
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
