"""Direct reply-to: an answer without a queue for it."""

from __future__ import annotations

from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp091.conftest import Connect
from tests.integration.amqp091.dialogue import Inbox, channel_error, get_body, round_trip, wait_on

REPLY_TO = "amq.rabbitmq.reply-to"


def listen(channel: BlockingChannel) -> list[tuple[Any, Any, bytes]]:
    answers: list[tuple[Any, Any, bytes]] = []
    channel.basic_consume(REPLY_TO, lambda _, *answer: answers.append(answer), auto_ack=True)
    return answers


def test_an_answer_comes_back_to_who_asked(
    plain_channel: BlockingChannel, connect: Connect, name: str
) -> None:
    server = connect().channel()
    server.queue_declare(name, exclusive=True)
    answers = listen(plain_channel)

    question = pika.BasicProperties(reply_to=REPLY_TO, correlation_id="42")
    plain_channel.basic_publish("", name, b"question", question)
    (asked,) = Inbox(server, name, auto_ack=True).take(1)
    server.basic_publish("", asked.properties.reply_to, b"answer", asked.properties)
    round_trip(server)
    wait_on(plain_channel, lambda: bool(answers))

    ((method, properties, body),) = answers
    assert asked.properties.reply_to.startswith(f"{REPLY_TO}.")
    assert (method.exchange, method.routing_key) == ("", asked.properties.reply_to)
    assert (properties.correlation_id, body) == ("42", b"answer")


def test_acknowledging_is_not_possible(plain_channel: BlockingChannel) -> None:
    complaint = "PRECONDITION_FAILED - reply consumer cannot acknowledge"
    with channel_error(406, complaint):
        plain_channel.basic_consume(REPLY_TO, lambda *_: None, auto_ack=False)


def test_there_is_one_reply_consumer_per_channel(plain_channel: BlockingChannel) -> None:
    listen(plain_channel)

    with channel_error(406, "PRECONDITION_FAILED - reply consumer already set"):
        listen(plain_channel)


def test_asking_without_listening_is_a_406(plain_channel: BlockingChannel, queue: str) -> None:
    with channel_error(406, "PRECONDITION_FAILED - fast reply consumer does not exist"):
        question = pika.BasicProperties(reply_to=REPLY_TO)
        plain_channel.basic_publish("", queue, b"question", question)
        round_trip(plain_channel)


def test_a_declaration_asks_whether_the_asker_still_listens(
    plain_channel: BlockingChannel, channel: BlockingChannel, queue: str
) -> None:
    listen(plain_channel)
    plain_channel.basic_publish("", queue, b"?", pika.BasicProperties(reply_to=REPLY_TO))
    round_trip(plain_channel)
    address = channel.basic_get(queue, auto_ack=True)[1].reply_to

    channel.queue_declare(address, passive=True)
    plain_channel.close()

    with channel_error(404, f"NOT_FOUND - no queue '{address}' in vhost '/'"):
        channel.queue_declare(address, passive=True)


def test_an_answer_to_who_has_left_is_dropped(
    plain_channel: BlockingChannel, channel: BlockingChannel, queue: str
) -> None:
    listen(plain_channel)
    plain_channel.basic_publish("", queue, b"?", pika.BasicProperties(reply_to=REPLY_TO))
    round_trip(plain_channel)
    address = channel.basic_get(queue, auto_ack=True)[1].reply_to
    plain_channel.close()

    channel.basic_publish("", address, b"answer")

    assert get_body(channel, queue) is None


@pytest.mark.parametrize("reply_to", ["some.queue", f"{REPLY_TO}x"])
def test_other_reply_addresses_are_left_alone(
    channel: BlockingChannel, queue: str, reply_to: str
) -> None:
    channel.basic_publish("", queue, b"", pika.BasicProperties(reply_to=reply_to))

    assert channel.basic_get(queue, auto_ack=True)[1].reply_to == reply_to


def test_a_client_asks_for_the_pseudo_queue_before_it_consumes(
    plain_channel: BlockingChannel,
) -> None:
    assert plain_channel.queue_declare(REPLY_TO, passive=True).method.queue == REPLY_TO
