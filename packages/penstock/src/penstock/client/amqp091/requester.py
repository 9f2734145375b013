"""Requests over AMQP 0-9-1.

Requests are mandatory messages to the queue named as the service: the broker returns one that no
program serves. Replies arrive by direct reply-to (`amq.rabbitmq.reply-to`), which needs no queue
and belongs to the channel of the request.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from penstock.client.amqp091.channel import AmqpClientChannel
from penstock.client.amqp091.connection import AmqpRecoveringConnection, permanent_cause
from penstock.client.amqp091.consumer import AmqpArrival, read_message
from penstock.client.amqp091.publisher import AmqpPublisher, message_properties
from penstock.client.errors import FabricClosed
from penstock.client.message import ReceivedMessage, encode_body
from penstock.client.requester import PendingRequests, ReplyLost, ServiceRequest, fail_reply
from penstock.core.basic_properties import TRANSIENT, decode_header, encode_header, encode_route
from penstock.core.errors import PenstockError, WireSyntaxError
from penstock.core.logs import get_logger
from penstock.wire.amqp091.content import AmqpContent
from penstock.wire.amqp091.errors import AmqpConnectionLost

log = get_logger(__name__)

REPLY_TO: Final = "amq.rabbitmq.reply-to"


class AmqpRequester:
    """Sends requests, any number at a time, over one channel."""

    def __init__(self, connection: AmqpRecoveringConnection, replies: AmqpPublisher) -> None:
        self.requests = PendingRequests(self._send)
        self._connection = connection
        self._replies = replies
        self._opening = asyncio.Lock()
        self._channel: AmqpClientChannel | None = None

    async def close(self) -> None:
        self.requests.failed(FabricClosed("the fabric was closed"))
        if self._channel is not None:
            await self._channel.close()

    async def _send(self, request: ServiceRequest, reply: asyncio.Future[ReceivedMessage]) -> None:
        content, content_type = encode_body(request.body)
        properties = message_properties(
            content_type,
            headers=request.headers,
            ttl=request.timeout,
            message_id=request.message_id,
            mode=TRANSIENT,
        )
        properties.reply_to = REPLY_TO
        properties.correlation_id = request.correlation_id
        header = encode_header(properties, len(content))
        route = encode_route("", request.service)
        channel = await self._reply_channel()
        try:
            channel.post_encoded(
                route, header, content, partial(_on_outcome, reply), mandatory=True
            )
        except AmqpConnectionLost:
            raise ReplyLost from None

    async def _reply_channel(self) -> AmqpClientChannel:
        async with self._opening:
            if self._channel is None or self._channel.failure is not None:
                await self._connection.flow()
                self._channel = await self._connection.channel(self._listen, confirm=True)
            return self._channel

    async def _listen(self, channel: AmqpClientChannel) -> None:
        channel.on_deliveries = partial(self._received, channel)
        channel.on_closed = lambda _: self.requests.interrupted()
        await channel.consume(REPLY_TO, "", no_ack=True)

    def _received(self, channel: AmqpClientChannel, contents: list[AmqpContent]) -> None:
        for content in contents:
            try:
                properties = decode_header(content.header)
            except WireSyntaxError as error:
                log.warning("reply not readable", reason=str(error))
                continue
            arrival = AmqpArrival(channel, content, properties)
            reply = read_message(arrival, 0, self._replies)
            self.requests.received(properties.correlation_id or "", reply, properties.type)


def _on_outcome(reply: asyncio.Future[ReceivedMessage], error: PenstockError | None) -> None:
    if error is not None:
        fail_reply(reply, permanent_cause(error) or ReplyLost())
