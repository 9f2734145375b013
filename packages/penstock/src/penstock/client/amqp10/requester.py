"""Requests over AMQP 1.0.

Requests go to the queue named as the service, which has to exist: if no program serves it, that is
known immediately. Replies arrive at a dynamic node, which ends with the connection.
"""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import quote

from penstock.client.amqp10.connection import Amqp10RecoveringConnection
from penstock.client.amqp10.consumer import Amqp10Consumer, Amqp10NodeSource
from penstock.client.amqp10.message import (
    TYPE,
    Amqp10Delivery,
    encode_payload,
    read_message,
)
from penstock.client.amqp10.publisher import Amqp10Publisher, Amqp10ReplySender
from penstock.client.errors import FabricClosed
from penstock.client.message import ReceivedMessage, encode_body
from penstock.client.requester import PendingRequests, ServiceRequest
from penstock.core.errors import PenstockError
from penstock.wire.amqp10.links import IncomingDelivery
from penstock.wire.amqp10.message import Amqp10Properties
from penstock.wire.amqp10.performatives import DeliveryState, LinkSource
from penstock.wire.amqp10.session import Amqp10Session

PREFETCH: Final = 500


class Amqp10Requester:
    """Sends requests, any number at a time, with one node for the replies."""

    def __init__(self, connection: Amqp10RecoveringConnection, replies: Amqp10ReplySender) -> None:
        self.requests = PendingRequests(self._send)
        self._connection = connection
        self._replies = replies
        self._services: dict[str, Amqp10Publisher] = {}
        self._consumer: Amqp10Consumer | None = None
        self._reader: asyncio.Task[None] | None = None

    async def close(self) -> None:
        self.failed(FabricClosed("the fabric was closed"))
        self._connection.leave(self)
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        if self._consumer is not None:
            await self._consumer.close()
        for publisher in self._services.values():
            await publisher.close()

    # Events of the connection.

    def resume(self, session: Amqp10Session) -> None:
        """The consumer of the replies attaches its link itself."""

    def paused(self) -> None:
        self.requests.interrupted()

    def failed(self, error: PenstockError) -> None:
        self.requests.failed(error)

    async def _send(self, request: ServiceRequest, reply: asyncio.Future[ReceivedMessage]) -> None:
        content, content_type = encode_body(request.body)
        properties = Amqp10Properties(
            message_id=request.message_id,
            reply_to=await self._reply_address(),
            correlation_id=request.correlation_id,
            content_type=content_type,
        )
        payload = encode_payload(
            content, properties, headers=request.headers, ttl=request.timeout, durable=False
        )
        sent = await self._publisher_for(request.service).post(payload)
        await asyncio.wait((sent, reply), return_when=asyncio.FIRST_COMPLETED)
        if sent.done():
            sent.result()

    async def _reply_address(self) -> str:
        if self._consumer is None:
            self._consumer = consumer = Amqp10Consumer(
                self._connection,
                Amqp10NodeSource(
                    "replies", PREFETCH, LinkSource(None, dynamic=True), redelivers=False
                ),
                self._replies,
            )
            self._connection.watch(self)
            self._reader = asyncio.create_task(self._read(consumer))
        await self._consumer.open()
        return self._consumer.address

    async def _read(self, consumer: Amqp10Consumer) -> None:
        try:
            while True:
                message, _ = await consumer.take()
                delivery = Amqp10Delivery(message, None, _ignore_outcome, self._replies)
                reply = read_message(message, delivery)
                kind = (message.message_annotations or {}).get(TYPE)
                self.requests.received(reply.correlation_id or "", reply, kind)
        except PenstockError as error:
            self._consumer = None  # the next request tries again
            self._connection.leave(self)
            self.failed(error)

    def _publisher_for(self, service: str) -> Amqp10Publisher:
        publisher = self._services.get(service)
        if publisher is None:
            address = f"/amq/queue/{quote(service, safe='')}"
            publisher = self._services[service] = Amqp10Publisher(
                self._connection, address, mandatory=True
            )
        return publisher


def _ignore_outcome(delivery: IncomingDelivery, state: DeliveryState) -> None:
    """Replies arrive settled."""
