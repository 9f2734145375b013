"""A queue may ask for answers in time; RabbitMQ 3.10 has this for the whole broker only."""

from __future__ import annotations

import pika

from tests.integration.amqp091.dialogue import Inbox, wait_on
from tests.peers import Penstock


def test_a_delivery_that_goes_unanswered_ends_its_channel(penstock: Penstock, name: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(penstock.url))
    owner, slow = connection.channel(), connection.channel()
    owner.queue_declare(name, arguments={"x-consumer-timeout": 200})
    inbox = Inbox(slow, name)
    owner.basic_publish("", name, b"forgotten")
    inbox.take(1)

    wait_on(slow, lambda: slow.is_closed)

    assert owner.basic_get(name, auto_ack=True)[2] == b"forgotten"
    owner.queue_delete(name)
    connection.close()


def test_an_answer_in_time_is_all_it_asks(penstock: Penstock, name: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(penstock.url))
    channel = connection.channel()
    channel.queue_declare(name, arguments={"x-consumer-timeout": 300})
    inbox = Inbox(channel, name)
    for _ in range(5):
        channel.basic_publish("", name, b"work")
        (arrival,) = inbox.take(1)
        channel.basic_ack(arrival.tag)
    connection.process_data_events(0.6)

    assert channel.is_open
    channel.queue_delete(name)
    connection.close()
