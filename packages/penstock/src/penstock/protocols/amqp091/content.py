"""A message on its way in whose frames did not come all at once.

Small bodies are gathered and published whole. Large ones go on as they come, in buckets: the
exchange spools them, and nothing of them stays here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.broker.buckets import Bucket
from penstock.broker.contract import Fragment, Message
from penstock.core.errors import PreconditionFailed, UnexpectedFrame
from penstock.protocols.amqp091.channel import DIRECT_REPLY_FLAG

if TYPE_CHECKING:
    from penstock.protocols.amqp091.channel import Amqp091Producer, AmqpChannel

#: What a transaction holds, it holds in memory: larger messages do not belong in one.
TRANSACTION_MAX_BODY_BYTES: Final = 128 << 20


class ContentAssembler:
    __slots__ = (
        "_bits",
        "_bucket",
        "_header",
        "_parts",
        "_producer",
        "_received",
        "_route",
        "_size",
        "channel",
    )

    def __init__(self, channel: AmqpChannel, route: bytes, bits: int) -> None:
        self.channel = channel
        self._route = route
        self._bits = bits
        self._header = b""
        self._size = -1
        self._received = 0
        self._parts: list[bytes] = []
        self._producer: Amqp091Producer | None = None  #: of a large message, once it has begun
        self._bucket: Bucket | None = None

    @property
    def expects(self) -> str:
        return "content header for class 60" if self._size < 0 else "content body"

    def unexpected(self, what: str) -> UnexpectedFrame:
        return UnexpectedFrame(f"expected {self.expects}, got {what} instead")

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
            self._open(payload, flags | channel.publish_flags(self._bits))
        elif not self._size:
            self._finish(b"")

    def _open(self, header: bytes, flags: int) -> None:
        """A large one: it goes on as it comes."""
        channel = self.channel
        self._producer = channel.producer(self._route)
        if flags >= DIRECT_REPLY_FLAG:
            header = channel.resolve_reply_to(header)
            flags &= DIRECT_REPLY_FLAG - 1
        channel.streaming_body = True
        channel.connection.flow_control.expect_bulk(True)
        message = Message(self._route, header, b"", flags, more=True)
        self._producer.post(self._producer, message, 0)

    def body(self, payload: bytes | memoryview) -> None:
        if self._size < 0 or self._received + len(payload) > self._size:
            raise self.unexpected("a content body")
        if self._producer is None:
            if self.channel.transaction is not None:
                self.channel.transaction.hold(len(payload))
            self._parts.append(bytes(payload))
            self._received += len(payload)
            if self._received == self._size:
                self._finish(b"".join(self._parts))
        else:
            self._stream_body(self._producer, memoryview(payload))

    def _finish(self, body: bytes) -> None:
        channel = self.channel
        channel.content = None
        channel.is_idle = True
        if channel.transaction is not None:
            channel.transaction.release(len(body))  # what is published is charged as a whole
        channel.publish(self._route, self._bits, self._header, body)

    def _stream_body(self, producer: Amqp091Producer, data: memoryview) -> None:
        channel = self.channel
        while data:
            if self._bucket is None:
                self._bucket = channel.connection.flow_control.account.take()
            taken = self._bucket.fill(data)
            data = data[taken:]
            self._received += taken
            last = self._received == self._size
            if last or self._bucket.full:
                bucket, self._bucket = self._bucket, None
                receipt = 0
                if last:
                    channel.content = None
                    channel.is_idle = True
                    channel.streaming_body = False
                    channel.connection.published += 1
                    if channel.confirm:
                        channel.published = receipt = channel.published + 1
                    # What follows may not overtake it on its way to the disk. The connection is
                    # read again when nothing of it is in buckets, those of others included.
                    channel.connection.post_partial_bucket()
                    channel.connection.flow_control.hold()
                    channel.connection.flow_control.expect_bulk(False)
                producer.post(producer, Fragment(bucket, bucket.content, more=not last), receipt)

    def post_partial_bucket(self) -> None:
        """Let go of what is here, though it does not fill a bucket."""
        if self._bucket is not None and self._producer is not None:
            bucket, self._bucket = self._bucket, None
            self._producer.post(self._producer, Fragment(bucket, bucket.content, more=True), 0)

    def abandon(self) -> None:
        """The channel has ended in the middle of it; its producer's end tells the exchange."""
        self.channel.streaming_body = False
        self.channel.connection.flow_control.expect_bulk(False)
        if self._bucket is not None:
            self._bucket.release()
            self._bucket = None
