"""Sends requests, wishes about them, and takes dead letters up again."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final, Protocol

from penstock.client.amqp091.channel import AmqpClientChannel
from penstock.client.amqp091.connection import AmqpClientConnection, AmqpRecoveringConnection
from penstock.core.basic_properties import PERSISTENT, BasicProperties, decode_header
from penstock.core.errors import PenstockError
from penstock.wire.amqp091.address import AmqpAddress, parse_amqp_url
from penstock.wire.amqp091.content import AmqpContent
from penstock.wire.amqp091.errors import AmqpConnectionLost
from penstock_jobs.errors import JobFormatError
from penstock_jobs.formats import EncodedMessage, MessageFormat, read_request, write_request
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


class JobRequester:
    """Over a connection of its own, which mends itself; nothing is sent twice knowingly."""

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

    async def send(
        self,
        request: JobRequest,
        form: MessageFormat = MessageFormat.JSON,
        request_properties: RequestProperties | None = None,
    ) -> EncodedMessage:
        """Returns when the broker has it safe. What was sent."""
        written = write_request(request, form)
        said = write_request_properties(
            written, request.id, request_properties or RequestProperties()
        )
        await self.send_written(request.type, written.body, said)
        return written

    async def send_written(self, kind: str, body: bytes, said: BasicProperties) -> None:
        """A connection that breaks before the broker's word is tried again, with the same id."""
        while True:
            try:
                channel = await self._ready(kind)
                return await channel.publish_safely(
                    request_name(kind), "", body, said, mandatory=True
                )
            except AmqpConnectionLost:
                continue

    async def cancel(self, identity: str, run: int | None = None) -> None:
        """Tell all workers, and those that will come; of a run, where it is known which."""
        body = write_cancel_request(CancelRequest(identity, time.time(), run))
        while True:
            try:
                connection = await self._link.connection()
                if CONTROL not in self._declared:
                    await declare_control(connection)
                    self._declared.add(CONTROL)
                channel = await self._ready(None)
                return await channel.publish_safely(
                    "", CONTROL, body, BasicProperties("application/json", delivery_mode=PERSISTENT)
                )
            except AmqpConnectionLost:
                continue

    async def dead(
        self, kinds: Collection[str] = TYPES, most: int = 1_000
    ) -> list[tuple[JobRequest, str]]:
        """Dead letters, and what was wrong; they stay where they are."""
        found: list[tuple[JobRequest, str]] = []

        def look(content: AmqpContent, request: JobRequest) -> bool:
            headers = decode_header(content.header).headers or {}
            found.append((request, str(headers.get(ERROR, ""))))
            return False

        await self._walk(kinds, most, look)
        return found

    async def replay(self, ids: Collection[str] | None = None, most: int = 10_000) -> list[str]:
        """Ask for dead ones again, all or some. Which."""
        raised_ids: list[str] = []

        def wanted(_: AmqpContent, request: JobRequest) -> bool:
            if ids is not None and request.id not in ids:
                return False
            raised_ids.append(request.id)
            return True

        await self._walk(TYPES, most, wanted)
        return raised_ids

    async def _walk(
        self, kinds: Collection[str], most: int, wanted: Callable[[AmqpContent, JobRequest], bool]
    ) -> None:
        """Look at dead letters; those that are wanted are sent again and leave, in one go."""
        connection = await self._link.connection()
        for kind in kinds:
            await self._ready(kind)
            channel = await connection.channel()
            await channel.select()
            for _ in range(most):
                content = await channel.get(dead_name(kind))
                if content is None:
                    break
                request = _request(content)
                if request is None or not wanted(content, request):
                    continue
                said = decode_header(content.header)
                again = replay_properties(said, read_request_properties(said).run + 1)
                channel.publish(request_name(kind), "", content.body, again)
                channel.ack(content.tag)
            await channel.commit()
            await channel.close()  # what was looked at goes back

    async def _prepare(self, connection: AmqpClientConnection) -> None:
        self._channel = channel = await connection.channel()
        await channel.confirm()
        self._declared.clear()

    async def _ready(self, kind: str | None) -> AmqpClientChannel:
        connection = await self._link.connection()
        if kind is not None and kind not in self._declared:
            await declare(connection, kind, self._durability)
            self._declared.add(kind)
        assert self._channel is not None
        if self._channel.failure is not None and not connection.lost.done():
            self._channel = await connection.channel()  # it was closed for a mistake
            await self._channel.confirm()
        return self._channel


def _request(content: AmqpContent) -> JobRequest | None:
    try:
        return read_request(content.body)[0]
    except (JobFormatError, PenstockError):
        return None


# A requester's place on a broker: requests leave from it, and the responses to them come to it.
#
# Whichever protocol leads there: `requester_connection` picks it by the URL. Over AMQP 0-9-1
# responses wait in a queue of the requester's own while its connection is broken.

#: Whose URLs lead to AMQP 1.0.
_AMQP10_SCHEMES: Final = ("amqp+1.0://", "amqps+1.0://")
#: Responses to a requester that does not come back.
_QUEUE_MILLISECONDS: Final = 600_000

#: Told the body of each response.
ResponseCallback = Callable[[bytes], None]
#: Told why there will be no other.
FailureCallback = Callable[[PenstockError], None]


class RequesterConnection(Protocol):
    async def open(self, hear: ResponseCallback, fail: FailureCallback) -> None:
        """Returns when what is answered from now on is heard."""

    async def send(self, request: JobRequest, options: JobOptions, form: MessageFormat) -> None:
        """Returns when the broker has it safe."""

    async def cancel(self, identity: str) -> None: ...

    async def close(self) -> None: ...


def is_amqp10_url(url: str) -> bool:
    return url.startswith(_AMQP10_SCHEMES)


def requester_connection(
    url: str, durability: Durability = Durability.DURABLE, retry_seconds: float = 0.0
) -> RequesterConnection:
    if is_amqp10_url(url):
        from penstock_jobs.queue.amqp10 import Amqp10RequesterConnection

        return Amqp10RequesterConnection(url, retry_seconds)
    return Amqp091RequesterConnection(url, durability, retry_seconds)


class Amqp091RequesterConnection:
    def __init__(self, url: str, durability: Durability, retry_seconds: float) -> None:
        address = parse_amqp_url(url)
        self._token = uuid.uuid4().hex
        self._queue = f"penstock_jobs.client.{self._token}"
        self._requester = JobRequester(address, durability, retry_seconds)
        self._link = AmqpRecoveringConnection(
            address, "penstock jobs client", self._prepare, retry_seconds=retry_seconds
        )
        self._channel: AmqpClientChannel | None = None
        self._hear: ResponseCallback

    async def open(self, hear: ResponseCallback, fail: FailureCallback) -> None:
        self._hear = hear
        await self._link.open()
        assert self._link.failed is not None
        self._link.failed.add_done_callback(lambda failed: fail(failed.result()))
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
            with suppress(PenstockError):  # without a connection it goes when its time is over
                await self._channel.delete_queue(self._queue)
        await self._link.close()

    async def _prepare(self, connection: AmqpClientConnection) -> None:
        self._channel = channel = await connection.channel()
        await channel.declare_exchange(RESPONSES, "direct")
        await channel.declare_queue(self._queue, arguments={"x-expires": _QUEUE_MILLISECONDS})
        await channel.bind(self._queue, RESPONSES, self._token)

        def take(contents: list[AmqpContent]) -> None:
            for content in contents:
                self._hear(content.body)
            channel.ack(contents[-1].tag, multiple=True)

        channel.on_deliveries = take
        await channel.consume(self._queue, "responses")
