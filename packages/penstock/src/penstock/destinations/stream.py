"""Streams: a log that many readers replay, each from where it likes, and nobody empties.

By RabbitMQ's conventions: `x-queue-type: stream`, readers say `x-stream-offset` and find each
message's offset in a header of that name; answers are flow credit and delete nothing. Readers see
what is on disk (committed), never what a power failure could take back. Old segments go by age
(`x-max-age`) and size (`x-max-length-bytes`).
"""

from __future__ import annotations

import os
import shutil
import struct
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.contract import LOGGED, Binding, Channel, Delivery, Fragment, Message
from penstock.broker.declarations import MAX_AGE_PATTERN, age_seconds
from penstock.broker.fragments import FragmentSender
from penstock.broker.log.chunk import SPOOLED
from penstock.broker.log.log import Log
from penstock.broker.spool import Spool
from penstock.broker.vhost import directory_name
from penstock.core.basic_properties import decode_header, encode_header
from penstock.core.errors import NotFound, PreconditionFailed, Unsupported, WireSyntaxError

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.broker.vhost import VirtualHost

#: How often retention is looked after, in seconds; also whenever a segment is full.
RETENTION_SECONDS: Final = 10.0

#: Messages a reader is given before others have their turn.
MESSAGES_PER_SLICE: Final = 1000
#: The same for one that chooses among them: each has to be decoded.
SELECTED_MESSAGES_PER_SLICE: Final = 100

_OFFSET_HEADER: Final = struct.Struct(">B15sBq")


class StreamCursor:
    """The stream's side of a reader's channel."""

    __slots__ = ("at", "batch", "sending")

    def __init__(self, at: int) -> None:
        self.at = at  #: the next offset it is to see
        #: Decoded and not yet forwarded, last first.
        self.batch: list[tuple[int, Message | None]] = []
        self.sending: FragmentSender | None = None


class Stream:
    kind = "queue"

    def __init__(
        self,
        vhost: VirtualHost,
        name: str,
        *,
        type: str,  # noqa: A002 - the protocol's word
        durable: bool,
        auto_delete: bool,
        owner: object | None,
        arguments: dict[str, Any],
    ) -> None:
        self.vhost = vhost
        self.name = name
        self.type = type
        self.durable = durable
        self.auto_delete = auto_delete
        self.owner = owner
        self.arguments = arguments
        self.kernel = kernel = vhost.kernel
        age = arguments.get("x-max-age")
        self._max_age = None if age is None else age_seconds(age) * 1000
        self._max_bytes: int | None = arguments.get("x-max-length-bytes")
        self._segment_bytes: int = arguments.get(
            "x-stream-max-segment-size-bytes", kernel.settings.segment_bytes
        )
        self._retain_at = self._max_bytes or 0  #: look after retention when the log is this large
        self.log = Log(
            self._directory,
            kernel.committer,
            segment_bytes=self._segment_bytes,
            report=kernel.report,
        )
        self._readers: dict[Channel, None] = {}
        self._waking = False
        self._retention = kernel.write_batch.call_at(
            kernel.loop.time() + RETENTION_SECONDS, self._tick
        )

    # The contract.

    def channel_open(self, channel: Channel, arguments: dict[str, Any]) -> None:
        if arguments.get("post"):  # a publisher, and no reader
            self.vhost.exchanges[""].channel_open(channel, {})
            return
        if arguments.get("pull"):
            raise self._unsupported("basic.get")
        if channel.settled:
            raise self._unsupported("automatic acknowledgement")
        if not arguments.get("prefetch"):
            raise PreconditionFailed(f"consumer prefetch count is not set for '{self._where}'")
        channel.state = StreamCursor(self._start(arguments.get("x-stream-offset", "next")))
        self._readers[channel] = None

    def channel_post(
        self, channel: Channel, fragment: Message | Fragment, receipt: int = 0
    ) -> None:
        self.vhost.exchanges[""].channel_post(channel, fragment, receipt)

    def channel_request(self, channel: Channel, credit: int) -> None:
        channel.credit = credit
        reader: StreamCursor = channel.state
        if credit <= 0:
            return
        if reader.sending is not None:
            reader.sending.draw()
        elif reader.at < self.log.next_offset:
            self._schedule(channel, reader)

    def channel_confirm(self, channel: Channel, delivery: Delivery) -> None:
        """Flow credit only: the terminal asks for more by itself."""

    def channel_failure(self, channel: Channel, delivery: Delivery, requeue: bool) -> None:
        """A reader that went away leaves nothing behind."""

    def channel_close(self, channel: Channel) -> None:
        self._readers.pop(channel, None)
        reader = channel.state
        if not isinstance(reader, StreamCursor):
            self.vhost.exchanges[""].channel_close(channel)
        elif reader.sending is not None:
            reader.sending.cancel()
            reader.sending = None

    # In.

    def push(self, message: Message) -> int:
        offset = self.log.append(message)
        if message.spool is not None:
            message.spool.link(self._body(offset))
            self.kernel.committer.adopt(os.open(self._directory, os.O_RDONLY))
        if self._max_bytes is not None and self.log.bytes >= self._retain_at:
            self._retain_at = self.log.bytes + self._segment_bytes
            self.kernel.write_batch.call_soon(self._retain)
        if self._readers:
            self._wake_when_safe()
        return LOGGED

    def _wake_when_safe(self) -> None:
        """Readers see what is on disk: tell them when more of it is."""
        if not self._waking:
            self._waking = True
            self.kernel.committer.after(self._wake, lambda _: self._wake())

    # Out.

    def _start(self, offset: Any) -> int:
        """Where a reader asked to begin: first, last, next, an offset, a time or an interval."""
        log = self.log
        match offset:
            case "first":
                return log.first_offset
            case "last":
                return log.last_chunk_offset()
            case "next":
                return log.next_offset
            case bool():
                pass
            case int():
                return max(offset, log.first_offset)
            case datetime():
                return log.find(int(offset.timestamp() * 1000))
            case str() if MAX_AGE_PATTERN.fullmatch(offset):
                return log.find(log.now() - age_seconds(offset) * 1000)
        raise PreconditionFailed(
            f"invalid arg 'x-stream-offset' for {self._where}: {offset!r} is none of first, last, "
            "next, an offset, a timestamp or an interval such as 1h"
        )

    def _wake(self) -> None:
        """More is on disk."""
        self._waking = False
        if self.log.synced_offset < self.log.next_offset:
            self._wake_when_safe()  # and more has come meanwhile
        for channel in self._readers:
            if channel.credit > 0:
                self._schedule(channel, channel.state)

    def _schedule(self, channel: Channel, reader: StreamCursor) -> None:
        """Serve a reader in a turn of its own: a long replay leaves room for others between."""
        if not channel.busy and reader.sending is None:
            channel.busy = True
            self.kernel.write_batch.call_soon(lambda: self._serve(channel, reader))

    def _serve(self, channel: Channel, reader: StreamCursor) -> None:
        channel.busy = False
        forward = channel.terminal.channel_forward
        selects = channel.selects
        slice_end = MESSAGES_PER_SLICE if selects is None else SELECTED_MESSAGES_PER_SLICE
        while channel.credit > 0 and channel in self._readers and reader.sending is None:
            if not slice_end:
                self._schedule(channel, reader)
                return
            if not reader.batch and not self._fill(reader):
                return
            offset, message = reader.batch.pop()
            reader.at = offset + 1
            if message is None:
                continue
            slice_end -= 1
            if selects is not None and not selects(message):
                continue
            channel.credit -= 1
            delivery = Delivery(add_offset_header(message, offset), offset, offset)
            if message.spool is None:
                forward(channel, delivery.message, delivery)
            else:
                self._forward(channel, reader, delivery)

    def _fill(self, reader: StreamCursor) -> bool:
        log = self.log
        reader.at = max(reader.at, log.first_offset)
        if reader.at >= log.synced_offset:
            if reader.at < log.next_offset:  # it may have come before the reader did
                self._wake_when_safe()
            return False
        chunk = log.read(reader.at)
        if chunk is None:
            return False
        start = max(0, reader.at - chunk.base)
        flags = chunk.flags
        batch = [
            (chunk.base + index, self._resolved(chunk.base + index, message, flags[index]))
            for index, message in enumerate(chunk.messages(start), start)
        ]
        batch.reverse()
        reader.batch = batch
        return bool(batch)

    def _resolved(self, offset: int, message: Message, flags: int) -> Message | None:
        """The message with its body, or None: retention may have taken that a moment ago."""
        if flags & SPOOLED:
            try:
                message.spool = Spool(self._body(offset), owned=False)
            except FileNotFoundError:
                return None
            message.body = b""
        return message

    def _forward(self, channel: Channel, reader: StreamCursor, delivery: Delivery) -> None:
        def finished() -> None:
            reader.sending = None
            if channel.credit > 0:
                self._schedule(channel, reader)

        try:
            reader.sending = FragmentSender(self.kernel, channel, delivery, finished)
        except FileNotFoundError:  # as above
            channel.credit += 1
            return
        reader.sending.open()

    # Management.

    def load(self, offset: int) -> bytes:
        """The body of a large message."""
        return Spool(self._body(offset), owned=False).read()

    @property
    def message_count(self) -> int:
        return self.log.next_offset - self.log.first_offset

    @property
    def consumer_count(self) -> int:
        return len(self._readers)

    def purge(self) -> int:
        raise self._unsupported("queue.purge")

    @property
    def _where(self) -> str:
        return f"queue '{self.name}' in vhost '{self.vhost.name}'"

    def _unsupported(self, what: str) -> Unsupported:
        return Unsupported(f"{what} not supported by stream queues {self._where}")

    def used(self) -> None:
        """Streams do not expire."""

    def _tick(self) -> None:
        when = self.kernel.loop.time() + RETENTION_SECONDS
        self._retention = self.kernel.write_batch.call_at(when, self._tick)
        if self._max_age is not None or self._max_bytes is not None:
            self._retain()

    def _retain(self) -> None:
        first = self.log.retain(self._max_age, self._max_bytes)
        for body in self._directory.glob("*.body"):
            if int(body.stem) < first:
                body.unlink(missing_ok=True)
        self._retain_at = max(self._max_bytes or 0, self.log.bytes) + self._segment_bytes // 2

    @property
    def _directory(self) -> Path:
        return (
            self.kernel.directory
            / "streams"
            / directory_name(self.vhost.name)
            / directory_name(self.name)
        )

    def _body(self, offset: int) -> Path:
        return self._directory / f"{offset:020d}.body"

    def bound(self, binding: Binding) -> None:
        """Exchanges know where their bindings lead; it makes no difference here."""

    unbound = bound

    def close(self) -> None:
        self._retention.cancel()
        self.log.close()

    def delete(self) -> None:
        self._retention.cancel()
        for channel in list(self._readers):
            why = NotFound(f"stream '{self.name}' in vhost '{self.vhost.name}' was deleted")
            channel.terminal.channel_failure(channel, 0, why)
        self._readers.clear()
        self.log.delete()
        shutil.rmtree(self._directory, ignore_errors=True)

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "vhost": self.vhost.name,
            "type": self.type,
            "durable": True,
            "auto_delete": False,
            "exclusive": False,
            "arguments": self.arguments,
            "state": "running",
            "messages": self.message_count,
            "messages_ready": self.message_count,
            "messages_unacknowledged": 0,
            "message_bytes": self.log.bytes,
            "consumers": len(self._readers),
            "first_offset": self.log.first_offset,
            "next_offset": self.log.next_offset,
            "committed_offset": self.log.synced_offset,
        }


def add_offset_header(message: Message, offset: int) -> Message:
    """The message with its offset among its headers.

    The header is spliced where it can be, which is nearly always: a table is a length and then
    entries, so a new entry goes in front of the others without reading them.
    """
    header = message.header
    entry = _OFFSET_HEADER.pack(15, b"x-stream-offset", 0x6C, offset)
    at = 14
    if header[12] & 0x80:  # content-type
        at += 1 + header[at]
    if header[12] & 0x40:  # content-encoding
        at += 1 + header[at]
    if header[13] & 1 or b"x-stream-offset" in header:
        try:
            properties = decode_header(header)
        except WireSyntaxError:  # a table that lies stays as it is
            return message
        properties.headers = {**(properties.headers or {}), "x-stream-offset": offset}
        spliced = encode_header(properties, message.size)
    elif header[12] & 0x20:  # headers
        size = int.from_bytes(header[at : at + 4], "big") + len(entry)
        spliced = header[:at] + size.to_bytes(4, "big") + entry + header[at + 4 :]
    else:
        table = len(entry).to_bytes(4, "big") + entry
        flags = bytes((header[12] | 0x20,))
        spliced = header[:12] + flags + header[13:at] + table + header[at:]
    numbered = Message(message.route, spliced, message.body, message.flags)
    numbered.spool = message.spool
    return numbered
