"""Retained messages in memory: a compact record per key, and totals.

It knows no files: expiry, the log and bodies are the store's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from penstock.broker.contract import EXPIRES, FROM_RETAINED, MANDATORY, Message
from penstock.core.basic_properties import HEADER_PREFIX, decode_header, encode_header
from penstock.destinations.retained.topic_tree import TopicTree

#: An upper estimate of a record's overhead in the log, besides route, header and body.
RECORD_BYTES: Final = 48


class RetainedIndex:
    __slots__ = ("_envelopes", "_tree", "bytes", "expiring", "weight")

    def __init__(self) -> None:
        self._tree = TopicTree()
        self._envelopes = InternedHeaders()
        self.bytes = 0  #: of all bodies, in memory and in files
        self.weight = 0  #: the approximate live size of the log
        self.expiring = 0  #: the number of messages with a time to live

    def __len__(self) -> int:
        return len(self._tree)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._tree)

    def put(
        self, key: bytes, message: Message, offset: int, deadline: int, *, spooled: bool
    ) -> RetainedRecord | None:
        """Store a message; returns the replaced record."""
        envelopes = self._envelopes
        envelope = envelopes.take(message)
        flags = message.flags & ~(MANDATORY | FROM_RETAINED)
        body = message.body
        size = message.size if spooled else len(body)
        packed = pack_record(offset, deadline, envelope, flags, body, size if spooled else None)
        before = self._tree.put(key, packed)
        self.bytes += size
        if deadline:
            self.expiring += 1
        if offset != NOT_LOGGED:
            self.weight += len(key) + envelopes.sizes[envelope] + len(packed) + RECORD_BYTES
        return None if before is None else self._remove_record(key, before)

    def pop(self, key: bytes) -> RetainedRecord | None:
        packed = self._tree.pop(key)
        return None if packed is None else self._remove_record(key, packed)

    def get(self, key: bytes) -> RetainedRecord | None:
        packed = self._tree.get(key)
        return None if packed is None else unpack_record(packed)

    def offset(self, key: bytes) -> int:
        """The offset of a key's record, or NOT_LOGGED."""
        packed = self._tree.get(key)
        return NOT_LOGGED if packed is None else record_offset(packed)

    def set_offset(self, key: bytes, offset: int) -> None:
        """Set the offset of a key's record."""
        packed = self._tree.get(key)
        if packed is not None:
            self._tree.put(key, replace_offset(packed, offset))

    def message(self, key: bytes, record: RetainedRecord, now: int) -> Message:
        """The message of a record, with its remaining time to live."""
        route, header = self._envelopes.unfold(record.envelope, key, record.size)
        if record.flags & EXPIRES:
            properties = decode_header(header)
            properties.expiration = str(max(0, record.deadline - now))
            header = encode_header(properties, record.size)
        return Message(route, header, record.body, record.flags)

    def match(self, pattern: bytes) -> Iterator[bytes]:
        return self._tree.match(pattern)

    def messages(
        self, pattern: bytes, other: Callable[[bytes, RetainedRecord], Message | None]
    ) -> Iterator[Message | None]:
        """The matching messages, flagged FROM_RETAINED; `other` makes those that expire or are in a
        file. The index may change meanwhile."""
        unpack = _FIXED.unpack_from
        envelopes = self._envelopes
        last_envelope = exchange = header = b""
        last_size = -1
        for key, packed in self._tree.items(pattern):
            _, deadline, envelope, flags, spooled = unpack(packed)
            if deadline or spooled or flags & EXPIRES:
                yield other(key, unpack_record(packed))
                continue
            body = packed[BODY_OFFSET:]
            if envelopes.kept[envelope] is not last_envelope or len(body) != last_size:
                last_envelope, last_size = envelopes.kept[envelope], len(body)
                route, header = envelopes.unfold(envelope, b"", last_size)
                exchange = route[:-1]
            route = exchange + _LENGTHS[len(key)] + key
            yield Message(route, header, body, flags | FROM_RETAINED)

    def _remove_record(self, key: bytes, packed: bytes) -> RetainedRecord:
        record = unpack_record(packed)
        envelopes = self._envelopes
        self.bytes -= record.size
        if record.deadline:
            self.expiring -= 1
        if record.offset != NOT_LOGGED:
            self.weight -= len(key) + envelopes.sizes[record.envelope] + len(packed) + RECORD_BYTES
        envelopes.drop(record.envelope)
        return record


class InternedHeaders:
    """Exchange and properties, which many retained messages share, stored once and counted.

    An *envelope* is the exchange as a short string, then the content header without its first
    twelve bytes (class, weight and body size).
    """

    __slots__ = ("_counts", "_free", "_numbers", "kept", "sizes")

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self.kept: list[bytes] = []  #: by number
        self._counts: list[int] = []
        self._free: list[int] = []
        self.sizes: list[int] = []  #: by number

    def __len__(self) -> int:
        return len(self._numbers)

    def take(self, message: Message) -> int:
        """The number of a message's envelope, with one more reference."""
        envelope = message.route[: 1 + message.route[0]] + message.header[12:]
        number = self._numbers.get(envelope)
        if number is not None:
            self._counts[number] += 1
        elif self._free:
            number = self._numbers[envelope] = self._free.pop()
            self.kept[number], self._counts[number] = envelope, 1
            self.sizes[number] = len(envelope)
        else:
            number = self._numbers[envelope] = len(self.kept)
            self.kept.append(envelope)
            self._counts.append(1)
            self.sizes.append(len(envelope))
        return number

    def drop(self, number: int) -> None:
        self._counts[number] -= 1
        if not self._counts[number]:
            del self._numbers[self.kept[number]]
            self.kept[number] = b""
            self._free.append(number)

    def unfold(self, number: int, key: bytes, size: int) -> tuple[bytes, bytes]:
        envelope = self.kept[number]
        start = 1 + envelope[0]
        route = envelope[:start] + bytes((len(key),)) + key
        return route, HEADER_PREFIX + size.to_bytes(8, "big") + envelope[start:]


def routing_key_of(route: bytes) -> bytes:
    return route[route[0] + 2 :]


#: The length of a short string, as bytes.
_LENGTHS: Final = tuple(bytes((length,)) for length in range(256))

#: The offset of what is record in memory only.
NOT_LOGGED: Final = -1

_FIXED: Final = Struct("<qqIBB")
_SIZE: Final = Struct("<q")

BODY_OFFSET: Final = _FIXED.size


class RetainedRecord(NamedTuple):
    """In memory: offset i64, deadline i64, envelope u32, flags u8, spooled u8, then the body, or
    the size i64 of a spooled one."""

    offset: int
    deadline: int
    envelope: int
    flags: int
    spooled: bool
    body: bytes  #: empty when it is spooled
    size: int  #: of the body

    def expired(self, now: int) -> bool:
        return 0 < self.deadline <= now


def pack_record(
    offset: int, deadline: int, envelope: int, flags: int, body: bytes, spooled_size: int | None
) -> bytes:
    if spooled_size is None:
        return _FIXED.pack(offset, deadline, envelope, flags, 0) + body
    return _FIXED.pack(offset, deadline, envelope, flags, 1) + _SIZE.pack(spooled_size)


def unpack_record(packed: bytes) -> RetainedRecord:
    offset, deadline, envelope, flags, spooled = _FIXED.unpack_from(packed)
    if spooled:
        (size,) = _SIZE.unpack_from(packed, BODY_OFFSET)
        return RetainedRecord(offset, deadline, envelope, flags, True, b"", size)
    body = packed[BODY_OFFSET:]
    return RetainedRecord(offset, deadline, envelope, flags, False, body, len(body))


def record_offset(packed: bytes) -> int:
    return int.from_bytes(packed[:8], "little", signed=True)


def replace_offset(packed: bytes, offset: int) -> bytes:
    return offset.to_bytes(8, "little", signed=True) + packed[8:]
