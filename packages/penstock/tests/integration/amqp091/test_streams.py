"""Streams: append-only, read by many, each from where it likes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp091.conftest import Connect
from tests.integration.amqp091.dialogue import Arrival, Inbox, channel_error, connection_error

BODIES = [b"%d" % number for number in range(5)]


@pytest.fixture
def stream(channel: BlockingChannel, connect: Connect, name: str) -> Iterator[str]:
    """A stream that holds BODIES at offsets 0 to 4."""
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    for body in BODIES:
        channel.basic_publish("", name, body)
    yield name
    connect().channel().queue_delete(name)


def read(
    channel: BlockingChannel, stream: str, offset: object = None, prefetch: int = 100
) -> Inbox:
    channel.basic_qos(prefetch_count=prefetch)
    arguments = {} if offset is None else {"x-stream-offset": offset}
    return Inbox(channel, stream, arguments=arguments)


def offsets(arrivals: list[Arrival]) -> list[int]:
    return [arrival.headers["x-stream-offset"] for arrival in arrivals]


def test_reading_leaves_everything_in_place(
    channel: BlockingChannel, plain_channel: BlockingChannel, stream: str
) -> None:
    for reader in (channel, plain_channel):
        assert read(reader, stream, "first").take_bodies(5) == BODIES


def test_every_delivery_carries_its_offset(channel: BlockingChannel, stream: str) -> None:
    assert offsets(read(channel, stream, "first").take(5)) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("offset", "beginning"), [(0, 0), (3, 3), ("first", 0), ("1h", 0)])
def test_a_reader_chooses_where_to_begin(
    channel: BlockingChannel, stream: str, offset: object, beginning: int
) -> None:
    inbox = read(channel, stream, offset)

    assert inbox.take_bodies(5 - beginning) == BODIES[beginning:]


def test_last_begins_with_the_last_chunk(channel: BlockingChannel, stream: str) -> None:
    assert read(channel, stream, "last").take_bodies(1)[0] in BODIES


@pytest.mark.parametrize("offset", ["next", None, 5])
def test_a_reader_may_wait_for_what_is_to_come(
    channel: BlockingChannel, stream: str, offset: object
) -> None:
    inbox = read(channel, stream, offset)

    channel.basic_publish("", stream, b"new")

    (arrival,) = inbox.take(1)
    assert (arrival.body, arrival.headers["x-stream-offset"]) == (b"new", 5)


@pytest.mark.parametrize(
    ("when", "bodies"),
    [
        (lambda: datetime.now(UTC) - timedelta(hours=1), [*BODIES, b"new"]),
        (lambda: datetime.now(UTC) + timedelta(hours=1), [b"new"]),
    ],
    ids=["past", "future"],
)
def test_a_reader_may_begin_at_a_time(
    channel: BlockingChannel, stream: str, when: Callable[[], datetime], bodies: list[bytes]
) -> None:
    inbox = read(channel, stream, when().replace(tzinfo=None))

    channel.basic_publish("", stream, b"new")

    assert inbox.take_bodies(len(bodies)) == bodies


def test_a_reader_follows_after_catching_up(channel: BlockingChannel, stream: str) -> None:
    inbox = read(channel, stream, "first")
    inbox.take(5)

    channel.basic_publish("", stream, b"live")

    assert offsets(inbox.take(1)) == [5]


def test_acknowledgements_move_the_window_and_nothing_else(
    channel: BlockingChannel, stream: str
) -> None:
    inbox = read(channel, stream, "first", prefetch=2)
    received: list[bytes] = []

    while len(received) < 5:
        (arrival,) = inbox.take(1)
        received.append(arrival.body)
        channel.basic_ack(arrival.tag)

    assert received == BODIES


def test_without_acknowledgements_the_window_stays(channel: BlockingChannel, stream: str) -> None:
    inbox = read(channel, stream, "first", prefetch=2)
    inbox.take(2)

    assert inbox.settle() == []


def test_headers_and_properties_are_kept(channel: BlockingChannel, stream: str) -> None:
    inbox = read(channel, stream, "next")
    properties = pika.BasicProperties(headers={"a": 1}, message_id="m", content_type="text/plain")

    channel.basic_publish("", stream, b"new", properties)

    (arrival,) = inbox.take(1)
    assert arrival.headers == {"a": 1, "x-stream-offset": 5}
    assert (arrival.properties.message_id, arrival.properties.content_type) == ("m", "text/plain")


def test_a_message_keeps_its_exchange_and_key(channel: BlockingChannel, stream: str) -> None:
    channel.queue_bind(stream, "amq.topic", f"{stream}.#")
    inbox = read(channel, stream, "next")

    channel.basic_publish("amq.topic", f"{stream}.key", b"new")

    (arrival,) = inbox.take(1)
    assert (arrival.method.exchange, arrival.method.routing_key) == ("amq.topic", f"{stream}.key")


def test_an_expiration_means_nothing_here(channel: BlockingChannel, stream: str) -> None:
    channel.basic_publish("", stream, b"kept", pika.BasicProperties(expiration="0"))

    assert read(channel, stream, "first").take_bodies(6)[-1] == b"kept"


def test_a_transaction_appends_at_the_commit(
    plain_channel: BlockingChannel, channel: BlockingChannel, stream: str
) -> None:
    plain_channel.tx_select()
    plain_channel.basic_publish("", stream, b"new")
    plain_channel.tx_commit()

    assert read(channel, stream, "first").take_bodies(6)[-1] == b"new"


def test_a_large_message_arrives_whole(channel: BlockingChannel, stream: str) -> None:
    inbox = read(channel, stream, "next")
    body = bytes(range(256)) * 4096

    channel.basic_publish("", stream, body)

    assert inbox.take_bodies(1) == [body]


def test_reading_without_a_prefetch_is_a_406(channel: BlockingChannel, stream: str) -> None:
    complaint = f"consumer prefetch count is not set for 'queue '{stream}' in vhost '/''"
    with channel_error(406, f"PRECONDITION_FAILED - {complaint}"):
        Inbox(channel, stream, arguments={"x-stream-offset": "first"})


def test_an_offset_that_is_none_is_a_406(channel: BlockingChannel, stream: str) -> None:
    with channel_error(406, f"invalid arg 'x-stream-offset' for queue '{stream}' in vhost '/'"):
        read(channel, stream, "5 minutes")


def test_reading_without_acknowledging_is_not_implemented(
    channel: BlockingChannel, stream: str
) -> None:
    channel.basic_qos(prefetch_count=1)
    complaint = "NOT_IMPLEMENTED - automatic acknowledgement not supported by stream queues"
    with connection_error(540, complaint):
        Inbox(channel, stream, auto_ack=True)


@pytest.mark.parametrize(
    ("deed", "method"), [("basic_get", "basic.get"), ("queue_purge", "queue.purge")]
)
def test_what_takes_messages_out_is_not_implemented(
    channel: BlockingChannel, stream: str, deed: str, method: str
) -> None:
    with connection_error(540, f"NOT_IMPLEMENTED - {method} not supported by stream queues"):
        getattr(channel, deed)(stream)


@pytest.mark.parametrize("requeue", [True, False])
def test_rejecting_is_not_implemented(channel: BlockingChannel, stream: str, requeue: bool) -> None:
    (arrival,) = read(channel, stream, "first", prefetch=1).take(1)

    with connection_error(540, "NOT_IMPLEMENTED - basic.nack and basic.reject not supported"):
        channel.basic_nack(arrival.tag, requeue=requeue)
        channel.queue_declare("", exclusive=True)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({}, "received none but current is the value 'stream' of type 'longstr'"),
        ({"x-queue-type": "classic"}, "inequivalent arg 'x-queue-type'"),
        (
            {"x-queue-type": "stream", "x-max-age": "1h"},
            "inequivalent arg 'x-max-age'",
        ),
    ],
)
def test_declaring_it_otherwise_is_a_406(
    channel: BlockingChannel, stream: str, arguments: dict[str, Any], complaint: str
) -> None:
    with channel_error(406, complaint):
        channel.queue_declare(stream, durable=True, arguments=arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-max-age": "1h"},
        {"x-max-length-bytes": 5_000_000},
        {"x-stream-max-segment-size-bytes": 1_000_000},
    ],
)
def test_retention_is_an_argument(
    channel: BlockingChannel, name: str, arguments: dict[str, Any]
) -> None:
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream", **arguments})

    channel.queue_delete(name)


def test_retention_by_size_drops_whole_segments_from_the_front(
    channel: BlockingChannel, name: str
) -> None:
    arguments = {
        "x-queue-type": "stream",
        "x-max-length-bytes": 1_000_000,
        "x-stream-max-segment-size-bytes": 250_000,
    }
    channel.queue_declare(name, durable=True, arguments=arguments)
    body = b"x" * 50_000

    for _ in range(60):
        channel.basic_publish("", name, body)
    (first,) = read(channel, name, "first", prefetch=1).take(1)

    assert 0 < first.headers["x-stream-offset"] < 60
    channel.queue_delete(name)
