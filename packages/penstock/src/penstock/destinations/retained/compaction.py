"""Keeps the log of retained messages small: what is live moves from its old end to its new one.

A log in which topics change for years holds little but records that were replaced. When it is much
larger than what is live, every append pays for a stretch of the oldest part that is longer than
itself: live records there are appended again, and once the copies are on disk, segments behind are
deleted. So the log stays within a few times what is live however fast it grows, the work is done in
small portions, and a log that nobody adds to is left alone.

It reads keys only: values are in memory. A record is live if the shelf has its offset. Dead ones,
and the marks of keys that were forgotten, need not move: what they outlived stands before them, and
goes before them or with them.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from penstock.broker.log.chunk import Chunk
from penstock.broker.log.committer import Committer
from penstock.broker.log.log import Log
from penstock.broker.spool import Spool
from penstock.destinations.retained.index import RetainedIndex

#: The log may be so many times what is live, and two segments more: the last cannot be deleted.
MAX_SIZE_FACTOR: Final = 2
#: Bytes that are looked at for each byte appended. With `MAX_SIZE_FACTOR` at two, at least half of
#: what is
#: looked at is dead in the long run: three bytes free what came and what is copied, and gain.
SCAN_FACTOR: Final = 3
#: What one append may have to look at: a large one among small records pays in instalments.
MAX_RECORDS_PER_APPEND: Final = 256
#: Segments behind are deleted each time so many bytes have been passed, if not earlier.
TRUNCATE_BYTES: Final = 1 << 20


class MovedRecord(NamedTuple):
    key: bytes
    offset: int
    #: Where the body of a large message lay before.
    body_at: int | None


class CompactionBatch:
    """Copies that reach the disk together; with none, a moment when all that was appended does."""

    __slots__ = ("end", "first", "moved", "start")

    def __init__(self, start: int, end: int, first: int) -> None:
        self.start = start  #: until they do, nothing from here on may go
        self.end = end  #: when they have, what was passed by then may
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
        self._debt = 0  # bytes to be looked at
        self._at = log.first_offset  # the next record to be looked at
        self._ahead: Iterator[tuple[int, bytes, int]] = iter(())
        self._behind = 0  # bytes of the log that have been passed
        self._passed = 0  # of them, since a batch was last begun
        self._batches: list[CompactionBatch] = []  # that are not on disk yet
        self._closed = False

    @property
    def due(self) -> bool:
        return self._log.bytes - self._behind > MAX_SIZE_FACTOR * self._index.weight + self._spare

    def pay(self, appended: int) -> None:
        """So many bytes came to the log."""
        if not self.due:
            self._debt = 0
            self._ahead = iter(())  # it holds a chunk
            return
        self._debt += SCAN_FACTOR * appended
        try:
            for _ in range(MAX_RECORDS_PER_APPEND):
                if self._debt <= 0:
                    return
                if not self._look():
                    self._debt = 0
        except OSError:  # nothing is lost by waiting, and no publisher is to blame
            self._debt = 0

    def _look(self) -> bool:
        """Take the next record in line; False when there is none."""
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
        self._debt -= size
        self._behind += size
        self._passed += size
        if self._passed >= self._stride:
            self._begin(self._at)
        return True

    def _records(self) -> Iterator[tuple[int, bytes, int]]:
        """From here on: a record's offset, its key, and its share of the bytes of its chunk."""
        for chunk in self._log.chunks(self._at, self._log.written_offset):
            size, rest = divmod(chunk.header.file_bytes, chunk.count)
            start = max(0, self._at - chunk.base)
            for offset, key in enumerate(_keys(chunk, start), chunk.base + start):
                yield offset, key, size + rest if offset == chunk.end - 1 else size

    def _move(self, key: bytes) -> None:
        kept = self._index.get(key)
        now = self._log.now()
        if kept is None or kept.expired(now):
            return
        message = self._index.message(key, kept, now)
        if kept.spooled:
            try:
                message.spool = self._bodies.open(kept.offset)
            except FileNotFoundError:
                return  # whoever asks for it will hear
            self._bodies.add(self._log.next_offset, message.spool)
        batch = self._batches[-1] if self._batches else None
        if batch is None or batch.first < self._log.written_offset:
            batch = self._begin(self._at)
        offset = self._log.append(message)
        self._index.moved(key, offset)
        batch.moved.append(MovedRecord(key, offset, kept.offset if kept.spooled else None))

    # Letting go.

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
        """The disk may have lost the copies: they are made again of what is in memory."""
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
    """The keys of a chunk's records, one at a time: nothing else of it is decoded."""
    at, count, payload = chunk.columns, chunk.count, chunk.payload
    view = memoryview(payload)
    index = view[at.route_index : at.route_index + 4 * count].cast("i")
    routes = chunk.header.routes
    offsets = view[at.route_offsets : at.route_offsets + 4 * (routes + 1)].cast("i")
    for route in index[start:]:
        begin, end = at.route_blob + offsets[route], at.route_blob + offsets[route + 1]
        yield payload[begin + payload[begin] + 2 : end]


# The bodies of large retained messages: files beside the log, named by their records' offsets.
#
# A body is linked before its record is written, and goes only when what has taken the record's
# place is on disk: a broker that is killed, or a machine that loses its power, finds the one or the
# other. What such an end leaves behind without a record is swept at the next start. That a body's
# bytes are synced is the business of whoever took it in.


class BodyFiles:
    __slots__ = ("_committer", "_directory")

    def __init__(self, directory: Path, committer: Committer) -> None:
        self._directory = directory
        self._committer = committer

    def path(self, offset: int) -> Path:
        return self._directory / f"{offset:020d}.body"

    def open(self, offset: int) -> Spool:
        """The body of a record; raises FileNotFoundError."""
        return Spool(self.path(offset), owned=False)

    def add(self, offset: int, spool: Spool) -> None:
        spool.link(self.path(offset))
        self._committer.adopt(os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY))

    def remove(self, offset: int) -> None:
        self.path(offset).unlink(missing_ok=True)

    def remove_later(self, offset: int) -> None:
        """Remove a body once all that is appended so far is on disk."""
        self._committer.after(lambda: self.remove(offset))

    def sweep(self, live: Collection[int]) -> None:
        for body in self._directory.glob("*.body"):
            if int(body.stem) not in live:
                body.unlink()
