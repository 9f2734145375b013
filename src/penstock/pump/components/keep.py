"""keep: what exchanges carry goes into the stream `announcements` as well, and so into the lake."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aio_pika import ExchangeType

from penstock.core.errors import Unsupported
from penstock.pump.components.workshop import open_workshop
from penstock.pump.config.settings import PumpSettings
from penstock.pump.flow.hearing import over_mqtt

STREAM: Final = "announcements"
#: Posts and reports of either version.
KEYS: Final = ("v02.#", "v03.#")


async def keep(settings: PumpSettings, exchanges: Sequence[str]) -> None:
    """Have them kept from now on; done before, it changes nothing."""
    if over_mqtt(settings.broker):
        raise Unsupported("over MQTT announcements are kept anyway: give an amqp:// URL")
    async with open_workshop(settings) as shop:
        fabric = await shop.brokers.fabric(settings.broker)
        async with fabric.amqp.channel() as channel:
            stream = await channel.declare_queue(
                STREAM, durable=True, arguments={"x-queue-type": "stream"}
            )
            for name in exchanges:
                exchange = await channel.declare_exchange(name, ExchangeType.TOPIC, durable=True)
                for key in KEYS:
                    await stream.bind(exchange, key)
