"""A message whose settling and answering wait. All else is read from the message itself."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from penstock.client import message as asynchronous
from penstock.client.blocking.loop import LoopThread
from penstock.client.body import Body


class Message:
    """Reads as `penstock.client.Message` does."""

    __slots__ = ("_loop", "_message")

    body: bytes
    text: str
    address: str
    content_type: str | None
    headers: Mapping[str, Any]
    message_id: str | None
    correlation_id: str | None
    reply_to: str | None
    timestamp: datetime | None
    redelivered: bool
    offset: int | None
    qos: int | None
    retained: bool

    def __init__(self, loop: LoopThread, message: asynchronous.Message) -> None:
        self._loop = loop
        self._message = message

    def __getattr__(self, name: str) -> Any:
        return getattr(self._message, name)

    def __repr__(self) -> str:
        return repr(self._message)

    def json(self) -> Any:
        return self._message.json()

    def ack(self) -> None:
        self._loop.wait(self._message.ack())

    def reject(self) -> None:
        self._loop.wait(self._message.reject())

    def requeue(self) -> None:
        self._loop.wait(self._message.requeue())

    def reply(self, body: Body = b"", *, headers: Mapping[str, Any] | None = None) -> None:
        self._loop.wait(self._message.reply(body, headers=headers))

    def fail(self, error: BaseException) -> None:
        self._loop.wait(self._message.fail(error))
