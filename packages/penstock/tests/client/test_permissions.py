"""Users who may not make what they use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import aio_pika
import pytest

from penstock.broker.permissions import Permission
from penstock.client import connect
from penstock.core.config import BrokerSettings
from penstock.server import Broker


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    settings = BrokerSettings(listen=["amqp://127.0.0.1:0"], drain_seconds=1)
    async with Broker(settings, data=tmp_path) as broker:
        broker.users.add("ada", "secret")
        broker.users.set_permissions(
            "ada", "/", Permission("^q_ada", "^(q_ada|xs_ada)", "^(q_ada|xpublic)")
        )
        yield broker


async def test_an_exchange_that_may_not_be_declared_is_used_as_it_is(broker: Broker) -> None:
    """As Sarracenia sets its users up: queues are theirs, exchanges are the administrator's."""
    admin = broker.addresses[0].replace("amqp://", "amqp://guest:guest@")
    ours = broker.addresses[0].replace("amqp://", "amqp://ada:secret@")
    async with await aio_pika.connect(admin) as connection, connection.channel() as channel:
        for exchange in ("xpublic", "xs_ada"):
            await channel.declare_exchange(exchange, "topic", durable=True)
        async with (
            connect(ours) as fabric,
            connect(admin) as others,
            fabric.subscribe("#", name="q_ada", exchange="xpublic") as messages,
        ):
            await others.publish("v02.post", b"news", exchange="xpublic")
            assert (await messages.receive()).body == b"news"
            await fabric.publish("v02.report", b"thanks", exchange="xs_ada")
