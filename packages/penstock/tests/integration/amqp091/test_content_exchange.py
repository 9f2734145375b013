"""The exchange type `x-content`, which only Penstock has, by a client that knows nothing of it."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from tests.integration.amqp091.dialogue import get_bodies
from tests.peers import Penstock


@pytest.fixture
def channel(penstock: Penstock) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(penstock.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


@pytest.fixture
def quotes(channel: BlockingChannel, name: str) -> str:
    channel.exchange_declare(name, "x-content", auto_delete=True)
    channel.queue_declare(name, exclusive=True)
    return name


def wants(channel: BlockingChannel, name: str, subscription: str) -> None:
    channel.queue_bind(name, name, "", {"x-subscription": subscription})


def test_headers_decide(channel: BlockingChannel, quotes: str) -> None:
    wants(channel, quotes, "[class,eq,stock],[symbol,eq,IBM],[price,<,50]")

    for price in (45, 55, Decimal("49.5")):
        headers = {"class": "stock", "symbol": "IBM", "price": price}
        properties = pika.BasicProperties(headers=headers)
        channel.basic_publish(quotes, "", str(price).encode(), properties)

    assert get_bodies(channel, quotes) == [b"45", b"49.5"]


def test_a_body_in_the_language_decides(channel: BlockingChannel, quotes: str) -> None:
    wants(channel, quotes, "[class,eq,stock],[price,<,50]")
    properties = pika.BasicProperties(content_type="application/x-padres")

    channel.basic_publish(quotes, "", b"[class,stock],[price,61];", properties)
    channel.basic_publish(quotes, "", b"[class,stock],[price,45];", properties)

    assert get_bodies(channel, quotes) == [b"[class,stock],[price,45];"]


def test_two_subscriptions_of_a_queue_bring_a_message_once(
    channel: BlockingChannel, quotes: str
) -> None:
    wants(channel, quotes, "[class,eq,stock],[price,<,50]")
    wants(channel, quotes, "[class,eq,stock],[price,>,40]")

    properties = pika.BasicProperties(headers={"class": "stock", "price": 45})
    channel.basic_publish(quotes, "", b"once", properties)

    assert get_bodies(channel, quotes) == [b"once"]


def test_what_is_unbound_brings_no_more(channel: BlockingChannel, quotes: str) -> None:
    text = "[class,eq,stock]"
    wants(channel, quotes, text)
    wants(channel, quotes, "[class,eq,other]")
    channel.queue_unbind(quotes, quotes, "", {"x-subscription": text})

    properties = pika.BasicProperties(headers={"class": "stock"})
    channel.basic_publish(quotes, "", b"gone", properties)

    assert get_bodies(channel, quotes) == []


def test_a_mistake_in_a_subscription_is_told_with_its_position(
    channel: BlockingChannel, quotes: str
) -> None:
    with pytest.raises(ChannelClosedByBroker) as caught:
        wants(channel, quotes, "[class,eq,stock],[price,cheaper,50]")

    assert caught.value.reply_code == 406
    assert "column 25: expected an operator" in caught.value.reply_text


def test_a_mistake_in_a_publication_is_told_with_its_position(
    channel: BlockingChannel, quotes: str
) -> None:
    properties = pika.BasicProperties(content_type="application/x-padres")

    with pytest.raises(ChannelClosedByBroker) as caught:
        channel.basic_publish(quotes, "", b"[class,stock],[price,];", properties)

    assert caught.value.reply_code == 406
    assert "column 22: expected a value" in caught.value.reply_text
