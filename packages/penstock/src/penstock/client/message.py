"""A message as a program receives it.

One type for all patterns, whichever protocol brought it: the body, the address it was sent to and
what the sender said about it. What can be done about its delivery (`ack`, `reject`, `requeue`,
`reply`, `fail`) is asked of the `DeliveryHandle` behind it, which belongs to the protocol. Where
there is nothing to settle, as in a subscription, settling does nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Protocol

from penstock.core.errors import PreconditionFailed

Headers = Mapping[str, Any]


class DeliveryHandle(Protocol):
    """How a protocol settles and answers a message. A message is settled once; then no more."""

    async def ack(self) -> None: ...

    async def reject(self, requeue: bool) -> None: ...

    async def reply(self, body: Body, headers: Mapping[str, Any] | None) -> None: ...

    async def fail(self, error: BaseException) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedMessage:
    """What was sent, and what the sender and the broker said about it."""

    body: bytes
    address: str  #: the subject, queue, stream or service it was sent to
    content_type: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    message_id: str | None = None  #: the same on every copy the sender had to send again
    correlation_id: str | None = None
    reply_to: str | None = None
    timestamp: datetime | None = None  #: when it was sent, by the sender's clock
    redelivered: bool = False  #: it was handed out before, and not acknowledged
    offset: int | None = None  #: its place in the stream it was replayed from
    qos: int | None = None  #: the quality of service it came with, where it came by MQTT
    retained: bool = False  #: MQTT kept it for those who subscribe late
    delivery: DeliveryHandle = field(repr=False, compare=False)

    @property
    def text(self) -> str:
        return self.body.decode()

    def json(self) -> Any:
        return json.loads(self.body)

    async def ack(self) -> None:
        """Done with it: the broker may forget it. The loops over messages do this themselves."""
        await self.delivery.ack()

    async def reject(self) -> None:
        """It cannot be used: the broker drops it, or dead-letters it where that is set up."""
        await self.delivery.reject(requeue=False)

    async def requeue(self) -> None:
        """Somebody else, or the same program later, should have it."""
        await self.delivery.reject(requeue=True)

    async def reply(self, body: Body = b"", *, headers: Mapping[str, Any] | None = None) -> None:
        """Answer the one who asked."""
        await self.delivery.reply(body, headers)

    async def fail(self, error: BaseException) -> None:
        """Answer with an error: the one who asked sees a `RemoteError`."""
        await self.delivery.fail(error)


# Bodies as programs have them, and as they travel.
#
# Bytes travel as they are, a text as UTF-8 `text/plain`, anything else as `application/json`. A
# receiver need not know which: `Message.body`, `.text` and `.json()` read any of them.

TEXT: Final = "text/plain; charset=utf-8"
JSON: Final = "application/json"

#: Bytes, a text, or whatever `json.dumps` takes.
Body = Any


def encode_body(body: Body) -> tuple[bytes, str | None]:
    """The bytes to send and the content type that says how to read them."""
    if isinstance(body, bytes):
        return body, None
    if isinstance(body, bytearray | memoryview):
        return bytes(body), None
    if isinstance(body, str):
        return body.encode(), TEXT
    try:
        text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise PreconditionFailed(f"a body is bytes, a text or JSON: {error}") from error
    return text.encode(), JSON
