"""What a queue's arguments may be; each that is refused is refused with 406 and a reason."""

from __future__ import annotations

from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp091.dialogue import channel_error


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("x-message-ttl", -1),
        ("x-message-ttl", "soon"),
        ("x-message-ttl", 1 << 40),
        ("x-expires", 0),
        ("x-expires", -5),
        ("x-max-length", -1),
        ("x-max-length", "few"),
        ("x-max-length-bytes", -1),
        ("x-max-priority", 256),
        ("x-max-priority", -1),
        ("x-overflow", "spill"),
        ("x-dead-letter-routing-key", "without an exchange"),
        ("x-queue-type", "stack"),
        ("x-single-active-consumer", "yes"),
    ],
)
def test_a_value_that_cannot_be_is_a_406_that_names_the_argument(
    channel: BlockingChannel, name: str, argument: str, value: object
) -> None:
    complaint = f"PRECONDITION_FAILED - invalid arg '{argument}' for queue '{name}' in vhost '/': "
    with channel_error(406, complaint):
        channel.queue_declare(name, exclusive=True, arguments={argument: value})


def test_a_dead_letter_exchange_is_a_string(channel: BlockingChannel, name: str) -> None:
    with channel_error(406, "arg 'x-dead-letter-exchange'"):
        channel.queue_declare(name, exclusive=True, arguments={"x-dead-letter-exchange": 5})


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-message-ttl": 0},
        {"x-max-length": 0},
        {"x-max-priority": 0},
        {"x-max-priority": 255},
        {"x-overflow": "drop-head"},
        {"x-overflow": "reject-publish"},
        {"x-overflow": "reject-publish-dlx"},
        {"x-single-active-consumer": True},
        {"x-queue-mode": "lazy"},
        {"anything": "else"},
    ],
)
def test_what_has_a_meaning_or_none_is_accepted(
    channel: BlockingChannel, name: str, arguments: dict[str, Any]
) -> None:
    assert channel.queue_declare(name, exclusive=True, arguments=arguments).method.queue == name


@pytest.mark.parametrize(
    ("options", "property_"),
    [
        ({}, "non-durable"),
        ({"durable": True, "exclusive": True}, "exclusive-owner"),
        ({"durable": True, "auto_delete": True}, "auto-delete"),
    ],
)
def test_a_stream_is_durable_and_shared_and_stays(
    channel: BlockingChannel, name: str, options: dict[str, Any], property_: str
) -> None:
    complaint = f"invalid property '{property_}' for queue '{name}' in vhost '/'"
    with channel_error(406, complaint):
        channel.queue_declare(name, arguments={"x-queue-type": "stream"}, **options)


@pytest.mark.parametrize(
    ("kind", "argument", "value"),
    [
        ("classic", "x-max-age", "1h"),
        ("classic", "x-max-in-memory-length", 5),
        ("classic", "x-max-in-memory-bytes", 5),
        ("stream", "x-max-in-memory-length", 5),
        ("stream", "x-message-ttl", 5),
        ("stream", "x-max-length", 5),
        ("stream", "x-max-priority", 5),
        ("quorum", "x-max-priority", 5),
    ],
)
def test_arguments_of_another_kind_of_queue_are_refused(
    channel: BlockingChannel, name: str, kind: str, argument: str, value: object
) -> None:
    with channel_error(406, f"invalid arg '{argument}' for queue '{name}' in vhost '/'"):
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind, argument: value})


@pytest.mark.parametrize("kind", ["stream", "quorum"])
def test_streams_and_quorum_queues_need_a_name(channel: BlockingChannel, kind: str) -> None:
    with channel_error(406, "Cannot declare a server-named queue"):
        channel.queue_declare("", durable=True, arguments={"x-queue-type": kind})
