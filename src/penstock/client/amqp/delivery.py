"""A message as AMQP 0-9-1 delivers it: reading it, settling it, answering it.

A delivery can be settled only on the channel that brought it. When that is gone there is nothing
to settle: the broker hands the message out again, which is what was promised.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from aiormq.abc import DeliveredMessage
from pamqp.commands import Basic

from penstock.client.amqp.faults import passing
from penstock.client.amqp.outflow import TRANSIENT, encode
from penstock.client.amqp.outlet import Outlet
from penstock.client.amqp.sources import OFFSET, offset_of
from penstock.client.body import Body
from penstock.client.errors import RemoteError
from penstock.client.message import Message
from penstock.core.errors import Unsupported
from penstock.core.logs import get_logger

log = get_logger(__name__)

#: The `type` property of an answer that is an error.
ERROR: Final = "penstock.error"


class Delivery:
    """Keeps `penstock.client.message.Delivery`; tag 0 means there is nothing to settle."""

    __slots__ = ("_delivered", "_replies", "_tag")

    def __init__(self, delivered: DeliveredMessage, tag: int, replies: Outlet) -> None:
        self._delivered = delivered
        self._tag = tag
        self._replies = replies

    async def ack(self, *, upto: bool = False) -> None:
        tag, self._tag = self._tag, 0
        if tag:
            try:
                await self._delivered.channel.basic_ack(tag, multiple=upto, wait=False)
            except BaseException as error:
                _forgive(error)

    async def reject(self, requeue: bool) -> None:
        tag, self._tag = self._tag, 0
        if tag:
            try:
                await self._delivered.channel.basic_reject(tag, requeue=requeue, wait=False)
            except BaseException as error:
                _forgive(error)

    async def reply(self, body: Body, headers: Mapping[str, Any] | None) -> None:
        await self._answer(*encode(body, headers=headers, mode=TRANSIENT))

    async def fail(self, error: BaseException) -> None:
        if isinstance(error, RemoteError):
            kind, reason = error.kind, error.reason
        else:
            kind, reason = type(error).__name__, str(error)
        content, properties = encode({"error": kind, "reason": reason}, mode=TRANSIENT)
        properties.message_type = ERROR
        await self._answer(content, properties)

    async def _answer(self, content: bytes, properties: Basic.Properties) -> None:
        asked = self._delivered.header.properties
        if not asked.reply_to:
            raise Unsupported("the message asks for no answer: it has no reply_to")
        properties.correlation_id = asked.correlation_id or asked.message_id
        await (await self._replies.post(asked.reply_to, content, properties))


def read_message(delivered: DeliveredMessage, delivery: Delivery) -> Message:
    properties = delivered.header.properties
    timestamp = properties.timestamp
    headers = {name: value for name, value in (properties.headers or {}).items() if name != OFFSET}
    return Message(
        body=delivered.body,
        address=delivered.routing_key or "",
        content_type=properties.content_type,
        headers=headers,
        message_id=properties.message_id,
        correlation_id=properties.correlation_id,
        reply_to=properties.reply_to,
        timestamp=timestamp if isinstance(timestamp, datetime) else None,
        redelivered=bool(delivered.redelivered),
        offset=offset_of(delivered),
        delivery=delivery,
    )


def read_error(delivered: DeliveredMessage) -> RemoteError | None:
    """The error an answer carries, if it does."""
    if delivered.header.properties.message_type != ERROR:
        return None
    try:
        told = json.loads(delivered.body)
        return RemoteError(str(told["error"]), str(told["reason"]))
    except (ValueError, TypeError, KeyError):
        return RemoteError("Error", delivered.body.decode(errors="replace"))


def _forgive(error: BaseException) -> None:
    """The channel went before the word could: the message will be handed out again."""
    if not passing(error):
        raise error
    log.debug("not settled, the channel is gone", reason=str(error))
