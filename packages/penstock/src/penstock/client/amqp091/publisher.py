"""Publishing with confirms, across reconnects.

A publisher sends to one exchange over one channel in confirm mode. It holds unconfirmed messages in
order. After a lost connection the next channel sends them again, in that order and with the same
message ids: at least once. If the broker closes the channel because of a message (no such exchange,
no permission), all unconfirmed messages of the channel fail with the broker's reason.

`post` waits while the window of unconfirmed messages is full and while the connection is blocked.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from uuid import uuid4

from penstock.client.amqp091.channel import AmqpClientChannel
from penstock.client.amqp091.connection import (
    AmqpRecoveringConnection,
    RetryOnNewChannel,
    SetupChannel,
    permanent_cause,
)
from penstock.client.errors import FabricClosed
from penstock.client.message import Body, Headers, encode_body
from penstock.client.sender import InflightWindow, MessageSender, settle
from penstock.core.basic_properties import (
    PERSISTENT,
    BasicProperties,
    encode_header,
    encode_route,
)
from penstock.core.errors import NoRoute, PenstockError


@dataclass(slots=True, eq=False)
class UnconfirmedMessage:
    route: bytes
    header: bytes
    body: bytes
    confirmed: asyncio.Future[None]
    returned: bool = False  #: once, because its queue had been deleted


class AmqpPublisher:
    """Publishes to one exchange. `setup` declares what the messages need."""

    def __init__(
        self,
        connection: AmqpRecoveringConnection,
        exchange: str,
        setup: SetupChannel | None = None,
        *,
        mandatory: bool = False,
    ) -> None:
        self._connection = connection
        self._exchange = exchange
        self._setup = setup
        self._mandatory = mandatory
        self._window = InflightWindow()
        self._unconfirmed: dict[UnconfirmedMessage, None] = {}  # in order
        self._channel: AmqpClientChannel | None = None
        self._recovery: asyncio.Task[None] | None = None
        self._resends: set[asyncio.Task[None]] = set()
        self._closed = False

    async def post(
        self, routing_key: str, body: bytes, properties: BasicProperties
    ) -> asyncio.Future[None]:
        """Send when there is space in the window; the future is done at the confirm."""
        route = encode_route(self._exchange, routing_key)
        header = encode_header(properties, len(body))
        confirmed = await self._window.admit(len(body), self._ready)
        message = UnconfirmedMessage(route, header, body, confirmed)
        self._unconfirmed[message] = None
        if self._recovery is None:
            self._recovery = asyncio.create_task(self._recover())
        elif self._channel is not None:
            self._send(self._channel, message)
        return confirmed

    async def close(self) -> None:
        self._closed = True
        tasks = [*self._resends, *([self._recovery] if self._recovery else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._fail(FabricClosed("the fabric was closed before the broker confirmed the message"))
        if self._channel is not None:
            await self._channel.close()

    async def _ready(self) -> None:
        await self._connection.flow()
        if self._closed:
            raise FabricClosed("the fabric is closed")

    async def _recover(self) -> None:
        """Open a channel, send what is unconfirmed, and again when the channel is closed."""
        while True:
            try:
                channel = await self._connection.channel(self._setup, confirm=True)
            except Exception as error:
                self._recovery = None  # the next post tries again
                self._fail(error)
                return
            self._channel = channel
            for message in list(self._unconfirmed):
                self._send(channel, message)
            reason = await channel.closed()
            self._channel = None
            if (permanent := permanent_cause(reason)) is not None:
                self._fail(permanent)

    def _send(self, channel: AmqpClientChannel, message: UnconfirmedMessage) -> None:
        if message.confirmed.done():  # cancelled by its sender
            self._unconfirmed.pop(message, None)
            return
        try:
            channel.post_encoded(
                message.route,
                message.header,
                message.body,
                partial(self._on_outcome, channel, message),
                mandatory=self._mandatory,
            )
        except PenstockError as error:  # the header does not fit into a frame, say
            if channel.failure is None:
                self._settle(message, error)

    def _on_outcome(
        self,
        channel: AmqpClientChannel,
        message: UnconfirmedMessage,
        error: PenstockError | None,
    ) -> None:
        if error is None:
            self._settle(message)
        elif channel.failure is not None:
            pass  # the next channel sends it again, unless the reason is permanent
        elif isinstance(error, NoRoute) and self._setup is not None and not message.returned:
            message.returned = True
            resend = asyncio.create_task(self._send_returned(channel, message, self._setup))
            self._resends.add(resend)
            resend.add_done_callback(self._resends.discard)
        else:
            self._settle(message, error)

    async def _send_returned(
        self, channel: AmqpClientChannel, message: UnconfirmedMessage, setup: SetupChannel
    ) -> None:
        """The queue may have been deleted: declare it again and send once more."""
        try:
            await setup(channel)
        except (PenstockError, RetryOnNewChannel) as error:
            if channel.failure is None and isinstance(error, PenstockError):
                self._settle(message, error)
        else:
            self._send(channel, message)

    def _settle(self, message: UnconfirmedMessage, error: BaseException | None = None) -> None:
        self._unconfirmed.pop(message, None)
        settle(message.confirmed, error)

    def _fail(self, error: BaseException) -> None:
        for message in list(self._unconfirmed):
            self._settle(message, error)


def message_properties(
    content_type: str | None,
    *,
    headers: Headers | None = None,
    ttl: float | None = None,
    message_id: str | None = None,
    mode: int = PERSISTENT,
) -> BasicProperties:
    return BasicProperties(
        content_type,
        headers=dict(headers) if headers else None,
        delivery_mode=mode,
        expiration=None if ttl is None else str(max(0, round(ttl * 1000))),
        message_id=message_id or uuid4().hex,
        timestamp=int(time.time()),
    )


def create_sender(publisher: AmqpPublisher, routing_key: str) -> MessageSender:
    async def post(
        body: Body, headers: Headers | None, ttl: float | None, message_id: str | None
    ) -> asyncio.Future[None]:
        content, content_type = encode_body(body)
        properties = message_properties(
            content_type, headers=headers, ttl=ttl, message_id=message_id
        )
        return await publisher.post(routing_key, content, properties)

    return MessageSender(post)
