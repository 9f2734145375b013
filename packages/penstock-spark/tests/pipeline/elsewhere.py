"""A program that reads a stream, in a batch and in a query, and publishes what it has read.

    python -m tests.pipeline.elsewhere FOLDER MASTER URL STREAM QUEUE

MASTER may be `remote`: then it is a client of Spark Connect.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from penstock_spark import open_session, register, stream_offsets


def session(master: str) -> Any:
    if master != "remote":
        return open_session("elsewhere", master)
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    register(spark)
    return spark


def main() -> None:
    folder, master, url, stream, queue = sys.argv[1:]
    spark = session(master)
    options = {"url": url, "streams": stream, "startingOffsets": "earliest", "minPartitions": "4"}
    batch = spark.read.format("penstock").options(**options).load()
    print("count", batch.count(), flush=True)
    query = (
        spark.readStream.format("penstock")
        .options(**options)
        .load()
        .writeStream.format("penstock")
        .options(url=url, exchange="", routingKey=queue)
        .option("checkpointLocation", str(Path(folder) / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = stream_offsets(query.lastProgress)[stream]
    print("end", found.end, "lag", found.lag, flush=True)
    print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
