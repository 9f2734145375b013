"""What is retained, in memory: a compact record for each key, and sums over all of them.

It knows nothing of files. When something has expired, what is logged, and what a record's offset
leads to, is the store's.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

from penstock.broker.contract import EXPIRES, FROM_RETAINED, MANDATORY, Message
from penstock.core.basic_properties import HEADER_PREFIX, decode_header, encode_header
from penstock.destinations.retained.topic_tree import TopicTree

#: What a record takes in the log beside its route, header and body: its share of the columns, and
#: of a chunk's header when chunks are small. Rather more than less: see `compaction.py`.
RECORD_BYTES: Final = 48


class RetainedIndex:
    __slots__ = ("_envelopes", "_tree", "bytes", "mortal", "weight")

    def __init__(self) -> None:
        self._tree = TopicTree()
        self._envelopes = InternedHeaders()
        self.bytes = 0  #: of all bodies, wherever they lie
        self.weight = 0  #: about what all that is logged takes in the log
        self.mortal = 0  #: how many have a time to live

    def __len__(self) -> int:
        return len(self._tree)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._tree)

    def put(
        self, key: bytes, message: Message, offset: int, deadline: int, *, spooled: bool
    ) -> RetainedRecord | None:
        """Keep a message; returns the record it replaces."""
        envelopes = self._envelopes
        envelope = envelopes.take(message)
        flags = message.flags & ~(MANDATORY | FROM_RETAINED)
        body = message.body
        size = message.size if spooled else len(body)
        packed = pack_record(offset, deadline, envelope, flags, body, size if spooled else None)
        before = self._tree.put(key, packed)
        self.bytes += size
        if deadline:
            self.mortal += 1
        if offset != NOT_LOGGED:
            self.weight += len(key) + envelopes.sizes[envelope] + len(packed) + RECORD_BYTES
        return None if before is None else self._gone(key, before)

    def pop(self, key: bytes) -> RetainedRecord | None:
        packed = self._tree.pop(key)
        return None if packed is None else self._gone(key, packed)

    def get(self, key: bytes) -> RetainedRecord | None:
        packed = self._tree.get(key)
        return None if packed is None else unpack_record(packed)

    def offset(self, key: bytes) -> int:
        """Where a key's record stands in the log, or NOWHERE."""
        packed = self._tree.get(key)
        return NOT_LOGGED if packed is None else record_offset(packed)

    def moved(self, key: bytes, offset: int) -> None:
        """A key's record stands somewhere else in the log."""
        packed = self._tree.get(key)
        if packed is not None:
            self._tree.put(key, replace_offset(packed, offset))

    def message(self, key: bytes, kept: RetainedRecord, now: int) -> Message:
        """A record as the message it was; of its time to live it has what is left."""
        route, header = self._envelopes.unfold(kept.envelope, key, kept.size)
        if kept.flags & EXPIRES:
            properties = decode_header(header)
            properties.expiration = str(max(0, kept.deadline - now))
            header = encode_header(properties, kept.size)
        return Message(route, header, kept.body, kept.flags)

    def match(self, pattern: bytes) -> Iterator[bytes]:
        return self._tree.match(pattern)

    def _gone(self, key: bytes, packed: bytes) -> RetainedRecord:
        kept = unpack_record(packed)
        envelopes = self._envelopes
        self.bytes -= kept.size
        if kept.deadline:
            self.mortal -= 1
        if kept.offset != NOT_LOGGED:
            self.weight -= len(key) + envelopes.sizes[kept.envelope] + len(packed) + RECORD_BYTES
        envelopes.drop(kept.envelope)
        return kept


# What many retained messages say alike: the exchange they came by and their properties.
#
# A fleet's messages differ in their keys and bodies. The rest, the *envelope*, is kept once and
# counted; a record has its number. An envelope is the exchange as a short string, as it begins a
# route, and then the content header without its first twelve bytes (class, weight and body size).


class InternedHeaders:
    __slots__ = ("_counts", "_free", "_kept", "_numbers", "sizes")

    def __init__(self) -> None:
        self._numbers: dict[bytes, int] = {}
        self._kept: list[bytes] = []
        self._counts: list[int] = []
        self._free: list[int] = []
        self.sizes: list[int] = []  #: of each, by number

    def __len__(self) -> int:
        return len(self._numbers)

    def take(self, message: Message) -> int:
        """The number of a message's envelope, held once more."""
        envelope = message.route[: 1 + message.route[0]] + message.header[12:]
        number = self._numbers.get(envelope)
        if number is not None:
            self._counts[number] += 1
        elif self._free:
            number = self._numbers[envelope] = self._free.pop()
            self._kept[number], self._counts[number] = envelope, 1
            self.sizes[number] = len(envelope)
        else:
            number = self._numbers[envelope] = len(self._kept)
            self._kept.append(envelope)
            self._counts.append(1)
            self.sizes.append(len(envelope))
        return number

    def drop(self, number: int) -> None:
        self._counts[number] -= 1
        if not self._counts[number]:
            del self._numbers[self._kept[number]]
            self._kept[number] = b""
            self._free.append(number)

    def unfold(self, number: int, key: bytes, size: int) -> tuple[bytes, bytes]:
        """The route and the content header of a message with this envelope."""
        envelope = self._kept[number]
        start = 1 + envelope[0]
        route = envelope[:start] + bytes((len(key),)) + key
        return route, HEADER_PREFIX + size.to_bytes(8, "big") + envelope[start:]


def routing_key_of(route: bytes) -> bytes:
    return route[route[0] + 2 :]


# A retained message as memory holds it: one bytes object, a value of the tree.
#
# offset i64     where it stands in the log, or NOWHERE
# deadline i64   when it expires, in milliseconds since the epoch, or 0
# envelope u32   the number of its envelope
# flags u8       the message's, as in the contract
# spooled u8     whether the body lies in a file; then its size, i64, stands for it
# body

#: The offset of what is kept in memory only.
NOT_LOGGED: Final = -1

_FIXED: Final = Struct("<qqIBB")
_SIZE: Final = Struct("<q")

#: Where the body begins.
BODY_OFFSET: Final = _FIXED.size


class RetainedRecord(NamedTuple):
    offset: int
    deadline: int
    envelope: int
    flags: int
    spooled: bool
    body: bytes  #: empty when it is spooled
    size: int  #: of the body, wherever it lies

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
    """The same record at another place in the log."""
    return offset.to_bytes(8, "little", signed=True) + packed[8:]
