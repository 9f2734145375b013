"""How much of Spark's work is done: by the tasks it has completed."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOK_SECONDS: Final = 0.2


@contextmanager
def watched(spark: SparkSession, tasks: int, told: Callable[[float], None]) -> Iterator[None]:
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
        while not ended.wait(LOOK_SECONDS):
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
