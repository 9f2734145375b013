"""Sends requests and cancel requests, replays dead letters, and receives responses."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import replace
from typing import Final, Protocol

from penstock.client.amqp091.channel import AmqpClientChannel
from penstock.client.amqp091.connection import AmqpClientConnection, AmqpRecoveringConnection
from penstock.client.url import BrokerProtocol, protocol_of
from penstock.core.basic_properties import PERSISTENT, BasicProperties, decode_header
from penstock.core.errors import PenstockError, WireSyntaxError
from penstock.core.telemetry import message_spans
from penstock.core.trace_context import TRACEPARENT
from penstock.wire.amqp091.address import AmqpAddress, parse_amqp_url
from penstock.wire.amqp091.content import AmqpContent
from penstock.wire.amqp091.errors import AmqpConnectionLost
from penstock_jobs.formats import MessageFormat, read_request, write_request
from penstock_jobs.model import JobOptions, JobRequest
from penstock_jobs.queue.properties import (
    ERROR,
    RequestProperties,
    read_request_properties,
    replay_properties,
    write_request_properties,
)
from penstock_jobs.queue.topology import (
    CONTROL,
    RESPONSES,
    TYPES,
    Durability,
    dead_name,
    declare,
    declare_control,
    request_name,
)
from penstock_jobs.queue.worker_connection import CancelRequest, write_cancel_request

#: A requester's response queue is deleted when it was not used for so long.
_QUEUE_MILLISECONDS: Final = 600_000

#: Called with the body of each response.
ResponseCallback = Callable[[bytes], None]
#: Called with the reason when no more responses will arrive.
FailureCallback = Callable[[PenstockError], None]


class JobRequester:
    """Sends requests over a connection of its own, which recovers by itself."""

    def __init__(
        self,
        address: AmqpAddress,
        durability: Durability = Durability.DURABLE,
        retry_seconds: float = 0.0,
    ) -> None:
        self._durability = durability
        self._link = AmqpRecoveringConnection(
            address, "penstock jobs requester", self._prepare, retry_seconds=retry_seconds
        )
        self._channel: AmqpClientChannel | None = None
        self._declared: set[str] = set()
        self._spans = message_spans()

    async def open(self) -> None:
        await self._link.open()

    async def close(self) -> None:
        await self._link.close()

    async def send(
        self,
        request: JobRequest,
        form: MessageFormat = MessageFormat.JSON,
        properties: RequestProperties | None = None,
    ) -> None:
        """Returns when the broker has confirmed it."""
        encoded = write_request(request, form)
        await self.send_encoded(
            request.type,
            encoded.body,
            write_request_properties(encoded, request.id, properties or RequestProperties()),
        )

    async def send_encoded(self, kind: str, body: bytes, properties: BasicProperties) -> None:
        exchange = request_name(kind)
        if self._spans is None:
            await self._publish(kind, exchange, "", body, properties)
        else:
            with self._spans.publishing(exchange, properties.headers) as headers:
                traced = replace(properties, headers=headers)
                await self._publish(kind, exchange, "", body, traced)

    async def cancel(self, identity: str, run: int | None = None) -> None:
        """Publish a cancel request to all workers, present and future."""
        body = write_cancel_request(CancelRequest(identity, time.time(), run))
        properties = BasicProperties("application/json", delivery_mode=PERSISTENT)
        await self._publish(CONTROL, "", CONTROL, body, properties)

    async def dead(
        self, kinds: Collection[str] = TYPES, limit: int = 1_000
    ) -> list[tuple[JobRequest, str]]:
        """Dead letters with their errors; they stay in their queues."""
        letters: list[tuple[JobRequest, str]] = []

        def list_only(content: AmqpContent, request: JobRequest) -> bool:
            headers = decode_header(content.header).headers or {}
            letters.append((request, str(headers.get(ERROR, ""))))
            return False

        await self._replay(kinds, limit, list_only)
        return letters

    async def replay(self, ids: Collection[str] | None = None, limit: int = 10_000) -> list[str]:
        """Submit dead letters again, all or some. Returns their ids."""
        replayed: list[str] = []

        def chosen(_: AmqpContent, request: JobRequest) -> bool:
            if ids is not None and request.id not in ids:
                return False
            replayed.append(request.id)
            return True

        await self._replay(TYPES, limit, chosen)
        return replayed

    async def _replay(
        self, kinds: Collection[str], limit: int, chosen: Callable[[AmqpContent, JobRequest], bool]
    ) -> None:
        """Read the dead letters; a transaction moves the chosen ones to the request queue."""
        connection = await self._link.connection()
        for kind in kinds:
            await self._ready_channel(kind)
            channel = await connection.channel()
            await channel.select()
            for _ in range(limit):
                content = await channel.get(dead_name(kind))
                if content is None:
                    break
                try:
                    request, _form = read_request(content.body)
                except PenstockError:
                    continue
                if chosen(content, request):
                    former = decode_header(content.header)
                    run = read_request_properties(former).run + 1
                    properties = replay_properties(former, run)
                    channel.publish(request_name(kind), "", content.body, properties)
                    channel.ack(content.tag)
            await channel.commit()
            await channel.close()  # requeues the others

    async def _prepare(self, connection: AmqpClientConnection) -> None:
        self._channel = channel = await connection.channel()
        await channel.confirm()
        self._declared.clear()

    async def _publish(
        self, declared: str, exchange: str, key: str, body: bytes, properties: BasicProperties
    ) -> None:
        """Published again, with the same id, if the connection is lost before the confirm."""
        while True:
            try:
                channel = await self._ready_channel(declared)
                return await channel.publish_confirmed(
                    exchange, key, body, properties, mandatory=True
                )
            except AmqpConnectionLost:
                continue

    async def _ready_channel(self, kind: str) -> AmqpClientChannel:
        """With the exchanges and queues of a type, or the stream of cancel requests, declared."""
        connection = await self._link.connection()
        if kind not in self._declared:
            if kind == CONTROL:
                await declare_control(connection)
            else:
                await declare(connection, kind, self._durability)
            self._declared.add(kind)
        assert self._channel is not None
        if self._channel.failure is not None and not connection.lost.done():
            self._channel = await connection.channel()  # the broker closed the former channel
            await self._channel.confirm()
        return self._channel


class RequesterConnection(Protocol):
    """Sends requests and receives their responses, over any protocol."""

    async def open(self, on_response: ResponseCallback, on_failure: FailureCallback) -> None:
        """Returns when responses from now on are received."""

    async def send(self, request: JobRequest, options: JobOptions, form: MessageFormat) -> None:
        """Returns when the broker has confirmed it."""

    async def cancel(self, identity: str) -> None: ...

    async def close(self) -> None: ...


def requester_connection(
    url: str, durability: Durability = Durability.DURABLE, retry_seconds: float = 0.0
) -> RequesterConnection:
    if protocol_of(url) is BrokerProtocol.AMQP10:
        from penstock_jobs.queue.amqp10 import Amqp10RequesterConnection

        return Amqp10RequesterConnection(url, durability, retry_seconds)
    return Amqp091RequesterConnection(url, durability, retry_seconds)


class Amqp091RequesterConnection:
    """Responses wait in a queue of the requester while its connection is lost."""

    def __init__(self, url: str, durability: Durability, retry_seconds: float) -> None:
        address = parse_amqp_url(url)
        self._token = uuid.uuid4().hex
        self._queue = f"penstock_jobs.client.{self._token}"
        self._requester = JobRequester(address, durability, retry_seconds)
        self._link = AmqpRecoveringConnection(
            address, "penstock jobs client", self._prepare, retry_seconds=retry_seconds
        )
        self._channel: AmqpClientChannel | None = None
        self._on_response: ResponseCallback

    async def open(self, on_response: ResponseCallback, on_failure: FailureCallback) -> None:
        self._on_response = on_response
        await self._link.open()
        assert self._link.failed is not None
        self._link.failed.add_done_callback(lambda failed: on_failure(failed.result()))
        try:
            await self._requester.open()
        except BaseException:
            await self._link.close()
            raise

    async def send(self, request: JobRequest, options: JobOptions, form: MessageFormat) -> None:
        await self._requester.send(
            request, form, RequestProperties(reply_to=self._token, options=options)
        )

    async def cancel(self, identity: str) -> None:
        await self._requester.cancel(identity)

    async def close(self) -> None:
        await self._requester.close()
        if self._channel is not None:
            with suppress(PenstockError):  # without a connection the queue expires
                await self._channel.delete_queue(self._queue)
        await self._link.close()

    async def _prepare(self, connection: AmqpClientConnection) -> None:
        self._channel = channel = await connection.channel()
        await channel.declare_exchange(RESPONSES, "direct")
        await channel.declare_queue(self._queue, arguments={"x-expires": _QUEUE_MILLISECONDS})
        await channel.bind(self._queue, RESPONSES, self._token)

        spans = message_spans()

        def receive(contents: list[AmqpContent]) -> None:
            for content in contents:
                if spans is not None:
                    with suppress(WireSyntaxError):
                        headers = decode_header(content.header).headers or {}
                        if TRACEPARENT in headers:  # not of progress
                            spans.receive(RESPONSES, headers, content.body)
                self._on_response(content.body)
            channel.ack(contents[-1].tag, multiple=True)

        channel.on_deliveries = receive
        await channel.consume(self._queue, "responses")
