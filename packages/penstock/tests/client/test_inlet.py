"""What an AMQP inlet does when its channel goes before it has said all it had to."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from aiormq import exceptions as aiormq
from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic

from penstock.client.amqp.consumer import AmqpConsumer


class Channel:
    """One that takes no acknowledgement."""

    def __init__(self) -> None:
        self.closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.on_consumer_cancel_callbacks: set[Any] = set()
        self.asked = asyncio.Event()

    async def basic_qos(self, *, prefetch_count: int) -> None: ...

    async def basic_consume(self, queue: str, on_message: Any, *, arguments: Any) -> None:
        header = SimpleNamespace(properties=Basic.Properties())
        told = {"body": b"", "routing_key": "", "redelivered": False, "header": header}
        await on_message(SimpleNamespace(channel=self, delivery_tag=1, **told))

    async def basic_ack(self, tag: int, *, multiple: bool, wait: bool) -> None:
        self.asked.set()
        raise aiormq.ChannelPreconditionFailed(406, "unknown delivery tag")

    async def close(self, *, timeout: float) -> None: ...


class Link:
    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    async def channel(self, prepare: Any) -> Channel:
        await prepare(self._channel)
        return self._channel


class Source:
    redelivers = False
    prefetch = 1

    async def attach(self, channel: Any) -> tuple[str, dict[str, Any]]:
        return "q", {}

    def admit(self, delivered: DeliveredMessage) -> bool:
        return True


async def test_credit_that_the_broker_refuses_is_nobody_s_error() -> None:
    channel = Channel()
    link: Any = Link(channel)
    replies: Any = None
    inlet = AmqpConsumer(link, Source(), replies)
    await inlet.receive()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.wait_for(channel.asked.wait(), 60)
    await inlet.close()
    ended = await asyncio.gather(*others, return_exceptions=True)
    assert [one for one in ended if isinstance(one, Exception)] == []
