"""Compaction of the log of retained messages: live records move from its old end to its new one.

When the log is much larger than its live records, each append also scans a longer part at the old
end: live records there are appended again, and once the copies are on disk, the segments behind are
deleted. So the log stays within a few times the live size, work is done in small portions, and an
idle log is left alone.

Only keys are read; values are in memory. A record is live if the index has its offset. Dead records
and removal marks need not move: what they replaced is before them and is deleted before or with
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from penstock.broker.log.chunk import Chunk
from penstock.broker.log.committer import Committer
from penstock.broker.log.log import Log
from penstock.broker.spool import BodyFiles
from penstock.destinations.retained.index import RetainedIndex

#: The log may be this many times its live size, plus two segments: the last cannot be deleted.
MAX_SIZE_FACTOR: Final = 2
#: Bytes scanned per byte appended. With `MAX_SIZE_FACTOR` at two, at least half of them are dead in
#: the long run, so three free more than is appended and copied.
SCAN_FACTOR: Final = 3
#: Records scanned per append, so that a large append pays in instalments.
MAX_RECORDS_PER_APPEND: Final = 256
#: Scanned bytes after which segments are deleted.
TRUNCATE_BYTES: Final = 1 << 20


class MovedRecord(NamedTuple):
    key: bytes
    offset: int
    #: The previous offset of a large message's body.
    body_at: int | None


class CompactionBatch:
    """Copies that reach the disk in one commit; may be empty."""

    __slots__ = ("end", "first", "moved", "start")

    def __init__(self, start: int, end: int, first: int) -> None:
        self.start = start  #: until then, nothing from here on may be deleted
        self.end = end  #: after that, everything before may be deleted
        self.first = first  #: the offset of the first copy
        self.moved: list[MovedRecord] = []


class RetainedCompactor:
    def __init__(
        self,
        log: Log,
        retained_index: RetainedIndex,
        bodies: BodyFiles,
        committer: Committer,
        segment_bytes: int,
    ) -> None:
        self._log = log
        self._index = retained_index
        self._bodies = bodies
        self._committer = committer
        self._spare = 2 * segment_bytes
        self._stride = min(TRUNCATE_BYTES, segment_bytes)
        self._scan_budget = 0  # bytes to scan
        self._at = log.first_offset  # the next record to scan
        self._ahead: Iterator[tuple[int, bytes, int]] = iter(())
        self._behind = 0  # scanned bytes of the log
        self._passed = 0  # of them, since the last batch
        self._batches: list[CompactionBatch] = []  # not on disk yet
        self._closed = False

    @property
    def is_due(self) -> bool:
        return self._log.bytes - self._behind > MAX_SIZE_FACTOR * self._index.weight + self._spare

    def on_append(self, appended: int) -> None:
        if not self.is_due:
            self._scan_budget = 0
            self._ahead = iter(())  # frees a chunk
            return
        self._scan_budget += SCAN_FACTOR * appended
        try:
            for _ in range(MAX_RECORDS_PER_APPEND):
                if self._scan_budget <= 0:
                    return
                if not self._scan_next():
                    self._scan_budget = 0
        except OSError:  # continued at a later append
            self._scan_budget = 0

    def _scan_next(self) -> bool:
        """Process the next record; returns False if there is none."""
        found = next(self._ahead, None)
        if found is None:
            self._ahead = self._records()
            found = next(self._ahead, None)
            if found is None:
                return False
        offset, key, size = found
        if self._index.offset(key) == offset:
            self._move(key)
        self._at = offset + 1
        self._scan_budget -= size
        self._behind += size
        self._passed += size
        if self._passed >= self._stride:
            self._begin(self._at)
        return True

    def _records(self) -> Iterator[tuple[int, bytes, int]]:
        """Records from here on: offset, key, and share of the bytes of its chunk."""
        for chunk in self._log.chunks(self._at, self._log.written_offset):
            size, rest = divmod(chunk.header.file_bytes, chunk.count)
            start = max(0, self._at - chunk.base)
            for offset, key in enumerate(_keys(chunk, start), chunk.base + start):
                yield offset, key, size + rest if offset == chunk.end - 1 else size

    def _move(self, key: bytes) -> None:
        record = self._index.get(key)
        now = self._log.now()
        if record is None or record.expired(now):
            return
        message = self._index.message(key, record, now)
        if record.spooled:
            try:
                message.spool = self._bodies.open(record.offset)
            except FileNotFoundError:
                return  # `get` reports it
            self._bodies.add(self._log.next_offset, message.spool)
        batch = self._batches[-1] if self._batches else None
        if batch is None or batch.first < self._log.written_offset:
            batch = self._begin(self._at)
        offset = self._log.append(message)
        self._index.set_offset(key, offset)
        batch.moved.append(MovedRecord(key, offset, record.offset if record.spooled else None))

    def _begin(self, start: int) -> CompactionBatch:
        self._passed = 0
        batch = CompactionBatch(start, self._at, self._log.next_offset)
        self._batches.append(batch)
        self._committer.after(partial(self._stored, batch), partial(self._failed, batch))
        return batch

    def _stored(self, batch: CompactionBatch) -> None:
        self._batches.remove(batch)
        if self._closed:
            return
        for one in batch.moved:
            if one.body_at is not None:
                self._bodies.remove(one.body_at)
        before = self._log.bytes
        self._log.truncate_before(min([batch.end, *(other.start for other in self._batches)]))
        self._behind = max(0, self._behind - (before - self._log.bytes))

    def _failed(self, batch: CompactionBatch, _: OSError) -> None:
        """The disk may have lost the copies: make them again from memory."""
        self._batches.remove(batch)
        if self._closed:
            return
        again = self._begin(batch.start)
        again.moved += batch.moved
        for one in batch.moved:
            if self._index.offset(one.key) == one.offset:
                self._move(one.key)

    def close(self) -> None:
        self._closed = True
        self._ahead = iter(())


def _keys(chunk: Chunk, start: int) -> Iterator[bytes]:
    """The keys of a chunk's records; nothing else is decoded."""
    at, count, payload = chunk.columns, chunk.count, chunk.payload
    view = memoryview(payload)
    index = view[at.route_index : at.route_index + 4 * count].cast("i")
    routes = chunk.header.routes
    offsets = view[at.route_offsets : at.route_offsets + 4 * (routes + 1)].cast("i")
    for route in index[start:]:
        begin, end = at.route_blob + offsets[route], at.route_blob + offsets[route + 1]
        yield payload[begin + payload[begin] + 2 : end]
