"""What is retained, in memory: a compact record for each key, and sums over all of them.

It knows nothing of files. When something has expired, what is logged, and what a record's offset
leads to, is the store's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.broker.contract import EXPIRES, MANDATORY, RECALLED, Message
from penstock.core.properties import decode_header, encode_header
from penstock.drivers.retained import record
from penstock.drivers.retained.envelopes import Envelopes
from penstock.drivers.retained.record import NOWHERE, Record
from penstock.drivers.retained.tree import Tree

#: What a record takes in the log beside its route, header and body: its share of the columns, and
#: of a chunk's header when chunks are small. Rather more than less: see `compaction.py`.
RECORD_BYTES: Final = 48


class Shelf:
    __slots__ = ("_envelopes", "_tree", "bytes", "mortal", "weight")

    def __init__(self) -> None:
        self._tree = Tree()
        self._envelopes = Envelopes()
        self.bytes = 0  #: of all bodies, wherever they lie
        self.weight = 0  #: about what all that is logged takes in the log
        self.mortal = 0  #: how many have a time to live

    def __len__(self) -> int:
        return len(self._tree)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._tree)

    def put(
        self, key: bytes, message: Message, offset: int, deadline: int, *, spooled: bool
    ) -> Record | None:
        """Keep a message; returns the record it replaces."""
        envelopes = self._envelopes
        envelope = envelopes.take(message)
        flags = message.flags & ~(MANDATORY | RECALLED)
        body = message.body
        size = message.size if spooled else len(body)
        packed = record.pack(offset, deadline, envelope, flags, body, size if spooled else None)
        before = self._tree.put(key, packed)
        self.bytes += size
        if deadline:
            self.mortal += 1
        if offset != NOWHERE:
            self.weight += len(key) + envelopes.sizes[envelope] + len(packed) + RECORD_BYTES
        return None if before is None else self._gone(key, before)

    def pop(self, key: bytes) -> Record | None:
        packed = self._tree.pop(key)
        return None if packed is None else self._gone(key, packed)

    def get(self, key: bytes) -> Record | None:
        packed = self._tree.get(key)
        return None if packed is None else record.unpack(packed)

    def offset(self, key: bytes) -> int:
        """Where a key's record stands in the log, or NOWHERE."""
        packed = self._tree.get(key)
        return NOWHERE if packed is None else record.offset_of(packed)

    def moved(self, key: bytes, offset: int) -> None:
        """A key's record stands somewhere else in the log."""
        packed = self._tree.get(key)
        if packed is not None:
            self._tree.put(key, record.at_offset(packed, offset))

    def message(self, key: bytes, kept: Record, now: int) -> Message:
        """A record as the message it was; of its time to live it has what is left."""
        route, header = self._envelopes.unfold(kept.envelope, key, kept.size)
        if kept.flags & EXPIRES:
            properties = decode_header(header)
            properties.expiration = str(max(0, kept.deadline - now))
            header = encode_header(properties, kept.size)
        return Message(route, header, kept.body, kept.flags)

    def match(self, pattern: bytes) -> Iterator[bytes]:
        return self._tree.match(pattern)

    def _gone(self, key: bytes, packed: bytes) -> Record:
        kept = record.unpack(packed)
        envelopes = self._envelopes
        self.bytes -= kept.size
        if kept.deadline:
            self.mortal -= 1
        if kept.offset != NOWHERE:
            self.weight -= len(key) + envelopes.sizes[kept.envelope] + len(packed) + RECORD_BYTES
        envelopes.drop(kept.envelope)
        return kept
