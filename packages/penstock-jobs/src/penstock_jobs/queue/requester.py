"""Sends requests and cancel requests, replays dead letters, and receives responses."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Protocol

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
    declare_response_queue,
    request_name,
    response_queue,
)
from penstock_jobs.queue.worker_connection import CancelRequest, write_cancel_request

#: Called with the body of each response.
ResponseCallback = Callable[[bytes], None]
#: Called with the reason when no more responses will arrive.
FailureCallback = Callable[[PenstockError], None]


class JobRequester(Protocol):
    """Sends requests over a connection of its own, which recovers by itself; over any protocol."""

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def send(self, kind: str, body: bytes, properties: BasicProperties) -> None:
        """Returns when the broker has confirmed it."""

    async def cancel(self, identity: str, run: int | None = None) -> None:
        """Publish a cancel request to all workers, present and future."""

    async def dead(
        self, kinds: Collection[str] = TYPES, limit: int = 1_000
    ) -> list[tuple[JobRequest, str]]:
        """Dead letters with their errors; they stay in their queues."""

    async def replay(self, ids: Collection[str] | None = None, limit: int = 10_000) -> list[str]:
        """Submit dead letters again, all or some. Returns their ids."""


def job_requester(
    url: str, durability: Durability = Durability.DURABLE, retry_seconds: float = 0.0
) -> JobRequester:
    if protocol_of(url) is BrokerProtocol.AMQP10:
        from penstock_jobs.queue.amqp10 import Amqp10JobRequester

        return Amqp10JobRequester(url, durability, retry_seconds)
    return Amqp091JobRequester(parse_amqp_url(url), durability, retry_seconds)


async def send_request(
    requester: JobRequester,
    request: JobRequest,
    form: MessageFormat = MessageFormat.JSON,
    properties: RequestProperties | None = None,
) -> None:
    encoded = write_request(request, form)
    given = write_request_properties(encoded, request.id, properties or RequestProperties())
    await requester.send(request.type, encoded.body, given)


@contextmanager
def traced_properties(exchange: str, properties: BasicProperties) -> Iterator[BasicProperties]:
    """With the trace of the request, if spans are recorded; the span is that of the publish."""
    spans = message_spans()
    if spans is None:
        yield properties
    else:
        with spans.publishing(exchange, properties.headers) as headers:
            yield replace(properties, headers=headers)


class DeadLetterChoice:
    """Which dead letters are submitted again; those that are read are listed with their errors."""

    def __init__(self, ids: Collection[str] | None) -> None:
        self._ids = ids
        self.letters: list[tuple[JobRequest, str]] = []
        self.replayed: list[str] = []

    def read(self, body: bytes, properties: BasicProperties) -> BasicProperties | None:
        """The properties to submit it again with; None if it stays, or is no request."""
        try:
            request, _ = read_request(body)
        except PenstockError:
            return None
        error = (properties.headers or {}).get(ERROR, "")
        self.letters.append((request, str(error)))
        if self._ids is not None and request.id not in self._ids:
            return None
        self.replayed.append(request.id)
        return replay_properties(properties, read_request_properties(properties).run + 1)


class Amqp091JobRequester:
    """Implements `JobRequester`."""

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

    async def open(self) -> None:
        await self._link.open()

    async def close(self) -> None:
        await self._link.close()

    async def send(self, kind: str, body: bytes, properties: BasicProperties) -> None:
        exchange = request_name(kind)
        with traced_properties(exchange, properties) as traced:
            await self._publish(kind, exchange, "", body, traced)

    async def cancel(self, identity: str, run: int | None = None) -> None:
        body = write_cancel_request(CancelRequest(identity, time.time(), run))
        properties = BasicProperties("application/json", delivery_mode=PERSISTENT)
        await self._publish(CONTROL, "", CONTROL, body, properties)

    async def dead(
        self, kinds: Collection[str] = TYPES, limit: int = 1_000
    ) -> list[tuple[JobRequest, str]]:
        choice = DeadLetterChoice(())
        await self._replay(kinds, limit, choice)
        return choice.letters

    async def replay(self, ids: Collection[str] | None = None, limit: int = 10_000) -> list[str]:
        choice = DeadLetterChoice(ids)
        await self._replay(TYPES, limit, choice)
        return choice.replayed

    async def _replay(self, kinds: Collection[str], limit: int, choice: DeadLetterChoice) -> None:
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
                properties = choice.read(content.body, decode_header(content.header))
                if properties is not None:
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
        self._queue = response_queue(self._token)
        self._requester = Amqp091JobRequester(address, durability, retry_seconds)
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
        given = RequestProperties(reply_to=self._token, options=options)
        await send_request(self._requester, request, form, given)

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
        await declare_response_queue(channel, self._token)

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
