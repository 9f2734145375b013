"""Building models on Spark: each search of a configuration in a cell is a task of its own.

A search's result depends on the model and the search alone, so it is the same on one core and on a
thousand. The longest begin first: whoever is last should have little left.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock_jobs.science.model import (
    Signature,
    SignatureSearch,
    SourceModel,
    run_search,
    with_signatures,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_FOUND: Final = "search int, features array<int>, score double"
_SCHEMA: Final = pa.schema(
    [("search", pa.int32()), ("features", pa.list_(pa.int32())), ("score", pa.float64())]
)
#: How long a fit takes, roughly and beside each other.
_SEARCH_COST: Final = {"rvm": 20, "svm": 5, "knn": 2, "logistic": 2, "lda": 1, "bayes": 1}


def build_on_spark(
    spark: SparkSession,
    model: SourceModel,
    wanted: Sequence[SignatureSearch],
    told: Callable[[float], None] = lambda _: None,
) -> SourceModel:
    """The model with the signatures of all searches."""
    order = sorted(wanted, key=lambda each: -_SEARCH_COST[each.configuration.kind])

    def carry_out_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                found = run_search(model, order[number])
                rows = [(number, list(each.features), each.score) for each in found]
                columns = zip(*rows, strict=True)
                yield pa.record_batch(
                    [
                        pa.array(column, field.type)
                        for column, field in zip(columns, _SCHEMA, strict=True)
                    ],
                    schema=_SCHEMA,
                )

    pieces = spark.range(0, len(order), 1, len(order)).mapInArrow(carry_out_all, _FOUND)
    with spark_progress(spark, len(order), told):
        rows = pieces.collect()
    results: dict[SignatureSearch, list[Signature]] = {each: [] for each in order}
    for row in rows:
        search = order[row.search]
        results[search].append(Signature(search.configuration, tuple(row.features), row.score))
    return with_signatures(model, results)


# How much of Spark's work is done: by the tasks it has completed.

POLL_SECONDS: Final = 0.2


@contextmanager
def spark_progress(
    spark: SparkSession, tasks: int, told: Callable[[float], None]
) -> Iterator[None]:
    """What the block makes Spark do is `tasks` tasks; `told` hears the share that is done.

    Over Spark Connect the server's tasks are not to be seen: there is only the end to hear of.
    """
    if not hasattr(spark, "_jsc"):
        yield
        told(1.0)
        return
    context = spark.sparkContext
    group = f"penstock-{uuid.uuid4().hex}"
    context.setJobGroup(group, "watched", interruptOnCancel=True)
    ended = threading.Event()

    def look() -> None:
        tracker = context.statusTracker()
        before = 0.0  # the end is told when everything is at hand
        while not ended.wait(POLL_SECONDS):
            done = 0
            for job in tracker.getJobIdsForGroup(group):
                info = tracker.getJobInfo(job)
                stages = [tracker.getStageInfo(each) for each in info.stageIds] if info else []
                done += sum(stage.numCompletedTasks for stage in stages if stage)
            share = done / tasks
            if before < share < 1.0:
                told(share)
                before = share

    watcher = threading.Thread(target=look, name="progress of Spark", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    told(1.0)


# Source tracking on Spark: the data are small and the work is large, so work is what is spread.
