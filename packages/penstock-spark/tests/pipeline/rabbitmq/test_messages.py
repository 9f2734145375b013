"""What RabbitMQ hands out as chunks is what it delivers over AMQP, whatever was published."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import numpy as np
import pika
import pytest

from penstock.wire.amqp091.address import parse_amqp_url
from penstock.wire.amqp10.message import Amqp10Message, AmqpValue, encode_message
from penstock_spark.connector.columns import MessageColumns
from penstock_spark.rabbitmq.chunks import MessageBlock, UnsupportedChunk, record_batch
from penstock_spark.streams.backend import StreamBackend, StreamRange
from penstock_spark.streams.endpoint import find_endpoint
from tests.peers import RabbitMQ
from tests.pipeline.given import channel, declare

COLUMNS = ("offset", "exchange", "routing_key", "content_type", "message_id", "headers", "body")

SHAPES: list[dict[str, Any]] = [
    {},
    {"content_type": "application/json", "message_id": "m-1"},
    {"headers": {"word": "x", "number": 1, "large": 2**40, "less": -5, "yes": True, "no": False}},
    {"headers": {"nothing": None, "bytes": b"\x00\xff", "empty": ""}, "delivery_mode": 2},
    {"headers": {"moment": dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)}},
    {"headers": {"left": [1, 2], "out": {"x": 1}, "kept": "k"}},
    {"priority": 5, "expiration": "1000", "correlation_id": "c", "reply_to": "r", "type": "t"},
    {"app_id": "a", "user_id": "guest", "content_encoding": "gzip", "timestamp": 1_700_000_000},
]


def rows(streams: StreamBackend, name: str, count: int) -> Iterator[dict[str, Any]]:
    columns = MessageColumns(COLUMNS)
    for batch in streams.read(StreamRange(name, 0, count)):
        yield from columns.build(batch, name).to_pylist()


def block_of(*messages: bytes) -> MessageBlock:
    sizes = np.array([len(each) for each in messages])
    stops = np.cumsum(sizes)
    numbers = np.arange(len(messages))
    return MessageBlock(numbers, numbers, b"".join(messages), stops - sizes, stops)


@pytest.mark.peer
def test_both_ways_show_the_same(plugged_rabbitmq: RabbitMQ, name: str) -> None:
    url = plugged_rabbitmq.url
    declare(url, name)
    bodies = [b"", b"x", b"four", b"y" * 255, b"z" * 256, b"w" * 70_000]
    with channel(url) as opened:
        for number, shape in enumerate(SHAPES * 3):
            properties = pika.BasicProperties(**shape)
            opened.basic_publish("", name, bodies[number % len(bodies)], properties)
    address, count = parse_amqp_url(url), len(SHAPES) * 3

    chunks = list(
        rows(find_endpoint(address, None, plugged_rabbitmq.stream_port).open(), name, count)
    )
    amqp = list(rows(find_endpoint(address, None, 0).open(), name, count))

    assert chunks == amqp
    assert len(chunks) == count


def test_the_time_of_a_message_is_its_chunks() -> None:
    block = block_of(encode_message(Amqp10Message(b"one")), encode_message(Amqp10Message(b"two")))

    batch = record_batch(block, StreamRange("any", 0, 2))

    assert batch is not None
    assert batch.column("timestamp").cast("int64").to_pylist() == [0, 1]
    assert batch.column("body").to_pylist() == [b"one", b"two"]


def test_only_what_is_wanted_is_taken() -> None:
    block = block_of(*(encode_message(Amqp10Message(b"%d" % number)) for number in range(9)))

    batch = record_batch(block, StreamRange("any", 3, 5))

    assert batch is not None
    assert batch.column("body").to_pylist() == [b"3", b"4"]
    assert record_batch(block, StreamRange("any", 20, 30)) is None


@pytest.mark.parametrize(
    "message",
    [
        encode_message(Amqp10Message(AmqpValue("text"))),
        encode_message(Amqp10Message(b"two")) + encode_message(Amqp10Message(b"parts")),
        encode_message(Amqp10Message(b"x", application_properties={"a": ["list"]})),
        encode_message(Amqp10Message(b"cut short"))[:-1],
        b"no message at all",
        b"",
    ],
    ids=["a value", "two parts", "a list", "cut short", "nonsense", "nothing"],
)
def test_what_amqp_0_9_1_does_not_publish_is_left_to_amqp(message: bytes) -> None:
    ordinary = encode_message(Amqp10Message(b"ordinary"))

    with pytest.raises(UnsupportedChunk):
        record_batch(block_of(ordinary, message, ordinary), StreamRange("any", 0, 3))
