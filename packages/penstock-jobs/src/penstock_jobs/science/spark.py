"""Builds models on Spark: each search of a configuration in a cell is a task.

The data are small and the work is large, so the work is distributed. The result of a search depends
on the model and the search only, so it is the same on any number of cores. The longest searches
start first.
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


_SIGNATURES: Final = "search int, features array<int>, score double"
_SCHEMA: Final = pa.schema(
    [("search", pa.int32()), ("features", pa.list_(pa.int32())), ("score", pa.float64())]
)
#: Rough relative durations of a fit.
_SEARCH_COST: Final = {"rvm": 20, "svm": 5, "knn": 2, "logistic": 2, "lda": 1, "bayes": 1}


def build_on_spark(
    spark: SparkSession,
    model: SourceModel,
    wanted: Sequence[SignatureSearch],
    progress: Callable[[float], None] = lambda _: None,
) -> SourceModel:
    """The model with the signatures of all searches."""
    order = sorted(wanted, key=lambda each: -_SEARCH_COST[each.configuration.kind])

    def run_all(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                signatures = run_search(model, order[number])
                rows = [(number, list(each.features), each.score) for each in signatures]
                columns = zip(*rows, strict=True)
                yield pa.record_batch(
                    [
                        pa.array(column, field.type)
                        for column, field in zip(columns, _SCHEMA, strict=True)
                    ],
                    schema=_SCHEMA,
                )

    tasks = spark.range(0, len(order), 1, len(order)).mapInArrow(run_all, _SIGNATURES)
    with spark_progress(spark, len(order), progress):
        rows = tasks.collect()
    results: dict[SignatureSearch, list[Signature]] = {each: [] for each in order}
    for row in rows:
        search = order[row.search]
        results[search].append(Signature(search.configuration, tuple(row.features), row.score))
    return with_signatures(model, results)


POLL_SECONDS: Final = 0.2


@contextmanager
def spark_progress(
    spark: SparkSession, tasks: int, progress: Callable[[float], None]
) -> Iterator[None]:
    """Reports the share of completed tasks of the block, which has `tasks` tasks.

    Spark Connect does not show the tasks of the server, so only the end is reported.
    """
    if not hasattr(spark, "_jsc"):
        yield
        progress(1.0)
        return
    context = spark.sparkContext
    group = f"penstock-{uuid.uuid4().hex}"
    context.setJobGroup(group, "watched", interruptOnCancel=True)
    ended = threading.Event()

    def poll() -> None:
        tracker = context.statusTracker()
        reported = 0.0  # 1.0 is reported after the rows are collected
        while not ended.wait(POLL_SECONDS):
            done = 0
            for job in tracker.getJobIdsForGroup(group):
                info = tracker.getJobInfo(job)
                stages = [tracker.getStageInfo(each) for each in info.stageIds] if info else []
                done += sum(stage.numCompletedTasks for stage in stages if stage)
            share = done / tasks
            if reported < share < 1.0:
                progress(share)
                reported = share

    watcher = threading.Thread(target=poll, name="spark progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]
    progress(1.0)
