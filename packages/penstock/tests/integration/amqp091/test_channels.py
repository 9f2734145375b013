"""Channels: many on one connection, each with its own fate."""

from __future__ import annotations

import pika
from pika import spec
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp091.dialogue import (
    Inbox,
    channel_error,
    connection_error,
    get_body,
)
from tests.integration.amqp091.wire import Wire, method_bytes


def test_an_error_on_one_channel_leaves_the_others_alone(
    connection: pika.BlockingConnection, channel: BlockingChannel, queue: str, name: str
) -> None:
    bystander = connection.channel()
    inbox = Inbox(bystander, queue, auto_ack=True)

    with channel_error(404):
        connection.channel().queue_declare(f"{name}.missing", passive=True)
    channel.basic_publish("", queue, b"still here")

    assert inbox.take_bodies(1) == [b"still here"]


def test_a_closed_channels_number_can_be_used_again(
    connection: pika.BlockingConnection, name: str
) -> None:
    for _ in range(3):
        channel = connection.channel(5)
        with channel_error(404):
            channel.queue_declare(name, passive=True)

    assert connection.channel(5).is_open


def test_what_comes_after_an_error_is_ignored_until_the_close_is_answered(
    open_wire: Wire, name: str
) -> None:
    open_wire.send(method_bytes(1, spec.Queue.Declare(queue=name, passive=True)))
    open_wire.send(method_bytes(1, spec.Queue.Declare(queue=name, exclusive=True)))

    close = open_wire.receive_method()
    open_wire.send(method_bytes(1, spec.Channel.CloseOk()))
    open_wire.open_channel()
    again = open_wire.call(1, spec.Queue.Declare(queue=name, passive=True))

    assert (close.NAME, close.reply_code) == ("Channel.Close", 404)
    assert (close.class_id, close.method_id) == (50, 10)
    assert (again.NAME, again.reply_code) == ("Channel.Close", 404)


def test_closing_a_channel_is_answered(open_wire: Wire) -> None:
    answer = open_wire.call(1, spec.Channel.Close(200, "bye", 0, 0))

    assert answer.NAME == "Channel.CloseOk"
    open_wire.open_channel()


def test_hundreds_of_channels_work_at_once(connection: pika.BlockingConnection, queue: str) -> None:
    channels = [connection.channel() for _ in range(300)]

    for number, channel in enumerate(channels):
        channel.basic_publish("", queue, b"%d" % number)
    reader = connection.channel()
    inbox = Inbox(reader, queue, auto_ack=True)

    assert sorted(inbox.take_bodies(300)) == sorted(b"%d" % number for number in range(300))


def test_the_highest_channel_number_works(connection: pika.BlockingConnection) -> None:
    channel = connection.channel(2047)

    assert get_body(channel, channel.queue_declare("", exclusive=True).method.queue) is None


def test_flow_may_be_asked_on(plain_channel: BlockingChannel) -> None:
    assert plain_channel.flow(True) is True


def test_flow_off_is_not_implemented(plain_channel: BlockingChannel) -> None:
    with connection_error(540, "NOT_IMPLEMENTED - active=false"):
        plain_channel.flow(False)


def test_no_wait_is_not_answered(open_wire: Wire, name: str) -> None:
    open_wire.send(
        method_bytes(1, spec.Queue.Declare(queue=name, exclusive=True, nowait=True))
        + method_bytes(1, spec.Queue.Bind(queue=name, exchange="amq.fanout", nowait=True))
        + method_bytes(1, spec.Basic.Consume(queue=name, consumer_tag="c", nowait=True))
        + method_bytes(1, spec.Basic.Cancel(consumer_tag="c", nowait=True))
        + method_bytes(1, spec.Confirm.Select(nowait=True))
        + method_bytes(1, spec.Queue.Purge(queue=name, nowait=True))
        + method_bytes(1, spec.Queue.Delete(queue=name, nowait=True))
    )

    open_wire.ping()
