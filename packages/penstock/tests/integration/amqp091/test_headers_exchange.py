"""Which messages a headers exchange takes for a binding's arguments."""

from __future__ import annotations

from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp091.dialogue import channel_error, get_bodies

Table = dict[str, Any]


@pytest.mark.parametrize(
    ("arguments", "headers", "matches"),
    [
        ({"x-match": "all", "a": "1", "b": "2"}, {"a": "1", "b": "2", "c": "3"}, True),
        ({"x-match": "all", "a": "1", "b": "2"}, {"a": "1"}, False),
        ({"x-match": "all", "a": "1"}, {"a": "2"}, False),
        ({"x-match": "all", "a": 1}, {"a": "1"}, False),
        ({"x-match": "all", "a": None}, {"a": "anything"}, True),
        ({"x-match": "all", "a": None}, {"b": "anything"}, False),
        ({"x-match": "all"}, {}, True),
        ({"x-match": "all"}, {"a": "1"}, True),
        ({"x-match": "any", "a": "1", "b": "2"}, {"b": "2"}, True),
        ({"x-match": "any", "a": "1", "b": "2"}, {"b": "1"}, False),
        ({"x-match": "any", "a": None}, {"a": "9"}, True),
        ({"x-match": "any"}, {"a": "1"}, False),
        ({"a": "1", "b": "2"}, {"a": "1"}, False),
        ({"a": "1", "b": "2"}, {"a": "1", "b": "2"}, True),
        ({"x-match": "all", "x-a": "1", "b": "2"}, {"b": "2"}, True),
        ({"x-match": "any", "x-a": "1"}, {"x-a": "1"}, False),
        ({"x-match": "all-with-x", "x-a": "1", "b": "2"}, {"b": "2"}, False),
        ({"x-match": "all-with-x", "x-a": "1", "b": "2"}, {"x-a": "1", "b": "2"}, True),
        ({"x-match": "any-with-x", "x-a": "1", "b": "2"}, {"x-a": "1"}, True),
        ({"x-match": "any-with-x", "x-a": "1", "b": "2"}, {"x-a": "2"}, False),
        ({"x-match": "all", "a": True}, {"a": True}, True),
        ({"x-match": "all", "a": True}, {"a": False}, False),
        ({"x-match": "all", "a": [1, 2]}, {"a": [1, 2]}, True),
    ],
)
def test_a_binding_is_compared_with_the_headers(
    channel: BlockingChannel, name: str, arguments: Table, headers: Table, matches: bool
) -> None:
    channel.exchange_declare(name, "headers", auto_delete=True)
    channel.queue_declare(name, exclusive=True)
    channel.queue_bind(name, name, "ignored", arguments)

    channel.basic_publish(name, "key", b"hit", pika.BasicProperties(headers=headers))

    assert get_bodies(channel, name) == ([b"hit"] if matches else [])


def test_a_message_without_headers_matches_an_empty_binding(
    channel: BlockingChannel, name: str
) -> None:
    channel.exchange_declare(name, "headers", auto_delete=True)
    channel.queue_declare(name, exclusive=True)
    channel.queue_bind(name, name, "", {})

    channel.basic_publish(name, "key", b"hit")

    assert get_bodies(channel, name) == [b"hit"]


@pytest.mark.parametrize("value", ["some", 5])
def test_an_unknown_x_match_is_a_406(channel: BlockingChannel, queue: str, value: object) -> None:
    with channel_error(406, "PRECONDITION_FAILED - Invalid x-match field "):
        channel.queue_bind(queue, "amq.headers", "", {"x-match": value})
