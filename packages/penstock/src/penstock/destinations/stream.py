"""Streams: a log that many consumers read, each from its own offset.

As in RabbitMQ: `x-queue-type: stream`; consumers set `x-stream-offset` and find each message's
offset in a header of that name; acknowledgements are flow credit. Consumers see only synced
messages. Segments are deleted by age (`x-max-age`) and size (`x-max-length-bytes`). With
`x-local-max-age` or `x-local-max-length-bytes`, sealed segments move to tiered storage first
(`stream_tier.py`).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from penstock.broker.contract import (
    IN_SYNC,
    LOGGED,
    REJECTED,
    Binding,
    Channel,
    Delivery,
    Fragment,
    Message,
)
from penstock.broker.declarations import MAX_AGE_PATTERN, age_seconds
from penstock.broker.fragments import FragmentSender
from penstock.broker.log.chunk import SPOOLED
from penstock.broker.log.log import Log
from penstock.broker.log.observer import remove_tree
from penstock.broker.policies import EffectivePolicy, describe_policy
from penstock.broker.spool import BodyFiles
from penstock.broker.vhost import VirtualHost, directory_name
from penstock.core.basic_properties import decode_header, encode_header
from penstock.core.errors import NotFound, PreconditionFailed, Unsupported, WireSyntaxError
from penstock.destinations.message_store import BrowsedMessage
from penstock.destinations.stream_tier import StreamTier
from penstock.destinations.topic_trie import TopicTrie

#: Interval of retention; it also runs when a segment is full.
RETENTION_SECONDS: Final = 10.0

#: Messages per consumer before others are served, …
MESSAGES_PER_SLICE: Final = 1000
#: … and with a filter, which decodes each.
SELECTED_MESSAGES_PER_SLICE: Final = 100

#: The message of a delivery.
_SENT: Final = Message(b"\0\0", b"", b"")

_OFFSET_HEADER: Final = struct.Struct(">B15sBq")


class StreamCursor:
    """The stream's state of a consumer's channel."""

    __slots__ = ("at", "batch", "sending")

    def __init__(self, at: int) -> None:
        self.at = at  #: the next offset
        #: Decoded messages in reverse order.
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
        self._directory = (
            kernel.directory / "streams" / directory_name(vhost.name) / directory_name(name)
        )
        self._bodies = BodyFiles(self._directory, kernel.committer)
        policy = vhost.policies.of_queue(name, arguments)
        self.log = Log(
            self._directory,
            kernel.committer,
            segment_bytes=policy.merged(arguments).get(
                "x-stream-max-segment-size-bytes", kernel.settings.segment_bytes
            ),
            report=kernel.report,
        )
        folder = f"{directory_name(vhost.name)}/{directory_name(name)}"
        self.tier = StreamTier(kernel, self.log, self._bodies, folder, self._wake_readers)
        self._set_policy(policy)
        self._readers: dict[Channel, None] = {}
        self._waking = False
        self._retention = kernel.write_batch.call_at(
            kernel.loop.time() + RETENTION_SECONDS, self._tick
        )

    def _set_policy(self, policy: EffectivePolicy) -> None:
        self.policy = policy
        arguments = policy.merged(self.arguments)
        self._in_sync = self.kernel.confirms_in_sync(arguments)
        self._logged = LOGGED | IN_SYNC if self._in_sync else LOGGED
        age = arguments.get("x-max-age")
        self._max_age = None if age is None else age_seconds(age) * 1000
        self._max_bytes: int | None = arguments.get("x-max-length-bytes")
        self._segment_bytes: int = arguments.get(
            "x-stream-max-segment-size-bytes", self.kernel.settings.segment_bytes
        )
        self._retain_at = self._max_bytes or 0  #: run retention when the log is this large
        age = arguments.get("x-local-max-age")
        local_age = None if age is None else age_seconds(age) * 1000
        self.tier.set_limits(local_age, arguments.get("x-local-max-length-bytes"))

    def apply_policy(self, policy: EffectivePolicy) -> None:
        """The size of segments changes with the next start."""
        if policy != self.policy:
            self._set_policy(policy)

    # The contract.

    def channel_open(self, channel: Channel, arguments: dict[str, Any]) -> None:
        if arguments.get("post"):  # a publisher
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
        """Nothing to do: the terminal requests credit itself."""

    def channel_failure(self, channel: Channel, delivery: Delivery, requeue: bool) -> None:
        """Nothing to do: streams do not track deliveries."""

    def channel_close(self, channel: Channel) -> None:
        self._readers.pop(channel, None)
        reader = channel.state
        if not isinstance(reader, StreamCursor):
            self.vhost.exchanges[""].channel_close(channel)
        elif reader.sending is not None:
            reader.sending.cancel()
            reader.sending = None

    def push(self, message: Message) -> int:
        if self._in_sync and self.kernel.committer.refuses:
            return REJECTED
        offset = self.log.append(message)
        if message.spool is not None:
            self._bodies.add(offset, message.spool)
        if self._max_bytes is not None and self.log.bytes >= self._retain_at:
            self._retain_at = self.log.bytes + self._segment_bytes
            self.kernel.write_batch.call_soon(self._retain)
        if self._readers:
            self._wake_when_synced()
        return self._logged

    def _wake_when_synced(self) -> None:
        """Wake consumers after the next sync."""
        if not self._waking:
            self._waking = True
            self.kernel.committer.after(self._wake, lambda _: self._wake())

    def _start(self, offset: Any) -> int:
        """The start offset: first, last, next, an offset, a time or an interval."""
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
        """More messages are synced."""
        self._waking = False
        if self.log.synced_offset < self.log.next_offset:
            self._wake_when_synced()  # more were appended meanwhile
        self._wake_readers()

    def _wake_readers(self) -> None:
        for channel in self._readers:
            if channel.credit > 0:
                self._schedule(channel, channel.state)

    def _schedule(self, channel: Channel, reader: StreamCursor) -> None:
        """Serve a consumer in a write batch of its own, so that a long replay does not block
        others."""
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
            sent = add_offset_header(message, offset)
            if message.spool is None:
                # Not in memory until it is acknowledged: a stream delivers nothing again.
                forward(channel, sent, Delivery(_SENT, offset, offset))
            else:
                self._forward(channel, reader, Delivery(sent, offset, offset))

    def _fill(self, reader: StreamCursor) -> bool:
        log = self.log
        reader.at = max(reader.at, log.first_offset)
        if reader.at >= log.synced_offset:
            if reader.at < log.next_offset:  # appended before the consumer opened
                self._wake_when_synced()
            return False
        chunk = log.read(reader.at)
        if chunk is None:
            return False
        start = max(0, reader.at - chunk.base)
        flags = chunk.flags
        batch = [
            (chunk.base + index, self._with_body(chunk.base + index, message, flags[index]))
            for index, message in enumerate(chunk.messages(start), start)
        ]
        batch.reverse()
        reader.batch = batch
        return bool(batch)

    def _with_body(self, offset: int, message: Message, flags: int) -> Message | None:
        """The message with its spool; None if retention has just removed it."""
        if flags & SPOOLED:
            try:
                message.spool = self._bodies.open(offset, message.size)
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

    def browse(self, offset: int) -> Iterator[BrowsedMessage]:
        """Messages that are on disk, from an offset on."""
        end = self.log.synced_offset
        at = max(offset, self.log.first_offset)
        while at < end and (chunk := self.log.read(at)) is not None:
            start = max(0, at - chunk.base)
            at = chunk.base + chunk.count
            flags, timestamps = chunk.flags, chunk.timestamps
            for index, message in enumerate(chunk.messages(start), start):
                number = chunk.base + index
                found = self._with_body(number, message, flags[index])
                if found is not None and number < end:
                    yield BrowsedMessage(str(number), found, False, timestamps[index])

    def history(self, start: Any, pattern: bytes) -> Iterator[Message | None]:
        return self._history(self._start(start), self.log.next_offset, pattern)

    def _history(self, at: int, end: int, pattern: bytes) -> Iterator[Message | None]:
        trie: TopicTrie[bool] = TopicTrie()
        trie.add(pattern, True)
        log = self.log
        while at < end:
            if at >= log.written_offset:
                log.write()
            chunk = log.read(max(at, log.first_offset))
            if chunk is None:
                if at >= log.written_offset:
                    return
                yield None  # it is being fetched from tiered storage
                continue
            start, flags = max(0, at - chunk.base), chunk.flags
            for index, message in enumerate(chunk.messages(start), start):
                offset = chunk.base + index
                if offset >= end:
                    return
                route = message.route
                if not trie.match(route[route[0] + 2 :]):
                    yield None
                    continue
                found = self._with_body(offset, message, flags[index])
                yield None if found is None else add_offset_header(found, offset)
            at = chunk.end

    def limit(self, start: int, stop: int, most: int) -> int:
        """The end of a range from `start` to at most `stop` that has at most so many bytes, or
        one message."""
        stop = self.log.limit(start, stop, most)
        bodies = {
            **dict(self.tier.body_sizes(start, stop)),
            **dict(self._bodies.sizes(start, stop)),
        }
        for offset, size in sorted(bodies.items()):
            most -= size
            if offset >= stop or most < 0:
                return max(start + 1, min(offset, stop))
            stop = self.log.limit(start, stop, most)
        return stop

    def load(self, offset: int) -> bytes:
        """Read the body of a large message."""
        return self._bodies.open(offset).read()

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

    def used(self) -> None: ...

    def _tick(self) -> None:
        when = self.kernel.loop.time() + RETENTION_SECONDS
        self._retention = self.kernel.write_batch.call_at(when, self._tick)
        if self._max_age is not None or self._max_bytes is not None:
            self._retain()
        self.tier.tick()

    def _retain(self) -> None:
        first = self.log.retain(self._max_age, self._max_bytes)
        self._bodies.sweep(lambda offset: offset >= first)
        self._retain_at = max(self._max_bytes or 0, self.log.bytes) + self._segment_bytes // 2

    def bound(self, binding: Binding) -> None:
        """Nothing to do: exchanges hold the bindings."""

    unbound = bound

    def close(self) -> None:
        self._retention.cancel()
        self.tier.close()
        self.log.close()

    def delete(self) -> None:
        self._retention.cancel()
        for channel in list(self._readers):
            why = NotFound(f"stream '{self.name}' in vhost '{self.vhost.name}' was deleted")
            channel.terminal.channel_failure(channel, 0, why)
        self._readers.clear()
        self.tier.close()
        self.log.delete()
        remove_tree(self._directory, self.kernel.committer.observer)

    def describe(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "vhost": self.vhost.name,
            "type": self.type,
            "durable": True,
            "auto_delete": False,
            "exclusive": False,
            "arguments": self.arguments,
            **describe_policy(self.policy),
            "state": "running",
            "messages": self.message_count,
            "messages_ready": self.message_count,
            "messages_unacknowledged": 0,
            "message_bytes": self.log.bytes,
            "consumers": len(self._readers),
            "first_offset": self.log.first_offset,
            "next_offset": self.log.next_offset,
            "committed_offset": self.log.synced_offset,
            "message_stats": {"publish": self.log.next_offset},
            **self.tier.describe(),
        }


def add_offset_header(message: Message, offset: int) -> Message:
    """The message with an `x-stream-offset` header.

    The header is spliced where possible: a table is a length and entries, so an entry can be
    inserted without reading the others.
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
        except WireSyntaxError:  # an invalid table stays as it is
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
