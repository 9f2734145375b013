"""The patterns over AMQP 1.0.

What they are made of, for those who meet them from another client:

* publish/subscribe: `/exchange/amq.topic`, the key as the subject; a subscription is a source
  `/exchange/amq.topic/KEY`, durable and shared when it has a name.
* push/pull: `/queue/NAME`, which the broker makes if it is not there; durable messages.
* request/reply: the service's name is a queue that goes with the last who serves it; answers come
  to a dynamic node.
* streams: `/stream/NAME`, and a filter that says where to begin.

There are two connections, as there are over AMQP 0-9-1: a broker short of room may stop reading
from those who send, and those who receive should not wait for it.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Final, NoReturn, Self
from urllib.parse import quote
from uuid import uuid4
from weakref import WeakSet

import aio_pika

from penstock.client.amqp10.contents import write
from penstock.client.amqp10.endpoint import parse_endpoint
from penstock.client.amqp10.inlet import Inlet
from penstock.client.amqp10.outlet import Outlet
from penstock.client.amqp10.replies import Replies
from penstock.client.amqp10.requester import Requester
from penstock.client.amqp10.sources import (
    Calls,
    Replay,
    Source,
    Subscription,
    Work,
    queue_address,
)
from penstock.client.amqp10.trunk import Trunk
from penstock.client.body import Body, encode_body
from penstock.client.fabric import FAST_PREFETCH, WORK_PREFETCH, Handler, Headers, Start
from penstock.client.inflow import Inflow
from penstock.client.message import Message
from penstock.client.outflow import Outflow
from penstock.client.service import Service
from penstock.core.errors import Unsupported
from penstock.wire.amqp10.message import Properties

TOPIC: Final = "amq.topic"


class Amqp10Fabric:
    """Keeps `penstock.client.fabric.Fabric`."""

    def __init__(
        self, url: str, *, tls: ssl.SSLContext | None = None, patience: float = 0.0
    ) -> None:
        endpoint = parse_endpoint(url)
        self._outward = Trunk(endpoint, "-sender", tls, patience)
        self._inward = Trunk(endpoint, "", tls, patience)
        self._outlets: dict[str, Outlet] = {}
        self._inlets: WeakSet[Inlet] = WeakSet()
        self._replies = Replies(self._outward)
        self._requester = Requester(self._outward, self._replies)

    @property
    def amqp(self) -> aio_pika.RobustConnection:
        raise Unsupported("this fabric speaks AMQP 1.0: connect to an amqp:// URL for 0-9-1")

    @property
    def mqtt(self) -> NoReturn:
        raise Unsupported("this fabric speaks AMQP 1.0: connect to an mqtt:// URL for MQTT")

    @property
    def blocked(self) -> bool:
        return any(outlet.blocked for outlet in self._outlets.values())

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
        return self._outflow(self._outlet(f"/exchange/{quote(exchange, safe='')}"), address)

    def subscribe(
        self,
        *patterns: str,
        name: str | None = None,
        exchange: str = TOPIC,
        prefetch: int = FAST_PREFETCH,
    ) -> Inflow:
        return self._inflow(Subscription(patterns or ("#",), exchange, name, prefetch))

    def push(self, queue: str) -> Outflow:
        return self._outflow(self._outlet(queue_address(queue), makes=True))

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
        if subjects:
            raise Unsupported(
                "AMQP 1.0 cannot bind a stream to subjects: make it over an amqp:// URL first"
            )
        arguments: dict[str, Any] = {"x-queue-type": "stream"}
        if max_age is not None:
            arguments["x-max-age"] = max_age
        if max_bytes is not None:
            arguments["x-max-length-bytes"] = max_bytes
        address = f"/stream/{quote(name, safe='')}"
        return self._outflow(self._outlet(address, makes=True, arguments=arguments))

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
        await self._replies.close()
        for outlet in self._outlets.values():
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

    def _outflow(self, outlet: Outlet, subject: str | None = None) -> Outflow:
        async def post(
            body: Body, headers: Headers | None, ttl: float | None, message_id: str | None
        ) -> Any:
            content, content_type = encode_body(body)
            properties = Properties(
                message_id=message_id or uuid4().hex, subject=subject, content_type=content_type
            )
            return await outlet.post(write(content, properties, headers=headers, ttl=ttl))

        return Outflow(post)

    def _outlet(
        self, address: str, *, makes: bool = False, arguments: dict[str, Any] | None = None
    ) -> Outlet:
        """The outlet to this address: one for all who send to it, so that order is kept."""
        outlet = self._outlets.get(address)
        if outlet is None:
            outlet = self._outlets[address] = Outlet(
                self._outward, address, mandatory=makes, makes=makes, arguments=arguments
            )
        return outlet

    def _inflow(self, source: Source, *, answers: bool = False) -> Inflow:
        inlet = Inlet(self._inward, source, self._replies)
        self._inlets.add(inlet)
        return Inflow(inlet, answers=answers)
