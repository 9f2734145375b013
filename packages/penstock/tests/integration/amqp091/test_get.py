"""basic.get: one message at a time."""

from __future__ import annotations

import pika
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp091.dialogue import channel_error


def test_an_empty_queue_says_so(channel: BlockingChannel, queue: str) -> None:
    assert channel.basic_get(queue) == (None, None, None)


def test_it_tells_how_many_are_left(channel: BlockingChannel, queue: str) -> None:
    for _ in range(3):
        channel.basic_publish("", queue, b"")

    assert [channel.basic_get(queue)[0].message_count for _ in range(3)] == [2, 1, 0]


def test_it_brings_the_properties_and_the_route(channel: BlockingChannel, queue: str) -> None:
    properties = pika.BasicProperties(content_type="text/plain", headers={"a": 1}, type="t")
    channel.basic_publish("", queue, b"body", properties)

    method, brought, body = channel.basic_get(queue)

    assert (method.exchange, method.routing_key, method.redelivered) == ("", queue, False)
    assert (brought.content_type, brought.headers, brought.type) == ("text/plain", {"a": 1}, "t")
    assert body == b"body"


def test_a_missing_queue_is_a_404(channel: BlockingChannel, name: str) -> None:
    with channel_error(404, f"NOT_FOUND - no queue '{name}' in vhost '/'"):
        channel.basic_get(name)


def test_an_empty_body_is_a_message(channel: BlockingChannel, queue: str) -> None:
    channel.basic_publish("", queue, b"")

    assert channel.basic_get(queue)[2] == b""
