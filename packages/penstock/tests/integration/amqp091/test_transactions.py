"""Transactions: publishes and acknowledgements take effect together, at the commit."""

from __future__ import annotations

import pytest
from pika import BasicProperties
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp091.dialogue import channel_error, get_bodies, get_body, round_trip


@pytest.fixture
def transaction(plain_channel: BlockingChannel) -> BlockingChannel:
    plain_channel.tx_select()
    return plain_channel


def test_publishes_wait_for_the_commit(
    transaction: BlockingChannel, channel: BlockingChannel, queue: str
) -> None:
    transaction.basic_publish("", queue, b"1")
    transaction.basic_publish("", queue, b"2")
    round_trip(transaction)
    assert get_body(channel, queue) is None

    transaction.tx_commit()

    assert get_bodies(channel, queue) == [b"1", b"2"]


def test_a_rollback_forgets_publishes(
    transaction: BlockingChannel, channel: BlockingChannel, queue: str
) -> None:
    transaction.basic_publish("", queue, b"1")

    transaction.tx_rollback()
    transaction.tx_commit()

    assert get_body(channel, queue) is None


def test_acknowledgements_wait_for_the_commit(
    transaction: BlockingChannel, channel: BlockingChannel, queue: str
) -> None:
    channel.basic_publish("", queue, b"job")
    transaction.basic_ack(transaction.basic_get(queue)[0].delivery_tag)

    transaction.tx_commit()
    transaction.close()

    assert get_body(channel, queue) is None


def test_a_commit_that_publishes_and_acknowledges_makes_room_for_the_next_delivery(
    transaction: BlockingChannel, channel: BlockingChannel, queue: str
) -> None:
    for body in (b"1", b"2"):
        channel.basic_publish("", queue, body, BasicProperties(delivery_mode=2))
    transaction.basic_qos(prefetch_count=1)
    messages = transaction.consume(queue)
    first, _, body = next(messages)
    assert body == b"1"

    transaction.basic_publish("", queue, b"3", BasicProperties(delivery_mode=2))
    transaction.basic_ack(first.delivery_tag)
    transaction.tx_commit()

    assert next(messages)[2] == b"2"  # although the client sends nothing more
    transaction.cancel()


def test_an_acknowledgement_without_a_commit_is_forgotten_with_the_channel(
    transaction: BlockingChannel, channel: BlockingChannel, queue: str
) -> None:
    channel.basic_publish("", queue, b"job")
    transaction.basic_ack(transaction.basic_get(queue)[0].delivery_tag)

    transaction.close()

    assert get_body(channel, queue) == b"job"


def test_a_rolled_back_acknowledgement_can_be_given_again(
    transaction: BlockingChannel, channel: BlockingChannel, queue: str
) -> None:
    channel.basic_publish("", queue, b"job")
    tag = transaction.basic_get(queue)[0].delivery_tag
    transaction.basic_ack(tag)

    transaction.tx_rollback()
    transaction.basic_ack(tag)
    transaction.tx_commit()
    transaction.close()

    assert get_body(channel, queue) is None


def test_a_rejection_waits_for_the_commit(
    transaction: BlockingChannel, channel: BlockingChannel, queue: str
) -> None:
    channel.basic_publish("", queue, b"job")
    transaction.basic_nack(transaction.basic_get(queue)[0].delivery_tag, requeue=True)
    round_trip(transaction)
    assert get_body(channel, queue) is None

    transaction.tx_commit()

    assert get_body(channel, queue) == b"job"


def test_one_commit_per_message(transaction: BlockingChannel, queue: str) -> None:
    for number in range(10):
        transaction.basic_publish("", queue, b"%d" % number)
        transaction.tx_commit()

    assert get_bodies(transaction, queue) == [b"%d" % number for number in range(10)]


@pytest.mark.parametrize("deed", ["tx_commit", "tx_rollback"])
def test_without_select_there_is_no_transaction(plain_channel: BlockingChannel, deed: str) -> None:
    with channel_error(406, "PRECONDITION_FAILED - channel is not transactional"):
        getattr(plain_channel, deed)()


def test_a_transactional_channel_cannot_confirm(transaction: BlockingChannel) -> None:
    with channel_error(406, "PRECONDITION_FAILED - cannot switch from tx to confirm mode"):
        transaction.confirm_delivery()


def test_a_confirming_channel_cannot_be_transactional(channel: BlockingChannel) -> None:
    with channel_error(406, "PRECONDITION_FAILED - cannot switch from confirm to tx mode"):
        channel.tx_select()


def test_a_publish_to_a_missing_exchange_fails_at_once(
    transaction: BlockingChannel, name: str
) -> None:
    with channel_error(404, f"no exchange '{name}' in vhost '/'"):
        transaction.basic_publish(name, "", b"")
        round_trip(transaction)
