"""In-flight messages: QoS, packet ids, and the state of exactly-once delivery."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct
from typing import Final
from zlib import crc32

from penstock.broker.contract import (
    EXACTLY_ONCE,
    MAX_PACKET_ID,
    PERSISTENT,
    Delivery,
    EffectiveSubscription,
    InflightMessage,
    Message,
)
from penstock.broker.kernel import Kernel
from penstock.broker.log.compacted_file import CompactedFile
from penstock.destinations.session.subscriptions import DEFAULT_SUBSCRIPTION

#: A placeholder for a message that the client has; only its packet id is in use.
_RELEASED_MESSAGE: Final = Message(b"", b"", b"")


def delivery_qos(message: Message, subscription: EffectiveSubscription) -> int:
    if not message.flags & PERSISTENT:
        return 0
    published = 2 if message.flags & EXACTLY_ONCE else 1
    return min(published, subscription.qos)


def packet_id_of(offset: int) -> int:
    """The packet id of a logged message: the same after a restart."""
    return offset % MAX_PACKET_ID + 1


def inflight_message(delivery: Delivery, subscription: EffectiveSubscription) -> InflightMessage:
    """A pending message with its current subscription."""
    entry = InflightMessage(
        delivery.message,
        delivery.position,
        subscription,
        delivery_qos(delivery.message, subscription),
    )
    entry.offset = delivery.offset
    entry.count = delivery.count
    entry.expires = delivery.expires
    return entry


def restore_released(offsets: Iterable[int]) -> Iterator[InflightMessage]:
    """In-flight messages for which PUBREL is due after a restart, in order."""
    for offset in sorted(offsets):
        entry = InflightMessage(_RELEASED_MESSAGE, 0, DEFAULT_SUBSCRIPTION, 2)
        entry.offset = offset
        entry.packet_id = packet_id_of(offset)
        entry.released = True
        yield entry


_FACT: Final = Struct("<BQ")
_RECORD: Final = Struct("<BQI")

_RECEIVED: Final = 1
_DISCARDED: Final = 2
_RELEASED: Final = 3
_COMPLETED: Final = 4

#: A journal with fewer records is not compacted.
COMPACT_RECORDS: Final = 4096


class ExactlyOnceState:
    """The QoS 2 exchanges in progress; those of a durable session are in a journal.

    `received` holds the packet ids of publishes that the client has not released: a repeated one is
    a duplicate. `released` holds the log offsets of messages for which PUBREL is due: they are not
    sent again. Changes are written in the same write batch, so before the client is answered, and
    after the messages of the batch, so that no state is stored without its message.
    """

    __slots__ = ("_journal", "_pending", "received", "released")

    def __init__(self, kernel: Kernel, path: Path | None) -> None:
        self._pending: list[bytes] = []
        self.received: set[int] = set()
        self.released: set[int] = set()
        self._journal: CompactedFile | None = None
        if path is not None:
            self._journal = CompactedFile(
                path,
                kernel.committer,
                pending=lambda: b"".join(self._pending),
                written=self._pending.clear,
                snapshot=self._snapshot,
                min_bytes=COMPACT_RECORDS * _RECORD.size,
            )
            self._load(self._journal, kernel)

    def add_received(self, packet_id: int) -> None:
        self.received.add(packet_id)
        self._note(_RECEIVED, packet_id)

    def release_received(self, packet_id: int) -> None:
        if packet_id in self.received:
            self.received.discard(packet_id)
            self._note(_DISCARDED, packet_id)

    def release(self, offset: int) -> None:
        self.released.add(offset)
        self._note(_RELEASED, offset)

    def complete(self, offset: int) -> None:
        if offset in self.released:
            self.released.discard(offset)
            self._note(_COMPLETED, offset)

    def hasten(self) -> None:
        """Who waits for a sync from now on also waits for the journal."""
        if self._journal is not None:
            self._journal.hasten()

    def _note(self, kind: int, value: int) -> None:
        if self._journal is not None:
            if not self._pending:
                self._journal.touch()
            self._pending.append(_encode_record(kind, value))

    def _snapshot(self) -> bytes:
        records = [(_RECEIVED, n) for n in self.received] + [(_RELEASED, n) for n in self.released]
        return b"".join(_encode_record(kind, value) for kind, value in records)

    def _load(self, journal: CompactedFile, kernel: Kernel) -> None:
        data = journal.read()
        end = 0
        for record in range(0, len(data) - _RECORD.size + 1, _RECORD.size):
            kind, value, check = _RECORD.unpack_from(data, record)
            if check != crc32(data[record : record + _FACT.size]):
                break
            end = record + _RECORD.size
            if kind == _RECEIVED:
                self.received.add(value)
            elif kind == _DISCARDED:
                self.received.discard(value)
            elif kind == _RELEASED:
                self.released.add(value)
            else:
                self.released.discard(value)
        journal.resume(end, kernel.report)

    def close(self) -> None:
        if self._journal is not None:
            self._journal.close()

    def delete(self) -> None:
        self._pending.clear()
        if self._journal is not None:
            self._journal.delete()


def _encode_record(kind: int, value: int) -> bytes:
    fact = _FACT.pack(kind, value)
    return fact + crc32(fact).to_bytes(4, "little")
