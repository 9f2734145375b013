"""A Spark session with settings that suit streams of small messages, on a laptop or a cluster.

Only what is better set than left is set here; whatever the caller gives wins. Another session works
as well: `register` needs nothing of this.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from penstock.core.java import check_java
from penstock.core.resources import memory_total
from penstock.core.units import GiB, MiB
from penstock_spark.connector.source import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_SETTINGS: Final = {
    # Times are UTC until somebody is shown one.
    "spark.sql.session.timeZone": "UTC",
    # A few cores: two hundred shuffle partitions would be two hundred tiny tasks a batch.
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # State that outgrows memory, and checkpoints of it that are as small as what changed.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.metricsEnabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
#: On one machine nobody else has a reason to connect.
_LOCAL_SETTINGS: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
#: Tasks are the parallelism; threads of NumPy's libraries in each would fight over the cores.
_THREAD_VARIABLES: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def open_session(
    name: str = "penstock", master: str = "local[*]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session with the format `penstock` known to it; `.stop()` ends it."""
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is None:
        check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master(master)
    local = _LOCAL_SETTINGS if master.startswith("local") else {}
    threads = {f"spark.executorEnv.{each}": "1" for each in _THREAD_VARIABLES}
    for each in _THREAD_VARIABLES:
        os.environ.setdefault(each, "1")
    for key, value in {**_SETTINGS, **local, **threads, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


# A Spark session for the engine: here, on a cluster, or somebody else's over Spark Connect.

_FLOW_SETTINGS: Final = {
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
_FLOW_LOCAL_SETTINGS: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}
#: Of a machine's memory, what Spark's driver may take; the rest is for Python's workers, the
#: broker and the database beside it.
_DRIVER_SHARE: Final = 0.125


@contextmanager
def flow_session(
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
            local = _FLOW_LOCAL_SETTINGS
        ours = {**_FLOW_SETTINGS, **memory, **local, **(settings or {})}
        spark = open_session(f"penstock-{flow}", master, ours)
    try:
        yield spark
    finally:
        spark.stop()


def _connect(remote: str) -> SparkSession:
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.remote(remote).getOrCreate()
    for name, value in _FLOW_SETTINGS.items():
        if name.startswith("spark.sql.") and spark.conf.isModifiable(name):
            spark.conf.set(name, value)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    register(spark)
    return spark


def _driver_memory() -> int:
    return int(min(max(memory_total() * _DRIVER_SHARE, 1 * GiB), 4 * GiB))
