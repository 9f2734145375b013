"""Sending until it is safe.

An outlet sends to one exchange over one channel in confirm mode. What the broker has not confirmed
is kept here in order; when the connection breaks, the next channel sends it again, in that order
and with the same message ids. So nothing is lost, and a receiver that minds can tell the copies.

How much may wait for its confirm is bounded: `post` waits for room, and also while the broker asks
senders to wait. When the broker ends the channel because of a message (no such exchange, no
permission), all that waited on it fails with the broker's reason, for nothing of it was confirmed.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

from aiormq import Channel
from aiormq import exceptions as aiormq
from pamqp.commands import Basic

from penstock.client.amqp.connection import (
    AioPikaConnection,
    SetupChannel,
    close_quietly,
    is_transient,
    to_penstock_error,
    wait_closed,
)
from penstock.client.errors import FabricClosed
from penstock.client.fabric import Headers
from penstock.client.message import Body, encode_body
from penstock.client.sender import ConfirmedSender, InflightWindow
from penstock.core.units import MiB

#: Enough to keep a connection busy, little enough to hold in memory.
WINDOW_MESSAGES: Final = 1000
WINDOW_BYTES: Final = 64 * MiB


@dataclass(slots=True, eq=False)
class UnconfirmedMessage:
    """A message on its way, and the promise given for it."""

    routing_key: str
    body: bytes
    properties: Basic.Properties
    confirmed: asyncio.Future[None]
    returned: bool = False


class AmqpPublisher:
    """One exchange to send to."""

    def __init__(
        self,
        connection: AioPikaConnection,
        exchange: str,
        prepare: SetupChannel | None = None,
        *,
        mandatory: bool = False,
    ) -> None:
        self._connection = connection
        self._exchange = exchange
        self._prepare = prepare
        self._mandatory = mandatory
        self._window = InflightWindow(WINDOW_MESSAGES, WINDOW_BYTES)
        self._waiting: dict[int, UnconfirmedMessage] = {}
        self._channel: Channel | None = None
        self._keeper: asyncio.Task[None] | None = None
        self._sendings: set[asyncio.Task[None]] = set()
        self._closed = False

    async def post(
        self, routing_key: str, body: bytes, properties: Basic.Properties
    ) -> asyncio.Future[None]:
        """Take a message, when there is room; the future tells when it is safe."""
        await self._window.enter(len(body))
        try:
            await self._connection.flowing()
            if self._closed:
                raise FabricClosed("the fabric is closed")
        except BaseException:
            self._window.leave(len(body))
            raise
        confirmed = asyncio.get_running_loop().create_future()
        posted = UnconfirmedMessage(routing_key, body, properties, confirmed)
        self._waiting[id(posted)] = posted
        confirmed.add_done_callback(lambda _: self._settled(posted))
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep_channel())
        elif self._channel is not None:
            self._dispatch(self._channel, posted)
        return confirmed

    async def close(self) -> None:
        self._closed = True
        tasks = [*self._sendings, *([self._keeper] if self._keeper else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._channel is not None:
            await close_quietly(self._channel)
        self._fail(FabricClosed("the fabric was closed before the broker confirmed the message"))

    async def _keep_channel(self) -> None:
        """Have a channel whenever something is to be sent; send again what the last one left."""
        while True:
            try:
                channel = await self._connection.channel(self._prepare, confirms=True)
            except Exception as error:
                self._keeper = None  # the next post tries again
                self._fail(to_penstock_error(error))
                return
            for posted in list(self._waiting.values()):
                self._dispatch(channel, posted)
            self._channel = channel
            reason = await wait_closed(channel)
            self._channel = None
            if reason is not None and not is_transient(reason):
                self._fail(to_penstock_error(reason))

    def _dispatch(self, channel: Channel, posted: UnconfirmedMessage) -> None:
        sending = asyncio.create_task(self._send(channel, posted))
        self._sendings.add(sending)
        sending.add_done_callback(self._sendings.discard)

    async def _send(self, channel: Channel, posted: UnconfirmedMessage) -> None:
        try:
            await channel.basic_publish(
                posted.body,
                exchange=self._exchange,
                routing_key=posted.routing_key,
                properties=posted.properties,
                mandatory=self._mandatory,
                wait=False,
            )
        except aiormq.PublishError as error:
            await self._send_returned(channel, posted, error)
        except aiormq.DeliveryError as error:
            _settle(posted, to_penstock_error(error))
        except Exception as error:
            # With the channel gone, the keeper of channels decides what becomes of the message.
            if not is_transient(error) and not channel.is_closed:
                _settle(posted, error)
        else:
            _settle(posted, None)

    async def _send_returned(
        self, channel: Channel, posted: UnconfirmedMessage, error: aiormq.PublishError
    ) -> None:
        """No queue took it. If ours was deleted meanwhile, declare it again and send once more."""
        if posted.returned or self._prepare is None:
            _settle(posted, to_penstock_error(error))
            return
        posted.returned = True
        try:
            await self._prepare(channel)
        except Exception as fault:
            if not is_transient(fault) and not channel.is_closed:
                _settle(posted, to_penstock_error(fault))
            return
        await self._send(channel, posted)

    def _settled(self, posted: UnconfirmedMessage) -> None:
        self._waiting.pop(id(posted), None)
        self._window.leave(len(posted.body))
        if not posted.confirmed.cancelled():
            posted.confirmed.exception()  # seen, even if whoever posted it does not look

    def _fail(self, error: BaseException) -> None:
        for posted in list(self._waiting.values()):
            _settle(posted, error)


def _settle(posted: UnconfirmedMessage, error: BaseException | None) -> None:
    if posted.confirmed.done():
        return
    if error is None:
        posted.confirmed.set_result(None)
    else:
        posted.confirmed.set_exception(error)


# Messages as AMQP 0-9-1 sends them, and one address of an outlet to send them to.

PERSISTENT: Final = 2
TRANSIENT: Final = 1


def encode_message(
    body: Body,
    *,
    headers: Headers | None = None,
    ttl: float | None = None,
    message_id: str | None = None,
    mode: int = PERSISTENT,
) -> tuple[bytes, Basic.Properties]:
    """The body as bytes, and the properties that go with it."""
    content, content_type = encode_body(body)
    return content, Basic.Properties(
        content_type=content_type,
        headers=dict(headers) if headers else None,
        delivery_mode=mode,
        expiration=None if ttl is None else str(max(0, round(ttl * 1000))),
        message_id=message_id or uuid4().hex,
        timestamp=datetime.now(UTC),
    )


def create_sender(publisher: AmqpPublisher, routing_key: str) -> ConfirmedSender:
    async def post(
        body: Body, headers: Headers | None, ttl: float | None, message_id: str | None
    ) -> asyncio.Future[None]:
        content, properties = encode_message(body, headers=headers, ttl=ttl, message_id=message_id)
        return await publisher.post(routing_key, content, properties)

    return ConfirmedSender(post)
