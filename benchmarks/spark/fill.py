"""Streams with something in them: reports of sensors, 59 bytes each, published with confirms.

RabbitMQ puts into a chunk what has come while it wrote the one before. So it is chance how many
reports lie in one, and what it costs to read them depends on it. Therefore streams that are to be
compared are filled at the same time, in turns, and it is counted how they lie.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from typing import Final

from penstock.client.amqp091.blocking_connection import BlockingConnection
from penstock.client.amqp091.bulk_publisher import BulkPublisher
from penstock.core.basic_properties import (
    PERSISTENT,
    BasicProperties,
    encode_header,
    encode_shortstr,
)
from penstock.wire.amqp091 import methods
from penstock.wire.amqp091.address import parse_amqp_url
from penstock_spark.rabbitmq.backend import ParallelRangeReader
from penstock_spark.rabbitmq.connection import StreamConnection
from penstock_spark.streams.backend import StreamRange

BODY_BYTES: Final = 59
SENSORS: Final = 1000
EXCHANGE: Final = "reports"
#: So many times it is each stream's turn: few enough that what it is given fills chunks.
_TURNS: Final = 100
_SILENCE_SECONDS: Final = 60.0


def fill(url: str, counts: Mapping[str, int]) -> None:
    """Declare the streams anew and put so many reports into each."""
    address = parse_amqp_url(url)
    with closing(BlockingConnection(address)) as connection:
        _declare(connection, counts)
    # As most publishers of small reports do it: persistent, and nothing more.
    header = encode_header(BasicProperties(delivery_mode=PERSISTENT), BODY_BYTES)
    keys = {
        stream: [
            encode_shortstr(EXCHANGE, "") + encode_shortstr(f"{stream}.{sensor:04d}.report", "")
            for sensor in range(SENSORS)
        ]
        for stream in counts
    }
    with BulkPublisher(address, mandatory=True, retry_seconds=60.0) as publisher:
        for stream, numbers in _turns(counts):
            for number in numbers:
                body = (b"%d" % number).ljust(BODY_BYTES, b".")
                publisher.publish(keys[stream][number % SENSORS], header, body)
        publisher.flush()


def reports_a_chunk(url: str, stream_port: int, counts: Mapping[str, int]) -> float:
    """How they lie in RabbitMQ's streams, on average."""
    address = parse_amqp_url(url)
    ranges = [StreamRange(stream, 0, count) for stream, count in counts.items()]
    with closing(
        ParallelRangeReader(lambda _: StreamConnection(address, stream_port), ranges)
    ) as lanes:
        chunks = sum(len(contents) for _, contents in lanes.chunks(_SILENCE_SECONDS))
    return sum(counts.values()) / chunks


def _declare(connection: BlockingConnection, streams: Iterable[str]) -> None:
    channel = connection.open_channel()
    connection.call(channel, methods.EXCHANGE_DECLARE, exchange=EXCHANGE, type="topic")
    for stream in streams:
        connection.call(channel, methods.QUEUE_DELETE, queue=stream)
        connection.call(
            channel,
            methods.QUEUE_DECLARE,
            queue=stream,
            durable=True,
            arguments={"x-queue-type": "stream"},
        )
        key = f"{stream}.#"
        connection.call(
            channel, methods.QUEUE_BIND, queue=stream, exchange=EXCHANGE, routing_key=key
        )


def _turns(counts: Mapping[str, int]) -> Iterator[tuple[str, range]]:
    """Who is given which of its reports; all are done at about the same time."""
    for turn in range(_TURNS):
        for stream, count in counts.items():
            yield stream, range(count * turn // _TURNS, count * (turn + 1) // _TURNS)
