"""The patterns over AMQP 0-9-1.

What they are made of, for those who meet them from another client:

* publish/subscribe: topic exchange `amq.topic`; a subscription is an exclusive queue, or a durable
  one when it has a name.
* push/pull: a durable queue by the default exchange, persistent messages, confirms, acks.
* request/reply: an auto-delete queue named as the service, direct reply-to.
* streams: a durable queue with `x-queue-type: stream`.

There are two connections: a broker short of room stops reading from those who send, and then
acknowledgements on the same connection, which would make room, would wait as well.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from types import TracebackType
from typing import Final, NoReturn, Self
from weakref import WeakSet

import aio_pika
from aiormq import Channel

from penstock.client.amqp.inlet import Inlet
from penstock.client.amqp.link import Link, Prepare
from penstock.client.amqp.outflow import outflow
from penstock.client.amqp.outlet import Outlet
from penstock.client.amqp.requester import Requester
from penstock.client.amqp.sources import (
    Calls,
    Replay,
    Source,
    Subscription,
    Topic,
    Work,
    WorkQueue,
    declare_stream,
)
from penstock.client.body import Body
from penstock.client.fabric import FAST_PREFETCH, WORK_PREFETCH, Handler, Headers, Start
from penstock.client.inflow import Inflow
from penstock.client.message import Message
from penstock.client.outflow import Outflow
from penstock.client.service import Service
from penstock.core.errors import Unsupported

TOPIC: Final = "amq.topic"


class AmqpFabric:
    """Keeps `penstock.client.fabric.Fabric`."""

    def __init__(
        self, url: str, *, tls: ssl.SSLContext | None = None, patience: float = 0.0
    ) -> None:
        self._outward = Link(url, "sender", tls, patience)
        self._inward = Link(url, "receiver", tls, patience)
        self._outlets: dict[tuple[str, str], Outlet] = {}
        self._inlets: WeakSet[Inlet] = WeakSet()
        self._replies = Outlet(self._outward, "")
        self._requester = Requester(self._outward, self._replies)

    @property
    def amqp(self) -> aio_pika.RobustConnection:
        return self._outward.connection

    @property
    def mqtt(self) -> NoReturn:
        raise Unsupported("this fabric speaks AMQP: connect to an mqtt:// URL for MQTT")

    @property
    def blocked(self) -> bool:
        return self._outward.blocked

    async def publish(
        self,
        address: str,
        body: Body,
        *,
        headers: Headers | None = None,
        ttl: float | None = None,
        message_id: str | None = None,
        exchange: str = TOPIC,
    ) -> None:
        publisher = self.publisher(address, exchange=exchange)
        await publisher.send(body, headers=headers, ttl=ttl, message_id=message_id)

    def publisher(self, address: str, *, exchange: str = TOPIC) -> Outflow:
        declare = Topic(exchange).declare
        return outflow(self._outlet("topic", exchange, exchange, declare), address)

    def subscribe(
        self,
        *patterns: str,
        name: str | None = None,
        exchange: str = TOPIC,
        prefetch: int = FAST_PREFETCH,
    ) -> Inflow:
        return self._inflow(Subscription(patterns or ("#",), exchange, name, prefetch))

    def push(self, queue: str) -> Outflow:
        outlet = self._outlet("queue", queue, "", WorkQueue(queue).declare, mandatory=True)
        return outflow(outlet, queue)

    def pull(self, queue: str, *, prefetch: int = WORK_PREFETCH) -> Inflow:
        return self._inflow(Work(queue, prefetch))

    async def request(
        self,
        service: str,
        body: Body = b"",
        *,
        headers: Headers | None = None,
        timeout: float | None = 30.0,
    ) -> Message:
        return await self._requester.request(service, body, headers, timeout)

    def reply(self, service: str, *, prefetch: int = WORK_PREFETCH) -> Inflow:
        return self._inflow(Calls(service, prefetch), answers=True)

    def serve(self, service: str, handler: Handler, *, concurrency: int = WORK_PREFETCH) -> Service:
        return Service(service, self.reply(service, prefetch=concurrency), handler)

    def stream(
        self,
        name: str,
        *,
        subjects: Sequence[str] = (),
        max_age: str | None = None,
        max_bytes: int | None = None,
    ) -> Outflow:
        async def prepare(channel: Channel) -> None:
            await declare_stream(channel, name, subjects, TOPIC, max_age, max_bytes)

        return outflow(self._outlet("stream", name, "", prepare, mandatory=True), name)

    def replay(
        self, stream: str, start: Start = "first", *, prefetch: int = FAST_PREFETCH
    ) -> Inflow:
        return self._inflow(Replay(stream, start, prefetch))

    async def open(self) -> Self:
        await self._outward.open()
        return self

    async def close(self) -> None:
        for inlet in list(self._inlets):
            await inlet.close()
        await self._requester.close()
        for outlet in (*self._outlets.values(), self._replies):
            await outlet.close()
        await self._inward.close()
        await self._outward.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _outlet(
        self, kind: str, name: str, exchange: str, prepare: Prepare, *, mandatory: bool = False
    ) -> Outlet:
        """The outlet to this destination: one for all who send to it, so that order is kept."""
        outlet = self._outlets.get((kind, name))
        if outlet is None:
            outlet = Outlet(self._outward, exchange, prepare, mandatory=mandatory)
            self._outlets[kind, name] = outlet
        return outlet

    def _inflow(self, source: Source, *, answers: bool = False) -> Inflow:
        inlet = Inlet(self._inward, source, self._replies)
        self._inlets.add(inlet)
        return Inflow(inlet, answers=answers)
