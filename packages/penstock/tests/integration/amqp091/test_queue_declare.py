"""Declaring, emptying and deleting queues, and every way in which that is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp091.conftest import Connect
from tests.integration.amqp091.dialogue import (
    Inbox,
    channel_error,
    count,
    exists,
    get_body,
    until,
)


def test_a_declaration_tells_messages_and_consumers(channel: BlockingChannel, queue: str) -> None:
    for _ in range(3):
        channel.basic_publish("", queue, b"")
    assert channel.queue_declare(queue, passive=True).method.message_count == 3

    Inbox(channel, queue)
    told = channel.queue_declare(queue, passive=True).method

    assert (told.queue, told.consumer_count, told.message_count) == (queue, 1, 0)


def test_a_queue_without_a_name_gets_one(channel: BlockingChannel) -> None:
    names = {channel.queue_declare("", exclusive=True).method.queue for _ in range(3)}

    assert len(names) == 3
    assert all(name.startswith("amq.gen-") for name in names)


def test_an_empty_name_means_the_last_declared_queue(channel: BlockingChannel) -> None:
    queue = channel.queue_declare("", exclusive=True).method.queue
    channel.basic_publish("", queue, b"found")

    assert get_body(channel, "") == b"found"


def test_an_empty_name_without_a_declared_queue_is_a_404(channel: BlockingChannel) -> None:
    with channel_error(404, "NOT_FOUND - no previously declared queue"):
        channel.basic_get("")


@pytest.mark.parametrize(
    ("first", "second", "complaint"),
    [
        ({}, {"durable": True}, "'durable' {}: received 'true' but current is 'false'"),
        ({}, {"auto_delete": True}, "'auto_delete' {}: received 'true' but current is 'false'"),
        (
            {},
            {"arguments": {"x-message-ttl": 1000}},
            "'x-message-ttl' {}: received the value '1000' of type 'signedint' but current is none",
        ),
        (
            {"arguments": {"x-message-ttl": 1000}},
            {},
            "'x-message-ttl' {}: received none but current is the value '1000' of type 'signedint'",
        ),
        (
            {"arguments": {"x-message-ttl": 1000}},
            {"arguments": {"x-message-ttl": 2000}},
            "'x-message-ttl' {}: received '2000' but current is '1000'",
        ),
        (
            {},
            {"arguments": {"x-dead-letter-exchange": "other"}},
            "'x-dead-letter-exchange' {}: received the value 'other' of type 'longstr'"
            " but current is none",
        ),
    ],
)
def test_declaring_again_otherwise_is_a_406_that_says_what_differs(
    channel: BlockingChannel,
    connect: Connect,
    name: str,
    first: dict[str, Any],
    second: dict[str, Any],
    complaint: str,
) -> None:
    channel.queue_declare(name, **first)
    where = f"for queue '{name}' in vhost '/'"

    with channel_error(406, f"PRECONDITION_FAILED - inequivalent arg {complaint.format(where)}"):
        channel.queue_declare(name, **second)
    connect().channel().queue_delete(name)


@pytest.mark.parametrize("arguments", [{"colour": "blue"}, {"x-queue-type": "classic"}])
def test_an_argument_that_changes_nothing_makes_no_difference(
    channel: BlockingChannel, queue: str, arguments: dict[str, Any]
) -> None:
    channel.queue_declare(queue, exclusive=True, arguments=arguments)


def test_a_passive_declaration_of_a_missing_queue_is_a_404(
    channel: BlockingChannel, name: str
) -> None:
    with channel_error(404, f"NOT_FOUND - no queue '{name}' in vhost '/'"):
        channel.queue_declare(name, passive=True)


def test_names_that_begin_with_amq_are_reserved(channel: BlockingChannel) -> None:
    complaint = "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'"
    with channel_error(403, complaint):
        channel.queue_declare("amq.mine")


def test_an_auto_delete_queue_goes_with_its_last_consumer(
    channel: BlockingChannel, connect: Connect, name: str
) -> None:
    channel.queue_declare(name, auto_delete=True)
    first, second = Inbox(channel, name), Inbox(channel, name)

    channel.basic_cancel(first.tag)
    assert exists(connect, name)
    channel.basic_cancel(second.tag)

    until(lambda: not exists(connect, name))


def test_an_auto_delete_queue_stays_until_it_had_a_consumer(
    channel: BlockingChannel, connect: Connect, name: str
) -> None:
    channel.queue_declare(name, auto_delete=True)

    assert exists(connect, name)
    channel.queue_delete(name)


def test_deleting_tells_how_many_messages_went(channel: BlockingChannel, queue: str) -> None:
    channel.basic_publish("", queue, b"1")
    channel.basic_publish("", queue, b"2")

    assert channel.queue_delete(queue).method.message_count == 2


def test_deleting_a_missing_queue_is_fine(channel: BlockingChannel, name: str) -> None:
    assert channel.queue_delete(name).method.message_count == 0


def test_a_queue_with_messages_is_not_deleted_if_empty_was_asked(
    channel: BlockingChannel, queue: str
) -> None:
    channel.basic_publish("", queue, b"")

    with channel_error(406, f"PRECONDITION_FAILED - queue '{queue}' in vhost '/' not empty"):
        channel.queue_delete(queue, if_empty=True)


def test_a_queue_with_consumers_is_not_deleted_if_unused_was_asked(
    channel: BlockingChannel, queue: str
) -> None:
    Inbox(channel, queue)

    with channel_error(406, f"PRECONDITION_FAILED - queue '{queue}' in vhost '/' in use"):
        channel.queue_delete(queue, if_unused=True)


def test_purging_takes_what_is_ready_and_tells_how_many(
    channel: BlockingChannel, queue: str
) -> None:
    for _ in range(3):
        channel.basic_publish("", queue, b"")
    channel.basic_get(queue)  # one is out, not acknowledged

    assert channel.queue_purge(queue).method.message_count == 2
    assert count(channel, queue) == 0


def test_purging_a_missing_queue_is_a_404(channel: BlockingChannel, name: str) -> None:
    with channel_error(404, f"NOT_FOUND - no queue '{name}' in vhost '/'"):
        channel.queue_purge(name)
