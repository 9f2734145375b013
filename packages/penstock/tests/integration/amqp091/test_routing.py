"""Which queues the direct, fanout and topic exchanges choose."""

from __future__ import annotations

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp091.dialogue import get_bodies


def test_direct_compares_the_whole_key(channel: BlockingChannel, queue: str) -> None:
    key = f"{queue}.key"
    channel.queue_bind(queue, "amq.direct", key)

    channel.basic_publish("amq.direct", key, b"same")
    channel.basic_publish("amq.direct", f"{key}.more", b"longer")
    channel.basic_publish("amq.direct", key.upper(), b"upper")

    assert get_bodies(channel, queue) == [b"same"]


def test_fanout_ignores_the_key(channel: BlockingChannel, exchange: str, name: str) -> None:
    queues = [f"{name}.{number}" for number in range(3)]
    for number, queue in enumerate(queues):
        channel.queue_declare(queue, exclusive=True)
        channel.queue_bind(queue, exchange, f"key-{number}")

    channel.basic_publish(exchange, "whatever", b"all")

    assert [get_bodies(channel, queue) for queue in queues] == [[b"all"]] * 3


@pytest.mark.parametrize(
    ("pattern", "key", "matches"),
    [
        ("a.b.c", "a.b.c", True),
        ("a.b.c", "a.b", False),
        ("a.*.c", "a.b.c", True),
        ("a.*.c", "a..c", True),
        ("a.*.c", "a.b.b.c", False),
        ("a.*", "a", False),
        ("*", "a", True),
        ("*", "", False),
        ("*", "a.b", False),
        ("#", "", True),
        ("#", "a.b.c", True),
        ("a.#", "a", True),
        ("a.#", "a.b.c", True),
        ("a.#", "ab", False),
        ("#.c", "a.b.c", True),
        ("#.c", "c", True),
        ("#.c", "c.d", False),
        ("a.#.z", "a.z", True),
        ("a.#.z", "a.b.c.z", True),
        ("a.#.z", "a.b.c", False),
        ("#.b.#", "a.b.c", True),
        ("#.b.#", "b", True),
        ("#.b.#", "a.c", False),
        ("*.#", "", False),
        ("*.#", "a.b", True),
        ("#.*", "a", True),
        ("#.#", "", True),
        ("a*", "ab", False),
        ("a*", "a*", True),
        ("", "", True),
        ("", "a", False),
        ("a.", "a.", True),
        ("a.", "a", False),
    ],
)
def test_topic_matches_words(
    channel: BlockingChannel, name: str, pattern: str, key: str, matches: bool
) -> None:
    channel.exchange_declare(name, "topic", auto_delete=True)
    channel.queue_declare(name, exclusive=True)
    channel.queue_bind(name, name, pattern)

    channel.basic_publish(name, key, b"hit")

    assert get_bodies(channel, name) == ([b"hit"] if matches else [])


def test_topic_forgets_an_unbound_pattern_and_keeps_the_others(
    channel: BlockingChannel, name: str
) -> None:
    channel.exchange_declare(name, "topic", auto_delete=True)
    channel.queue_declare(name, exclusive=True)
    channel.queue_bind(name, name, "a.#")
    channel.queue_bind(name, name, "a.*.c")

    channel.queue_unbind(name, name, "a.#")
    channel.basic_publish(name, "a.b", b"gone")
    channel.basic_publish(name, "a.b.c", b"kept")

    assert get_bodies(channel, name) == [b"kept"]


def test_a_key_may_hold_any_text(channel: BlockingChannel, queue: str) -> None:
    key = f"{queue}.ключ.鍵"
    channel.queue_bind(queue, "amq.topic", key)

    channel.basic_publish("amq.topic", key, b"hit")

    method, _, body = channel.basic_get(queue, auto_ack=True)
    assert (method.routing_key, body) == (key, b"hit")
