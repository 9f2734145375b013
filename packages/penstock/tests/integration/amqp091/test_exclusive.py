"""An exclusive queue belongs to its connection: nobody else touches it, and it goes with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp091.conftest import Connect
from tests.integration.amqp091.dialogue import channel_error, exists, get_body, until

Deed = Callable[[BlockingChannel, str], Any]

DEEDS: dict[str, Deed] = {
    "declare": lambda channel, queue: channel.queue_declare(queue, exclusive=True),
    "declare passively": lambda channel, queue: channel.queue_declare(queue, passive=True),
    "get": lambda channel, queue: channel.basic_get(queue),
    "consume": lambda channel, queue: channel.basic_consume(queue, lambda *_: None),
    "bind": lambda channel, queue: channel.queue_bind(queue, "amq.direct", "key"),
    "purge": lambda channel, queue: channel.queue_purge(queue),
    "delete": lambda channel, queue: channel.queue_delete(queue),
}


@pytest.mark.parametrize("deed", DEEDS.values(), ids=DEEDS.keys())
def test_another_connection_is_locked_out(queue: str, connect: Connect, deed: Deed) -> None:
    stranger = connect().channel()

    with channel_error(
        405, f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{queue}' in vhost"
    ):
        deed(stranger, queue)


def test_another_connection_may_publish_to_it(
    channel: BlockingChannel, queue: str, connect: Connect
) -> None:
    stranger = connect().channel()
    stranger.confirm_delivery()

    stranger.basic_publish("", queue, b"hello")

    assert get_body(channel, queue) == b"hello"


def test_another_channel_of_the_connection_may_use_it(
    connection: pika.BlockingConnection, queue: str
) -> None:
    connection.channel().queue_declare(queue, exclusive=True)


def test_it_goes_when_the_connection_closes(connect: Connect, name: str) -> None:
    owner = connect()
    owner.channel().queue_declare(name, exclusive=True)

    owner.close()

    until(lambda: not exists(connect, name))


def test_it_stays_when_only_the_channel_closes(
    connection: pika.BlockingConnection, name: str
) -> None:
    channel = connection.channel()
    channel.queue_declare(name, exclusive=True)

    channel.close()

    connection.channel().queue_declare(name, passive=True)


def test_an_open_queue_cannot_become_exclusive(
    channel: BlockingChannel, connect: Connect, name: str
) -> None:
    channel.queue_declare(name)

    with channel_error(405, "RESOURCE_LOCKED"):
        channel.queue_declare(name, exclusive=True)
    connect().channel().queue_delete(name)
