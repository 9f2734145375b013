"""A stream whose beginning is in an object store reads like any other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pika

from penstock.core.config import BrokerSettings
from penstock.destinations.stream import Stream
from penstock.server import Broker
from penstock_spark.connector.batch_reader import BatchReader
from penstock_spark.connector.columns import MessageColumns
from penstock_spark.connector.options import read_options

SEGMENT_BYTES = 64 * 1024
COUNT = 150


def publish(port: int) -> None:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))
    channel = connection.channel()
    arguments = {
        "x-queue-type": "stream",
        "x-stream-max-segment-size-bytes": SEGMENT_BYTES,
        "x-local-max-length-bytes": SEGMENT_BYTES,
    }
    channel.queue_declare("s", durable=True, arguments=arguments)
    channel.confirm_delivery()
    for number in range(COUNT):
        channel.basic_publish("", "s", b"%d " % number + bytes(3000))
    connection.close()


def read(url: str) -> list[int]:
    options = read_options({"url": url, "streams": "s", "minPartitions": "3"}, streaming=False)
    reader = BatchReader(options, MessageColumns(("offset", "body")))
    return [
        int(body.split()[0])
        for partition in reader.partitions()
        for batch in reader.read(partition)
        for body in batch.column("body").to_pylist()
    ]


async def test_spark_reads_remote_segments(tmp_path: Path) -> None:
    settings = BrokerSettings(
        listen=["amqp://127.0.0.1:0", "http://127.0.0.1:0"], tiered_storage=str(tmp_path / "store")
    )
    async with Broker(settings, data=tmp_path / "data") as broker:
        amqp = broker.addresses[0]
        await asyncio.to_thread(publish, int(amqp.rpartition(":")[2]))
        stream = broker.vhosts["/"].queue("s")
        assert isinstance(stream, Stream)
        async with asyncio.timeout(20):
            while stream.log.segments.at(0)[0].is_local:  # type: ignore[index]
                stream.tier.tick()
                await asyncio.sleep(0.02)
        found = await asyncio.to_thread(read, amqp.replace("://", "://guest:guest@"))
        assert found == list(range(COUNT))
