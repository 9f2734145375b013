"""What tests of the connector begin with: streams with messages in them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

from penstock.client.amqp091.bulk_publisher import BulkPublisher
from penstock.core.basic_properties import BasicProperties, encode_header, encode_shortstr
from penstock.wire.amqp091.address import parse_amqp_url
from penstock_spark.streams.endpoint import find_endpoint

STREAM = {"x-queue-type": "stream"}
#: Of a stream that keeps next to nothing.
SMALL = {"x_stream_max_segment_size_bytes": 2000, "x_max_length_bytes": 4000}


@contextmanager
def channel(url: str) -> Iterator[BlockingChannel]:
    """A channel that confirms what is published on it."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        opened = connection.channel()
        opened.confirm_delivery()
        yield opened
    finally:
        connection.close()


def declare(url: str, name: str, **arguments: Any) -> None:
    with channel(url) as opened:
        given = {key.replace("_", "-"): value for key, value in arguments.items()}
        opened.queue_declare(name, durable=True, arguments=STREAM | given)


def delete(url: str, name: str) -> None:
    with channel(url) as opened:
        opened.queue_delete(name)


def publish(url: str, name: str, bodies: Iterable[bytes]) -> None:
    """Returns when the broker has them all safe."""
    route = b"\x00" + encode_shortstr(name, "routing_key")
    with BulkPublisher(parse_amqp_url(url), mandatory=True, retry_seconds=60.0) as publisher:
        for number, body in enumerate(bodies):
            publisher.publish(
                route, encode_header(BasicProperties(message_id=f"{number}"), len(body)), body
            )
        publisher.flush()


def stream(url: str, name: str, count: int, **arguments: Any) -> None:
    """A stream of numbered messages."""
    declare(url, name, **arguments)
    publish(url, name, numbered(count))


def overflow(url: str, name: str, beyond: int) -> None:
    """Publish until retention has taken everything up to an offset.

    It ends just after retention has taken something, so that its timer finds nothing more to take
    while a test reads the stream.
    """
    for _ in range(50):
        publish(url, name, [b"x" * 500] * 100)
        if (first := first_offset(url, name)) > beyond:
            break
    for _ in range(50):
        publish(url, name, [b"left"] * 5)
        if first_offset(url, name) > first:
            return
    raise AssertionError("retention takes nothing")


def first_offset(url: str, name: str) -> int:
    with closing(find_endpoint(parse_amqp_url(url), None).open()) as streams:
        return streams.first_offsets([name])[name] or 0


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"message %d" % number for number in range(first, first + count)]


def taken(url: str, queue: str) -> list[tuple[Any, Any, bytes]]:
    """All that is in a queue: method, properties, body of each."""
    found = []
    with channel(url) as opened:
        while (got := opened.basic_get(queue, auto_ack=True))[0] is not None:
            found.append(got)
    return found
