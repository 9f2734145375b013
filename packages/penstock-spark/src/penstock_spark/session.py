"""Spark sessions with settings for streams of small messages, on one machine or a cluster.

Settings of the caller override these. `register` also works with any other session.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from penstock.core.java import check_java
from penstock.core.resources import memory_total
from penstock.core.units import GiB, MiB
from penstock_spark.connector.source import register

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_SETTINGS: Final = {
    # Times are converted only for display.
    "spark.sql.session.timeZone": "UTC",
    # The default of 200 would be 200 tiny tasks per batch.
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # State larger than memory, and incremental checkpoints of it.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.metricsEnabled": "true",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
#: On one machine, only loopback.
_LOCAL_SETTINGS: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
#: Tasks are the parallelism; threads of NumPy's libraries would compete for the cores.
_THREAD_VARIABLES: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
#: A worker allocates the columns of each batch anew. It keeps up to 256 MiB between batches: memory
#: that is returned to the system costs a page fault for each 4 KiB of the next batch, a tenth of
#: the time of a backlog.
_ALLOCATION: Final = {
    "MALLOC_MMAP_THRESHOLD_": str(32 * MiB),
    "MALLOC_TRIM_THRESHOLD_": str(256 * MiB),
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}


def open_session(
    name: str = "penstock", master: str = "local[*]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session with the format `penstock` registered."""
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is None:
        check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master(master)
    local = _LOCAL_SETTINGS if master.startswith("local") else {}
    variables = {**dict.fromkeys(_THREAD_VARIABLES, "1"), **_ALLOCATION}
    workers = {f"spark.executorEnv.{name}": value for name, value in variables.items()}
    for each in _THREAD_VARIABLES:
        os.environ.setdefault(each, "1")
    for key, value in {**_SETTINGS, **local, **workers, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


#: Spark mostly passes bytes between Python processes: the optimizing compiler and a parallel
#: garbage collector would cost more than they save. The heap begins small. It and the C library
#: return what they do not need. Without a size of the metaspace it is collected several times while
#: classes are loaded.
_JAVA_OPTIONS: Final = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xms64m -XX:MinHeapFreeRatio=20 "
    "-XX:MaxHeapFreeRatio=40 -XX:MetaspaceSize=192m "
    # Since 17.0.9.
    "-XX:+IgnoreUnrecognizedVMOptions -XX:TrimNativeHeapInterval=30000"
)
_FLOW_SETTINGS: Final = {
    # A replay or compaction shares the cores with the live query.
    "spark.scheduler.mode": "FAIR",
    # The rows of a batch are written to the files of their days without sorting.
    "spark.sql.maxConcurrentOutputFileWriters": "8",
    # Files are small and many: a task reads hundreds.
    "spark.sql.files.openCostInBytes": "65536",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.driver.extraJavaOptions": _JAVA_OPTIONS,
    "spark.executor.extraJavaOptions": _JAVA_OPTIONS,
    "spark.python.daemon.module": "penstock_spark.worker_daemon",
    # A sort or a hash table begins with a page: by default of 64 MiB with 3 GiB of memory.
    "spark.buffer.pageSize": "2m",
    # The runner logs why a query ended.
    "spark.log.level": "FATAL",
    # History that is never read.
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "200",
}
_FLOW_LOCAL_SETTINGS: Final = {
    # Without files of checksums.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}
#: On a local disk Hadoop starts a process (`chmod`, `readlink`) for most operations on a file: with
#: Spark's default manager about 25 for the two files of a batch, with this one two.
_FILE_MANAGER: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
#: The share of the machine's memory for Spark's driver; the rest is for Python workers, the broker
#: and the database.
_DRIVER_SHARE: Final = 0.125


@contextmanager
def flow_session(
    flow: str,
    master: str = "local[*]",
    remote: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """A session during the block; `remote` is a Spark Connect server, `sc://host:port`."""
    if remote is not None:
        spark = _connect(remote)
    else:
        memory = {"spark.driver.memory": f"{_driver_memory() // MiB}m"}
        local = {}
        if master.startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            os.environ.setdefault("MALLOC_ARENA_MAX", "2")  # of Java: one for each thread otherwise
            local = _FLOW_LOCAL_SETTINGS
        ours = {**_FLOW_SETTINGS, **memory, **local, **(settings or {})}
        spark = open_session(f"penstock-{flow}", master, ours)
        if local:
            use_file_manager(spark)
    try:
        yield spark
    finally:
        spark.stop()


def skip_pandas_check() -> None:
    """Let the driver not load pandas (45 MB) for each function on Arrow batches.

    Spark only compares its version, which this package requires.
    """
    from pyspark.sql.pandas import functions

    functions.require_minimum_pandas_version = lambda: None  # type: ignore[attr-defined]


def use_file_manager(spark: SparkSession) -> None:
    """Unless this release of Spark has it elsewhere."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    jvm = spark.sparkContext._jvm
    assert jvm is not None  # the session is not remote
    with suppress(Py4JJavaError):
        jvm.java.lang.Class.forName(_FILE_MANAGER)
        spark.conf.set("spark.sql.streaming.checkpointFileManagerClass", _FILE_MANAGER)


#: The modules of Python processes that plan data sources: before a query starts, and its first
#: batch.
_PLANNERS: Final = "pyspark.sql.worker."
BATCH_PLANNER: Final = "pyspark.sql.worker.plan_data_source_read"


def end_planners(spark: SparkSession, keep: str | None = None) -> None:
    """End the Python processes with which Spark has planned a query.

    It keeps them for the next one, 100 MB each. Its factory of a kind of processes ends them: a
    process that ends otherwise fails the next query, which takes it for idle.
    """
    from py4j.protocol import Py4JError

    with suppress(Py4JError):  # a release of Spark that has them elsewhere keeps them
        for module, factory in _worker_factories(spark):
            if module.startswith(_PLANNERS) and module != keep:
                factory.stop()


def _worker_factories(spark: SparkSession) -> Iterator[tuple[str, Any]]:
    """Private; Py4J cannot call methods of `SparkEnv`: one names a class that Spark lacks."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None  # the session is not remote
    owner = jvm.java.lang.Class.forName("org.apache.spark.SparkEnv")
    field = owner.getDeclaredField("pythonWorkers")
    field.setAccessible(True)
    factories = field.get(spark.sparkContext._jsc.sc().env()).toSeq()
    for index in range(factories.length()):
        found = factories.apply(index)
        yield found._1().workerModule(), found._2()


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
