"""A published message whose frames did not arrive in one read.

A small body is collected and published whole. A large one goes to the exchange as fragments while
it arrives (`FragmentPoster`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.broker.contract import Message
from penstock.core.errors import PreconditionFailed, UnexpectedFrame
from penstock.protocols.amqp091.channel import DIRECT_REPLY_FLAG
from penstock.protocols.fragment_poster import FragmentPoster

if TYPE_CHECKING:
    from penstock.protocols.amqp091.channel import AmqpChannel

#: A transaction holds its messages in memory, so larger ones are refused.
TRANSACTION_MAX_BODY_BYTES: Final = 128 << 20


class ContentAssembler:
    __slots__ = ("_bits", "_header", "_parts", "_poster", "_received", "_route", "_size", "channel")

    def __init__(self, channel: AmqpChannel, route: bytes, bits: int) -> None:
        self.channel = channel
        self._route = route
        self._bits = bits
        self._header = b""
        self._size = -1
        self._received = 0
        self._parts: list[bytes] = []
        self._poster: FragmentPoster | None = None  #: of a large message

    def unexpected(self, what: str) -> UnexpectedFrame:
        expected = "content header for class 60" if self._size < 0 else "content body"
        return UnexpectedFrame(f"expected {expected}, got {what} instead")

    def header(self, payload: bytes) -> None:
        if self._size >= 0:
            raise self.unexpected("a content header")
        channel = self.channel
        flags = channel.read_header(payload)
        self._header = payload
        self._size = int.from_bytes(payload[4:12], "big")
        settings = channel.connection.host.kernel.settings
        limit = settings.max_message_bytes
        if channel.transaction is not None:
            limit = min(limit or TRANSACTION_MAX_BODY_BYTES, TRANSACTION_MAX_BODY_BYTES)
        if limit and self._size > limit:
            raise PreconditionFailed(
                f"message size {self._size} is larger than configured max size {limit}"
            )
        if self._size > settings.spool_threshold and channel.transaction is None:
            self._open_large(payload, flags | channel.publish_flags(self._bits))
        elif not self._size:
            self._publish(b"")

    def _open_large(self, header: bytes, flags: int) -> None:
        channel = self.channel
        producer = channel.producer(self._route)
        if flags >= DIRECT_REPLY_FLAG:
            header = channel.resolve_reply_to(header)
            flags &= DIRECT_REPLY_FLAG - 1
        channel.streaming_body = True
        self._poster = FragmentPoster(channel.connection, producer)
        producer.post(producer, Message(self._route, header, b"", flags, more=True), 0)

    def body(self, payload: bytes | memoryview) -> None:
        channel = self.channel
        if self._size < 0 or self._received + len(payload) > self._size:
            raise self.unexpected("a content body")
        self._received += len(payload)
        complete = self._received == self._size
        if self._poster is not None:
            self._poster.add(memoryview(payload))
            if complete:
                self._finish_large(self._poster)
            return
        if channel.transaction is not None:
            channel.transaction.hold(len(payload))
        self._parts.append(bytes(payload))
        if complete:
            self._publish(b"".join(self._parts))

    def _publish(self, body: bytes) -> None:
        channel = self.channel
        channel.content = None
        channel.is_idle = True
        if channel.transaction is not None:
            channel.transaction.release(len(body))  # `publish` charges the whole message
        channel.publish(self._route, self._bits, self._header, body)

    def _finish_large(self, poster: FragmentPoster) -> None:
        channel = self.channel
        channel.content = None
        channel.is_idle = True
        channel.streaming_body = False
        channel.connection.published += 1
        receipt = 0
        if channel.confirm:
            channel.published = receipt = channel.published + 1
        poster.finish(receipt)

    def post_partial_bucket(self) -> None:
        if self._poster is not None:
            self._poster.post_partial()

    def abandon(self) -> None:
        """The channel has ended; closing its producer makes the exchange discard the message."""
        self.channel.streaming_body = False
        if self._poster is not None:
            self._poster.abandon()
