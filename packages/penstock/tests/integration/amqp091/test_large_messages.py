"""Messages larger than a frame, in every size around the seams."""

from __future__ import annotations

import random
from typing import Any

import pika
import pytest
from pika import spec
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp091.conftest import Connect
from tests.integration.amqp091.dialogue import Inbox
from tests.integration.amqp091.wire import BODY as BODY_FRAME
from tests.integration.amqp091.wire import (
    Wire,
    frame_bytes,
    header_bytes,
    message_bytes,
    method_bytes,
)

MIB = 1 << 20
BODY = random.Random(42).randbytes(2 * MIB + 1)


@pytest.mark.parametrize("frame_max", [4096, 131072])
@pytest.mark.parametrize("size", [4088, 4089, 131064, 131065, 262144, 2 * MIB, 2 * MIB + 1])
def test_a_large_body_arrives_whole(connect: Connect, name: str, frame_max: int, size: int) -> None:
    channel = connect(frame_max=frame_max).channel()
    channel.queue_declare(name, exclusive=True)
    inbox = Inbox(channel, name, auto_ack=True)

    channel.basic_publish("", name, BODY[:size])

    assert inbox.take_bodies(1)[0] == BODY[:size]


def test_frames_fit_the_receivers_limit_not_the_senders(connect: Connect, name: str) -> None:
    receiver = connect(frame_max=4096).channel()
    receiver.queue_declare(name, exclusive=True)
    sender = connect(frame_max=131072).channel()

    sender.basic_publish("", name, BODY[:MIB])
    sender.connection.process_data_events(0)

    assert Inbox(receiver, name, auto_ack=True).take_bodies(1) == [BODY[:MIB]]


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("mode", [1, 2])
def test_large_and_small_keep_their_order(
    channel: BlockingChannel, name: str, durable: bool, mode: int
) -> None:
    channel.queue_declare(name, durable=durable)
    bodies = [b"a", BODY[:MIB], b"b", BODY[: 300 * 1024], BODY[:4096], b"c"]

    for body in bodies:
        channel.basic_publish("", name, body, pika.BasicProperties(delivery_mode=mode))

    assert Inbox(channel, name, auto_ack=True).take_bodies(len(bodies)) == bodies
    channel.queue_delete(name)


def test_a_large_message_comes_again_after_a_requeue(channel: BlockingChannel, queue: str) -> None:
    channel.basic_publish("", queue, BODY[:MIB])
    channel.basic_nack(channel.basic_get(queue)[0].delivery_tag, requeue=True)

    method, _, body = channel.basic_get(queue, auto_ack=True)

    assert (method.redelivered, body == BODY[:MIB]) == (True, True)


def test_a_large_message_fans_out(channel: BlockingChannel, exchange: str, name: str) -> None:
    inboxes: list[Inbox] = []
    for number in range(3):
        channel.queue_declare(f"{name}.{number}", exclusive=True)
        channel.queue_bind(f"{name}.{number}", exchange)
        inboxes.append(Inbox(channel, f"{name}.{number}", auto_ack=True))

    channel.basic_publish(exchange, "", BODY[:MIB])

    assert all(inbox.take_bodies(1) == [BODY[:MIB]] for inbox in inboxes)


def test_a_large_message_is_returned_whole(plain_channel: BlockingChannel, name: str) -> None:
    returned: list[Any] = []
    plain_channel.add_on_return_callback(lambda _, *message: returned.append(message))

    plain_channel.basic_publish("", name, BODY[:MIB], mandatory=True)
    while not returned:
        plain_channel.connection.process_data_events(1)

    assert returned[0][2] == BODY[:MIB]


def test_a_large_message_is_dead_lettered_whole(channel: BlockingChannel, name: str) -> None:
    dead = channel.queue_declare("", exclusive=True).method.queue
    arguments = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead,
        "x-message-ttl": 0,
    }
    channel.queue_declare(name, exclusive=True, arguments=arguments)

    channel.basic_publish("", name, BODY[:MIB])

    assert Inbox(channel, dead, auto_ack=True).take_bodies(1) == [BODY[:MIB]]


def test_another_channel_does_not_wait_for_a_large_message(
    open_wire: Wire, channel: BlockingChannel, queue: str
) -> None:
    inbox = Inbox(channel, queue, auto_ack=True)
    open_wire.open_channel(2)
    half = frame_bytes(BODY_FRAME, 1, BODY[:65536])
    publish = method_bytes(1, spec.Basic.Publish(routing_key=queue))

    open_wire.send(publish + header_bytes(1, MIB) + half * 8)
    open_wire.send(message_bytes(2, b"small", routing_key=queue))
    assert inbox.take_bodies(1) == [b"small"]
    open_wire.send(half * 8)

    assert inbox.take_bodies(1) == [BODY[:65536] * 16]


@pytest.mark.parametrize("channels", [2, 40])
def test_large_messages_may_come_piece_by_piece_on_many_channels(
    open_wire: Wire, channel: BlockingChannel, queue: str, channels: int
) -> None:
    inbox = Inbox(channel, queue, auto_ack=True)
    numbers = range(1, channels + 1)
    for number in numbers[1:]:
        open_wire.open_channel(number)
    for number in numbers:
        publish = method_bytes(number, spec.Basic.Publish(routing_key=queue))
        open_wire.send(publish + header_bytes(number, 300_000))
    for at in range(0, 290_000, 10_000):
        for number in numbers:
            open_wire.send(frame_bytes(BODY_FRAME, number, BODY[at : at + 10_000]))

    for number in numbers:
        open_wire.send(frame_bytes(BODY_FRAME, number, BODY[290_000:300_000]))
        assert inbox.take_bodies(1) == [BODY[:300_000]]
