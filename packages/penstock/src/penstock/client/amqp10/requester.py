"""The asking side of request/reply.

Requests go to the queue named by the service, which has to be there: a service that nobody offers
is known at once. Answers come to a node that the broker makes for us, which goes with the
connection; so when that breaks, what is unanswered is asked again on the next, with the same
message id. A service may see a request twice, as it may when one of its servers dies at work.
"""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import quote
from uuid import uuid4

from penstock.client import message as client
from penstock.client.amqp10.connection import Amqp10RecoveringConnection
from penstock.client.amqp10.consumer import Amqp10Consumer, Amqp10ReplySource
from penstock.client.amqp10.message import (
    Amqp10Delivery,
    encode_payload,
    id_text,
    read_error,
    read_message,
)
from penstock.client.amqp10.publisher import Amqp10Publisher, Amqp10ReplySender
from penstock.client.errors import FabricClosed, NoReply, NoService
from penstock.client.fabric import Headers
from penstock.client.message import Body, encode_body
from penstock.core.errors import NoRoute, NotFound, PenstockError
from penstock.wire.amqp10.links import IncomingDelivery
from penstock.wire.amqp10.message import Amqp10Message, Amqp10Properties
from penstock.wire.amqp10.performatives import DeliveryState
from penstock.wire.amqp10.session import Amqp10Session

PREFETCH: Final = 500
#: After a break the service has to come back as well; meanwhile its absence proves nothing.
RETRY_SECONDS: Final = 0.1


class _ConnectionBroken(Exception):
    """The connection went, and the answer may have gone with it."""


class Amqp10Requester:
    """Asks services, any number of questions at a time, with one node for the answers."""

    def __init__(self, connection: Amqp10RecoveringConnection, replies: Amqp10ReplySender) -> None:
        self._connection = connection
        self._replies = replies
        self._services: dict[str, Amqp10Publisher] = {}
        self._answers: Amqp10Consumer | None = None
        self._reader: asyncio.Task[None] | None = None
        self._unanswered: dict[str, asyncio.Future[Amqp10Message]] = {}

    async def request(
        self, service: str, body: Body, headers: Headers | None, timeout: float | None
    ) -> client.ReceivedMessage:
        try:
            async with asyncio.timeout(timeout):
                answer = await self._ask(service, body, headers, timeout)
        except TimeoutError:
            raise NoReply(f"{service!r} has not answered within {timeout:g} s") from None
        read = read_message(answer, Amqp10Delivery(answer, None, _ignore_outcome, self._replies))
        if (failure := read_error(answer, read)) is not None:
            raise failure
        return read

    async def close(self) -> None:
        self._end(FabricClosed("the fabric was closed before the answer came"))
        self._connection.leave(self)
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        if self._answers is not None:
            await self._answers.close()
        for publisher in self._services.values():
            await publisher.close()

    # What the trunk says: answers that are on their way when a connection goes will not come.

    def resume(self, session: Amqp10Session) -> None:
        """The link for answers is the inlet's to attach."""

    def paused(self) -> None:
        self._end(_ConnectionBroken())

    def failed(self, error: PenstockError) -> None:
        if isinstance(error, FabricClosed):
            error = FabricClosed("the fabric was closed before the answer came")
        self._end(error)

    async def _ask(
        self, service: str, body: Body, headers: Headers | None, timeout: float | None
    ) -> Amqp10Message:
        content, content_type = encode_body(body)
        message_id, correlation = uuid4().hex, uuid4().hex
        broken = False
        while True:
            answer: asyncio.Future[Amqp10Message] = asyncio.get_running_loop().create_future()
            self._unanswered[correlation] = answer
            try:
                properties = Amqp10Properties(
                    message_id=message_id,
                    reply_to=await self._listen(),
                    correlation_id=correlation,
                    content_type=content_type,
                )
                payload = encode_payload(
                    content, properties, headers=headers, ttl=timeout, durable=False
                )
                sent = await self._publisher_for(service).post(payload)
                await asyncio.wait((sent, answer), return_when=asyncio.FIRST_COMPLETED)
                if sent.done():
                    sent.result()
                return await answer
            except (NotFound, NoRoute):
                if not broken:
                    raise NoService(f"nobody serves {service!r}") from None
                await asyncio.sleep(RETRY_SECONDS)
            except _ConnectionBroken:
                broken = True
            finally:
                del self._unanswered[correlation]

    async def _listen(self) -> str:
        """The address that answers come to."""
        if self._answers is None:
            self._answers = consumer = Amqp10Consumer(
                self._connection, Amqp10ReplySource(PREFETCH), self._replies
            )
            self._connection.watch(self)
            self._reader = asyncio.create_task(self._read(consumer))
        await self._answers.open()
        return self._answers.address

    async def _read(self, consumer: Amqp10Consumer) -> None:
        try:
            while True:
                message, _ = await consumer.take()
                asked = message.properties
                correlation = None if asked is None else id_text(asked.correlation_id)
                answer = self._unanswered.get(correlation or "")
                if answer is not None and not answer.done():
                    answer.set_result(message)
        except PenstockError as error:
            self._answers = None  # the next request tries again
            self._connection.leave(self)
            self._end(error)

    def _publisher_for(self, service: str) -> Amqp10Publisher:
        publisher = self._services.get(service)
        if publisher is None:
            address = f"/amq/queue/{quote(service, safe='')}"
            publisher = self._services[service] = Amqp10Publisher(
                self._connection, address, mandatory=True
            )
        return publisher

    def _end(self, error: Exception) -> None:
        for answer in self._unanswered.values():
            if not answer.done():
                answer.set_exception(error)


def _ignore_outcome(delivery: IncomingDelivery, state: DeliveryState) -> None:
    """An answer needs no answer."""
