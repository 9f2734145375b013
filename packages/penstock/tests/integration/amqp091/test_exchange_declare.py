"""Declaring and deleting exchanges, and every way in which that is refused."""

from __future__ import annotations

from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp091.dialogue import channel_error, connection_error, round_trip


@pytest.mark.parametrize("kind", ["direct", "fanout", "topic", "headers"])
def test_declaring_twice_alike_is_fine(channel: BlockingChannel, name: str, kind: str) -> None:
    for _ in range(2):
        channel.exchange_declare(name, kind, durable=True, auto_delete=True)

    channel.exchange_delete(name)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"exchange_type": "direct"}, "'type' {}: received 'direct' but current is 'fanout'"),
        ({"durable": True}, "'durable' {}: received 'true' but current is 'false'"),
        ({"auto_delete": True}, "'auto_delete' {}: received 'true' but current is 'false'"),
        ({"internal": True}, "'internal' {}: received 'true' but current is 'false'"),
        (
            {"arguments": {"alternate-exchange": "other"}},
            "'alternate-exchange' {}: received the value 'other' of type 'longstr'"
            " but current is none",
        ),
    ],
)
def test_declaring_again_otherwise_is_a_406_that_says_what_differs(
    channel: BlockingChannel, exchange: str, change: dict[str, Any], complaint: str
) -> None:
    where = f"for exchange '{exchange}' in vhost '/'"

    with channel_error(406, f"PRECONDITION_FAILED - inequivalent arg {complaint.format(where)}"):
        channel.exchange_declare(exchange, **{"exchange_type": "fanout", **change})


def test_an_argument_without_meaning_makes_no_difference(
    channel: BlockingChannel, exchange: str
) -> None:
    channel.exchange_declare(exchange, "fanout", arguments={"colour": "blue"})


def test_a_passive_declaration_asks_whether_it_exists(
    channel: BlockingChannel, exchange: str
) -> None:
    channel.exchange_declare(exchange, passive=True)


def test_a_passive_declaration_of_a_missing_exchange_is_a_404(
    channel: BlockingChannel, name: str
) -> None:
    with channel_error(404, f"NOT_FOUND - no exchange '{name}' in vhost '/'"):
        channel.exchange_declare(name, passive=True)


def test_an_unknown_type_closes_the_connection(channel: BlockingChannel, name: str) -> None:
    with connection_error(503, "COMMAND_INVALID - unknown exchange type 'wibble'"):
        channel.exchange_declare(name, "wibble")


def test_names_that_begin_with_amq_are_reserved(channel: BlockingChannel) -> None:
    complaint = "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'"
    with channel_error(403, complaint):
        channel.exchange_declare("amq.mine")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("amq.direct", "direct"),
        ("amq.fanout", "fanout"),
        ("amq.topic", "topic"),
        ("amq.headers", "headers"),
        ("amq.match", "headers"),
    ],
)
def test_the_standard_exchanges_are_there(channel: BlockingChannel, name: str, kind: str) -> None:
    channel.exchange_declare(name, kind, durable=True)


def test_a_standard_exchange_cannot_be_deleted(channel: BlockingChannel) -> None:
    complaint = "deletion of system exchange 'amq.direct' in vhost '/' not allowed"
    with channel_error(403, complaint):
        channel.exchange_delete("amq.direct")


def test_the_default_exchange_cannot_be_declared(channel: BlockingChannel) -> None:
    with channel_error(403, "operation not permitted on the default exchange"):
        channel.exchange_declare("", "direct", durable=True)


def test_the_default_exchange_cannot_be_deleted(channel: BlockingChannel) -> None:
    with channel_error(403, "operation not permitted on the default exchange"):
        channel.exchange_delete("")


def test_deleting_a_missing_exchange_is_fine(channel: BlockingChannel, name: str) -> None:
    channel.exchange_delete(name)


def test_an_exchange_in_use_is_not_deleted_if_unused_was_asked(
    channel: BlockingChannel, exchange: str, queue: str
) -> None:
    channel.queue_bind(queue, exchange)

    with channel_error(406, f"PRECONDITION_FAILED - exchange '{exchange}' in vhost '/' in use"):
        channel.exchange_delete(exchange, if_unused=True)


def test_an_unused_exchange_is_deleted_if_unused_was_asked(
    channel: BlockingChannel, exchange: str
) -> None:
    channel.exchange_delete(exchange, if_unused=True)

    with channel_error(404):
        channel.exchange_declare(exchange, passive=True)


def test_an_auto_delete_exchange_goes_with_its_last_binding(
    channel: BlockingChannel, name: str, queue: str
) -> None:
    exchange = f"{name}.fleeting"
    channel.exchange_declare(exchange, "fanout", auto_delete=True)
    channel.queue_bind(queue, exchange, "a")
    channel.queue_bind(queue, exchange, "b")

    channel.queue_unbind(queue, exchange, "a")
    channel.exchange_declare(exchange, passive=True)
    channel.queue_unbind(queue, exchange, "b")

    with channel_error(404):
        channel.exchange_declare(exchange, passive=True)


def test_clients_cannot_publish_to_an_internal_exchange(
    channel: BlockingChannel, name: str
) -> None:
    channel.exchange_declare(name, "fanout", internal=True, auto_delete=True)

    complaint = f"ACCESS_REFUSED - cannot publish to internal exchange '{name}' in vhost '/'"
    with channel_error(403, complaint):
        channel.basic_publish(name, "", b"")
        round_trip(channel)


def test_publishing_to_a_missing_exchange_is_a_404(channel: BlockingChannel, name: str) -> None:
    with channel_error(404, f"NOT_FOUND - no exchange '{name}' in vhost '/'"):
        channel.basic_publish(name, "", b"")
        round_trip(channel)
