"""What a user may do, and that a change holds for connections that are open."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from penstock.broker.permissions import Permission
from penstock.core.config import BrokerSettings
from penstock.server import Broker
from tests.integration.amqp091.dialogue import round_trip


def open_channel(broker: Broker, user: str) -> BlockingChannel:
    url = broker.addresses[0].replace("amqp://", f"amqp://{user}:secret@")
    return pika.BlockingConnection(pika.URLParameters(url)).channel()


def publish_to_default(channel: BlockingChannel) -> None:
    channel.basic_publish("", "own", b"")
    round_trip(channel)


@pytest.fixture
def settings() -> BrokerSettings:
    return BrokerSettings(listen=["amqp://127.0.0.1:0"])


async def test_each_operation_asks_for_its_permission(
    settings: BrokerSettings, tmp_path: Path
) -> None:
    async with Broker(settings, data=tmp_path) as broker:
        broker.users.add("ada", "secret")
        broker.users.set_permissions("ada", "/", Permission("^(own|amq.gen)", "^own", "^own"))
        broker.vhosts["/"].declare_queue("theirs")

        def attempt() -> list[str]:
            refusals = []
            channel = open_channel(broker, "ada")
            connection = channel.connection
            channel.queue_declare("own")
            for deed in (
                lambda c: c.queue_declare("other"),
                lambda c: c.basic_get("theirs"),
                lambda c: c.basic_consume("theirs", lambda *_: None),
                lambda c: c.queue_purge("theirs"),
                lambda c: c.queue_delete("theirs"),
                lambda c: c.queue_bind("own", "amq.topic", "#"),
                publish_to_default,
            ):
                try:
                    deed(connection.channel())
                except ChannelClosedByBroker as refusal:
                    refusals.append(refusal.reply_text.split(" in vhost")[0])
            connection.close()
            return refusals

        assert await asyncio.to_thread(attempt) == [
            "ACCESS_REFUSED - configure access to queue 'other'",
            "ACCESS_REFUSED - read access to queue 'theirs'",
            "ACCESS_REFUSED - read access to queue 'theirs'",
            "ACCESS_REFUSED - read access to queue 'theirs'",
            "ACCESS_REFUSED - configure access to queue 'theirs'",
            "ACCESS_REFUSED - read access to exchange 'amq.topic'",
            "ACCESS_REFUSED - write access to exchange ''",
        ]


async def test_a_right_that_is_taken_away_is_gone_for_those_who_are_connected(
    settings: BrokerSettings, tmp_path: Path
) -> None:
    async with Broker(settings, data=tmp_path) as broker:
        broker.users.add("ada", "secret")
        broker.users.set_permissions("ada", "/", Permission(".*", ".*", ".*"))

        def publish(channel: BlockingChannel) -> None:
            channel.basic_publish("amq.topic", "key", b"")
            round_trip(channel)

        channel = await asyncio.to_thread(open_channel, broker, "ada")
        await asyncio.to_thread(publish, channel)
        broker.users.set_permissions("ada", "/", Permission(".*", "^mine", ".*"))

        with pytest.raises(ChannelClosedByBroker) as refused:
            await asyncio.to_thread(publish, channel)

        assert refused.value.reply_code == 403
        await asyncio.to_thread(channel.connection.close)
