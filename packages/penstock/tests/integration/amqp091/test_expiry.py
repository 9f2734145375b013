"""Time to live: of a queue's messages, of one message, of an unused queue."""

from __future__ import annotations

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import UnroutableError

from tests.integration.amqp091.dialogue import Inbox, count, get_bodies, get_body, until


def pass_time(channel: BlockingChannel, milliseconds: int) -> None:
    """Let time pass by the broker's own clock: until a message of that age has gone."""
    clock = channel.queue_declare("", exclusive=True).method.queue
    channel.basic_publish("", clock, b"", pika.BasicProperties(expiration=str(milliseconds)))
    until(lambda: count(channel, clock) == 0)


def test_messages_expire_with_the_queues_time_to_live(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True, arguments={"x-message-ttl": 50})
    channel.basic_publish("", name, b"brief")

    until(lambda: count(channel, name) == 0)

    assert get_body(channel, name) is None


def test_a_message_expires_with_its_own_expiration(channel: BlockingChannel, queue: str) -> None:
    channel.basic_publish("", queue, b"brief", pika.BasicProperties(expiration="50"))

    until(lambda: count(channel, queue) == 0)

    assert get_body(channel, queue) is None


def test_the_shorter_of_both_counts(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, exclusive=True, arguments={"x-message-ttl": 50})
    channel.basic_publish("", name, b"brief", pika.BasicProperties(expiration="60000"))

    until(lambda: count(channel, name) == 0)


def test_an_expired_message_behind_a_lasting_one_is_not_delivered(
    channel: BlockingChannel, queue: str
) -> None:
    channel.basic_publish("", queue, b"lasting")
    channel.basic_publish("", queue, b"brief", pika.BasicProperties(expiration="50"))
    pass_time(channel, 100)

    assert get_bodies(channel, queue) == [b"lasting"]


def test_zero_means_now_or_never(channel: BlockingChannel, queue: str) -> None:
    channel.basic_publish("", queue, b"too late", pika.BasicProperties(expiration="0"))
    assert get_body(channel, queue) is None

    inbox = Inbox(channel, queue, auto_ack=True)
    channel.basic_publish("", queue, b"in time", pika.BasicProperties(expiration="0"))

    assert inbox.take_bodies(1) == [b"in time"]


def test_expiration_is_kept_on_delivery(channel: BlockingChannel, queue: str) -> None:
    channel.basic_publish("", queue, b"", pika.BasicProperties(expiration="60000"))

    assert channel.basic_get(queue, auto_ack=True)[1].expiration == "60000"


def test_a_message_out_for_acknowledgement_does_not_expire(
    channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name, exclusive=True, arguments={"x-message-ttl": 50})
    inbox = Inbox(channel, name)
    channel.basic_publish("", name, b"held")
    (held,) = inbox.take(1)

    pass_time(channel, 100)

    channel.basic_ack(held.tag)  # a 406 if it had gone
    channel.queue_declare(name, passive=True)


def test_an_unused_queue_goes_after_its_time(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, arguments={"x-expires": 100})

    def gone() -> bool:
        try:
            channel.basic_publish("", name, b"", mandatory=True)
        except UnroutableError:
            return True
        return False

    until(gone)


def test_a_queue_with_a_consumer_is_used(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, arguments={"x-expires": 50})
    inbox = Inbox(channel, name, auto_ack=True)

    pass_time(channel, 150)
    channel.basic_publish("", name, b"still here", mandatory=True)

    assert inbox.take_bodies(1) == [b"still here"]
    channel.queue_delete(name)


def test_a_lasting_message_outlives_a_brief_one(channel: BlockingChannel, queue: str) -> None:
    channel.basic_publish("", queue, b"brief", pika.BasicProperties(expiration="1"))
    channel.basic_publish("", queue, b"lasting", pika.BasicProperties(expiration="60000"))

    until(lambda: count(channel, queue) == 1)

    assert get_bodies(channel, queue) == [b"lasting"]
