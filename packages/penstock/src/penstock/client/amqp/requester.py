"""The asking side of request/reply.

Requests go to the queue named by the service, marked mandatory: one that nobody serves comes back
at once. Answers come over the broker's direct reply-to (`amq.rabbitmq.reply-to`), which needs no
queue and ties the asker's channel to its answers. When that channel ends, its answers are lost
with it, so what is unanswered is asked again on the next, with the same message id: a service may
see a request twice, as it may when one of its servers dies at work.
"""

from __future__ import annotations

import asyncio
from typing import Final
from uuid import uuid4

from aiormq import Channel
from aiormq import exceptions as aiormq
from aiormq.abc import DeliveredMessage

from penstock.client.amqp.connection import (
    AioPikaConnection,
    close_quietly,
    is_transient,
    to_penstock_error,
)
from penstock.client.amqp.consumer import AmqpDelivery, read_error, read_message
from penstock.client.amqp.publisher import TRANSIENT, AmqpPublisher, encode_message
from penstock.client.errors import FabricClosed, NoReply, NoService
from penstock.client.fabric import Headers
from penstock.client.message import Body, ReceivedMessage

REPLY_TO: Final = "amq.rabbitmq.reply-to"
#: After a break the service has to come back as well; meanwhile its absence proves nothing.
RETRY_SECONDS: Final = 0.1


class AmqpRequester:
    """Asks services, any number of questions at a time, over one channel."""

    def __init__(self, connection: AioPikaConnection, replies: AmqpPublisher) -> None:
        self._connection = connection
        self._replies = replies
        self._opening = asyncio.Lock()
        self._channel: Channel | None = None
        self._unanswered: dict[str, asyncio.Future[DeliveredMessage]] = {}

    async def request(
        self, service: str, body: Body, headers: Headers | None, timeout: float | None
    ) -> ReceivedMessage:
        try:
            async with asyncio.timeout(timeout):
                delivered = await self._ask(service, body, headers, timeout)
        except TimeoutError:
            raise NoReply(f"{service!r} has not answered within {timeout:g} s") from None
        except aiormq.AMQPError as error:
            raise to_penstock_error(error) from error
        if (failure := read_error(delivered)) is not None:
            raise failure
        return read_message(delivered, AmqpDelivery(delivered, 0, self._replies))

    async def close(self) -> None:
        for answer in self._unanswered.values():
            if not answer.done():
                answer.set_exception(FabricClosed("the fabric was closed before the answer came"))
        if self._channel is not None:
            await close_quietly(self._channel)

    async def _ask(
        self, service: str, body: Body, headers: Headers | None, timeout: float | None
    ) -> DeliveredMessage:
        content, properties = encode_message(body, headers=headers, ttl=timeout, mode=TRANSIENT)
        properties.reply_to = REPLY_TO
        properties.correlation_id = correlation = uuid4().hex
        broken = False
        while True:
            channel = await self._ready()
            answer: asyncio.Future[DeliveredMessage] = asyncio.Future()
            self._unanswered[correlation] = answer
            try:
                await channel.basic_publish(
                    content, routing_key=service, properties=properties, mandatory=True, wait=False
                )
                return await answer
            except aiormq.PublishError:
                if not broken:
                    raise NoService(f"nobody serves {service!r}") from None
                await asyncio.sleep(RETRY_SECONDS)
            except BaseException as error:
                if not is_transient(error):
                    raise
                broken = True
            finally:
                del self._unanswered[correlation]

    async def _ready(self) -> Channel:
        """The channel that answers come back on."""
        async with self._opening:
            if self._channel is None or self._channel.is_closed:
                await self._connection.flowing()
                self._channel = await self._connection.channel(self._listen, confirms=True)
            return self._channel

    async def _listen(self, channel: Channel) -> None:
        await channel.basic_consume(REPLY_TO, self._answered, no_ack=True)
        channel.closing.add_done_callback(lambda _: self._lost())

    async def _answered(self, delivered: DeliveredMessage) -> None:
        answer = self._unanswered.get(delivered.header.properties.correlation_id or "")
        if answer is not None and not answer.done():
            answer.set_result(delivered)

    def _lost(self) -> None:
        """The channel is gone, and the answers with it."""
        for answer in self._unanswered.values():
            answer.cancel()
