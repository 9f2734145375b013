"""Queues with a limit: what goes when one message too many comes."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import NackError

from tests.integration.amqp091.dialogue import count, get_bodies


def publish_all(channel: BlockingChannel, queue: str, bodies: Iterable[bytes]) -> None:
    for body in bodies:
        channel.basic_publish("", queue, body)


def test_the_oldest_goes_first(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True, arguments={"x-max-length": 2})

    publish_all(channel, name, [b"1", b"2", b"3", b"4"])

    assert get_bodies(channel, name) == [b"3", b"4"]


def test_only_messages_that_are_ready_count(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True, arguments={"x-max-length": 2})
    publish_all(channel, name, [b"1", b"2"])
    channel.basic_get(name)

    publish_all(channel, name, [b"3"])

    assert count(channel, name) == 2
    assert get_bodies(channel, name) == [b"2", b"3"]


def test_bodies_count_by_bytes(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True, arguments={"x-max-length-bytes": 10})

    publish_all(channel, name, [b"1" * 4, b"2" * 4, b"3" * 4])

    assert get_bodies(channel, name) == [b"2" * 4, b"3" * 4]


def test_a_body_over_the_limit_does_not_stay(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True, arguments={"x-max-length-bytes": 10})

    publish_all(channel, name, [b"1" * 4, b"2" * 11])

    assert get_bodies(channel, name) == []


def test_whichever_limit_is_reached_first_counts(channel: BlockingChannel, name: str) -> None:
    arguments = {"x-max-length": 3, "x-max-length-bytes": 100}
    channel.queue_declare(name, exclusive=True, arguments=arguments)

    publish_all(channel, name, [b"1", b"2", b"3", b"4"])
    assert get_bodies(channel, name) == [b"2", b"3", b"4"]

    publish_all(channel, name, [b"1" * 60, b"2" * 60])
    assert get_bodies(channel, name) == [b"2" * 60]


def test_a_queue_of_length_zero_keeps_nothing(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True, arguments={"x-max-length": 0})

    publish_all(channel, name, [b"1"])

    assert get_bodies(channel, name) == []


def test_a_queue_that_rejects_takes_again_when_there_is_room(
    channel: BlockingChannel, name: str
) -> None:
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.queue_declare(name, exclusive=True, arguments=arguments)
    publish_all(channel, name, [b"1"])
    with pytest.raises(NackError):
        publish_all(channel, name, [b"2"])

    assert get_bodies(channel, name) == [b"1"]
    publish_all(channel, name, [b"3"])

    assert get_bodies(channel, name) == [b"3"]


def test_one_queue_that_rejects_makes_a_nack_though_another_takes_it(
    channel: BlockingChannel, exchange: str, name: str
) -> None:
    full, roomy = f"{name}.full", f"{name}.roomy"
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.queue_declare(full, exclusive=True, arguments=arguments)
    channel.queue_declare(roomy, exclusive=True)
    for queue in (full, roomy):
        channel.queue_bind(queue, exchange)
    channel.basic_publish(exchange, "", b"1")

    with pytest.raises(NackError):
        channel.basic_publish(exchange, "", b"2")

    assert (get_bodies(channel, full), get_bodies(channel, roomy)) == ([b"1"], [b"1", b"2"])
