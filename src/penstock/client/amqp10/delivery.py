"""A message as AMQP 1.0 delivers it: reading it, settling it, answering it.

A delivery can be settled only on the connection that brought it. When that is gone there is nothing
to settle: the broker hands the message out again, which is what was promised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from uuid import uuid4

from penstock.client import message as client
from penstock.client.amqp10.contents import (
    OFFSET,
    ROUTING_KEY,
    TYPE,
    body_of,
    headers_of,
    id_text,
    write,
)
from penstock.client.amqp10.replies import Replies
from penstock.client.body import Body, encode_body
from penstock.client.errors import RemoteError
from penstock.core.errors import Unsupported
from penstock.wire.amqp10.links import Incoming
from penstock.wire.amqp10.message import Message, Properties
from penstock.wire.amqp10.states import ACCEPTED, Modified, Rejected, State

#: What an answer that is an error says it is.
ERROR: Final = "penstock.error"


class Delivery:
    """Keeps `penstock.client.message.Delivery`."""

    __slots__ = ("_delivery", "_message", "_on_settled", "_replies")

    def __init__(
        self,
        message: Message,
        delivery: Incoming | None,
        on_settled: Callable[[Incoming, State], None],
        replies: Replies,
    ) -> None:
        self._message = message
        self._delivery = delivery  #: None when there is nothing to settle
        self._on_settled = on_settled
        self._replies = replies

    async def ack(self) -> None:
        self._settle(ACCEPTED)

    async def reject(self, requeue: bool) -> None:
        self._settle(Modified(delivery_failed=True) if requeue else Rejected())

    async def reply(self, body: Body, headers: Mapping[str, Any] | None) -> None:
        await self._answer(body, headers, None)

    async def fail(self, error: BaseException) -> None:
        if isinstance(error, RemoteError):
            kind, reason = error.kind, error.reason
        else:
            kind, reason = type(error).__name__, str(error)
        await self._answer({"error": kind, "reason": reason}, None, ERROR)

    def _settle(self, state: State) -> None:
        delivery, self._delivery = self._delivery, None
        if delivery is not None:
            self._on_settled(delivery, state)

    async def _answer(
        self, body: Body, headers: Mapping[str, Any] | None, kind: str | None
    ) -> None:
        asked = self._message.properties
        if asked is None or not asked.reply_to:
            raise Unsupported("the message asks for no answer: it has no reply-to")
        content, content_type = encode_body(body)
        properties = Properties(
            message_id=uuid4().hex,
            to=asked.reply_to,
            correlation_id=asked.correlation_id or asked.message_id,
            content_type=content_type,
        )
        payload = write(content, properties, headers=headers, durable=False, kind=kind)
        await self._replies.send(asked.reply_to, payload)


def read_message(message: Message, delivery: Delivery) -> client.Message:
    properties = message.properties or Properties()
    annotations = message.message_annotations or {}
    body, content_type = body_of(message)
    offset = annotations.get(OFFSET)
    return client.Message(
        body=body,
        address=str(annotations.get(ROUTING_KEY) or properties.subject or properties.to or ""),
        content_type=content_type if properties.content_type is None else properties.content_type,
        headers=headers_of(message),
        message_id=id_text(properties.message_id),
        correlation_id=id_text(properties.correlation_id),
        reply_to=properties.reply_to,
        timestamp=_moment(properties.creation_time),
        redelivered=message.header is not None and bool(message.header.delivery_count),
        offset=int(offset) if isinstance(offset, int) else None,
        delivery=delivery,
    )


def read_error(message: Message, read: client.Message) -> RemoteError | None:
    """The error an answer carries, if it does."""
    if (message.message_annotations or {}).get(TYPE) != ERROR:
        return None
    try:
        told = read.json()
        return RemoteError(str(told["error"]), str(told["reason"]))
    except (ValueError, TypeError, KeyError):
        return RemoteError("Error", read.body.decode(errors="replace"))


def _moment(milliseconds: int | None) -> datetime | None:
    if milliseconds is None:
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
