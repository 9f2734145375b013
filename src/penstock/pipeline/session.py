"""A Spark session with settings that suit streams of small messages, on a laptop or a cluster.

Only what is better set than left is set here; whatever the caller gives wins. Another session works
as well: `register` needs nothing of this.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from penstock.core.java import check_java
from penstock.pipeline.connector.source import register

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
_LOCAL: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
#: Tasks are the parallelism; threads of NumPy's libraries in each would fight over the cores.
_THREADS: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def open_session(
    name: str = "penstock", master: str = "local[*]", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """A session with the format `penstock` known to it; `.stop()` ends it."""
    from pyspark.sql import SparkSession

    if SparkSession.getActiveSession() is None:
        check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name).master(master)
    local = _LOCAL if master.startswith("local") else {}
    threads = {f"spark.executorEnv.{each}": "1" for each in _THREADS}
    for each in _THREADS:
        os.environ.setdefault(each, "1")
    for key, value in {**_SETTINGS, **local, **threads, **(settings or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark
