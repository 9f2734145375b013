"""CC and BCC: a publisher names more routing keys in the headers."""

from __future__ import annotations

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp091.dialogue import get_bodies, get_body


@pytest.fixture
def copies(channel: BlockingChannel, name: str) -> list[str]:
    queues = [f"{name}.{copy}" for copy in ("to", "cc", "bcc")]
    for queue in queues:
        channel.queue_declare(queue, exclusive=True)
    return queues


def test_cc_and_bcc_are_routing_keys_too(channel: BlockingChannel, copies: list[str]) -> None:
    to, cc, bcc = copies
    properties = pika.BasicProperties(headers={"CC": [cc], "BCC": [bcc]})

    channel.basic_publish("", to, b"letter", properties)

    assert [get_body(channel, queue) for queue in copies] == [b"letter"] * 3


def test_cc_is_seen_and_bcc_is_not(channel: BlockingChannel, copies: list[str]) -> None:
    to, cc, bcc = copies
    properties = pika.BasicProperties(headers={"CC": [cc], "BCC": [bcc], "a": 1})

    channel.basic_publish("", to, b"letter", properties)

    for queue in copies:
        method, seen, _ = channel.basic_get(queue, auto_ack=True)
        assert seen.headers == {"CC": [cc], "a": 1}
        assert method.routing_key == to


def test_a_queue_named_twice_gets_one(channel: BlockingChannel, copies: list[str]) -> None:
    to = copies[0]
    properties = pika.BasicProperties(headers={"CC": [to, to]})

    channel.basic_publish("", to, b"letter", properties)

    assert get_bodies(channel, to) == [b"letter"]


def test_copies_are_keys_for_any_exchange(channel: BlockingChannel, queue: str) -> None:
    channel.queue_bind(queue, "amq.topic", f"{queue}.*")
    properties = pika.BasicProperties(headers={"CC": [f"{queue}.copy"]})

    channel.basic_publish("amq.topic", "elsewhere", b"letter", properties)

    assert get_body(channel, queue) == b"letter"
