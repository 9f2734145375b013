"""What is done now and then beside a query that runs for long: compaction, a nightly forecast.

Each chore has a thread of its own, looks every so often whether there is something to do, and
shares the session with the query. Its jobs are in a pool of Spark's of their own, so that a batch
that comes meanwhile need not wait for all of them. A chore that fails is told of and tried again
later: nothing live depends on it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.core.errors import ResourceLocked
from penstock.core.logs import get_logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Chore:
    name: str
    work: Callable[[SparkSession], None]  #: returns at once if there is nothing to do
    every: float  #: seconds, from one look to the next
    again: float  #: seconds, after a failure


@contextmanager
def doing(spark: SparkSession, flow: str, chores: Sequence[Chore]) -> Iterator[None]:
    """For the length of the block."""
    end = threading.Event()
    for chore in chores:
        threading.Thread(
            target=_do, args=(spark, flow, chore, end), name=chore.name, daemon=True
        ).start()
    try:
        yield
    finally:
        # What is at work is not waited for: cut short, it has changed nothing.
        end.set()


def _do(spark: SparkSession, flow: str, chore: Chore, end: threading.Event) -> None:
    step_aside(spark, chore.name)
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
            pause = chore.again


def step_aside(spark: SparkSession, pool: str) -> None:
    """Have this thread's jobs take turns with others' instead of queueing up before them."""
    if not type(spark).__module__.startswith("pyspark.sql.connect"):
        spark.sparkContext.setLocalProperty("spark.scheduler.pool", pool)
