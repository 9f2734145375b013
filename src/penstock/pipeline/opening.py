"""A Spark session for the engine: here, on a cluster, or somebody else's over Spark Connect."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from penstock.core.machine import memory_total
from penstock.core.units import GiB, MiB
from penstock.pipeline.connector.source import register
from penstock.pipeline.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS: Final = {
    # A replay or a compaction beside the live query takes turns with it.
    "spark.scheduler.mode": "FAIR",
    # The rows of a batch go to the files of their days as they come, unsorted.
    "spark.sql.maxConcurrentOutputFileWriters": "8",
    # Files of batches are small and many: a task takes hundreds of them.
    "spark.sql.files.openCostInBytes": "65536",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Why a query ended is told by the engine, in a line and not in a hundred.
    "spark.log.level": "FATAL",
    # What a query remembers of itself and never asks for again.
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
}
#: On one machine. Spark hands bytes from one Python process to the next and does little itself: the
#: compiler that takes long to make code fast would cost more than all that runs it.
_LOCAL: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
#: Of a machine's memory, what Spark's driver may take; the rest is for Python's workers, the
#: broker and the database beside it.
_DRIVER_SHARE: Final = 0.125


@contextmanager
def engine_session(
    flow: str,
    master: str = "local[*]",
    remote: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """For the length of the block; `remote` is a server's `sc://host:port` and wins."""
    if remote is not None:
        spark = _connect(remote)
    else:
        memory = {"spark.driver.memory": f"{_driver_memory() // MiB}m"}
        local = {}
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            local = _LOCAL
        ours = {**_SETTINGS, **memory, **local, **(settings or {})}
        spark = open_session(f"penstock-{flow}", master, ours)
    try:
        yield spark
    finally:
        spark.stop()


def _connect(remote: str) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.remote(remote).getOrCreate()
    for name, value in _SETTINGS.items():
        if name.startswith("spark.sql.") and spark.conf.isModifiable(name):
            spark.conf.set(name, value)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    register(spark)
    return spark


def _driver_memory() -> int:
    return int(min(max(memory_total() * _DRIVER_SHARE, 1 * GiB), 4 * GiB))
