"""Ways to read a stream: into Spark, in a batch and in a query, and with pika; and Parquet."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pika
from pyspark.sql import DataFrame, SparkSession

_PREFETCH: Final = 5000


def batch(
    spark: SparkSession,
    url: str,
    streams: Sequence[str],
    schema: str = "",
    *,
    stream_port: int = 0,
    tasks: int | None = None,
) -> DataFrame:
    reader = spark.read.format("penstock").options(
        url=url, streams=",".join(streams), streamPort=stream_port
    )
    if tasks is not None:
        reader = reader.option("minPartitions", tasks)
    return (reader.schema(schema) if schema else reader).load()


def take(frame: DataFrame) -> None:
    """Have Spark read every row and column, and forget them."""
    frame.write.format("noop").mode("overwrite").save()


def follow(spark: SparkSession, url: str, streams: Sequence[str], folder: Path) -> None:
    """One micro-batch with all there is, from a checkpoint that is new."""
    reader = spark.readStream.format("penstock").options(url=url, streams=",".join(streams))
    follow_frame(reader.option("startingOffsets", "earliest").load(), folder)


def follow_frame(frame: DataFrame, folder: Path) -> None:
    checkpoint = folder / f"checkpoint-{time.monotonic_ns()}"
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def consume(url: str, stream: str, count: int) -> None:
    """The same messages with pika's blocking connection, as its users would: batched answers."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=_PREFETCH)
    seen = 0

    def on_message(_: Any, method: Any, properties: Any, body: bytes) -> None:
        nonlocal seen
        seen += 1
        if seen % (_PREFETCH // 2) == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)
        if seen == count:
            raise _Enough

    channel.basic_consume(stream, on_message, arguments={"x-stream-offset": "first"})
    try:
        channel.start_consuming()
    except _Enough:
        # Closing sends back what is prefetched, which streams refuse, and ends the connection for.
        with suppress(pika.exceptions.AMQPError):
            connection.close()


class _Enough(Exception):
    pass
