"""The segmented log: an append-only sequence of messages in files, readable from any offset.

`append` only queues a message. At the end of the write batch, the committer makes the log write
pending messages as one or more chunks. Data below `synced_offset` survives everything but the loss
of the disk. Opening reads to the last complete chunk and cuts a torn tail. A damaged chunk is
reported once and skipped. The committer decides when to write and sync, the queue or stream what to
delete. Everything runs on the broker's loop.
"""

from __future__ import annotations

import errno
import os
import time
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Final

from penstock.broker.contract import Message
from penstock.broker.log.chunk import CHUNK_BYTES, Chunk, encode_chunk, encode_chunk_header
from penstock.broker.log.committer import Committer
from penstock.broker.log.remote_segment import remote_path
from penstock.broker.log.segment import CorruptionReport, Segment, SegmentNotLocal
from penstock.core.data_directory import make_directory
from penstock.core.errors import CorruptChunk

#: Chunks cached for readers at the end of the log. Each may take a megabyte, and there may be many
#: logs.
CACHED_CHUNKS: Final = 2

#: An active segment of this size and age is replaced when nothing in it is needed any more. A queue
#: with little traffic would take years to fill it.
STALE_BYTES: Final = 1 << 20
STALE_MILLISECONDS: Final = 60_000


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


def _ignore(_: str) -> None:
    return None


def _ignore_segment(_: Segment) -> None:
    return None


class Log:
    def __init__(
        self,
        directory: Path,
        committer: Committer,
        *,
        segment_bytes: int = 64 << 20,
        now: Callable[[], int] = _milliseconds,
        report: Callable[[str], None] = _ignore,
    ) -> None:
        """Open the log in `directory`, or create it."""
        self._directory = directory
        self._committer = committer
        self._segment_bytes = segment_bytes
        self.now = now  #: milliseconds since the epoch
        make_directory(directory)
        self._corruption = CorruptionReport(report)
        self._segments = SegmentList(directory, self._corruption, committer)
        end = self._segments.end
        self.next_offset = end  #: of the next message
        self.written_offset = end  #: everything below is in the files
        #: Everything below is on disk: in a cluster, on the disks of all in-sync members.
        self.synced_offset = end if committer.observer is None else self.first_offset
        if committer.observer is not None:
            committer.after(partial(self._advance, end))
        self._pending: list[Message] = []
        self._flags: dict[int, int] = {}  # of pending messages, if not zero
        self._timestamp = 0  # of pending messages
        self._unwritten: deque[Chunk] = deque()  # encoded, not in the files yet
        self._recent: deque[Chunk] = deque(maxlen=CACHED_CHUNKS)
        self._followed = False  # a reader is at the end: cache the next chunk
        self._sealed: list[int] = []  # descriptors of segments sealed since the last sync
        # Names that must be synced, too. A killed process may have left some that are not on disk.
        self._new_files = self._made_directory = True
        self._distrusted = False  # the last sync of the active segment failed
        self._stale = False  # no message of the active segment is needed
        self._active_since = 0
        self._syncing_offset = 0
        self._closed = False
        self.on_not_local: Callable[[Segment], None] = _ignore_segment

    @property
    def segments(self) -> SegmentList:
        return self._segments

    @property
    def first_offset(self) -> int:
        return self._segments.first_offset

    @property
    def bytes(self) -> int:
        return self._segments.bytes

    @property
    def corrupt(self) -> int:
        """The number of damaged chunks found so far."""
        return len(self._corruption)

    def append(self, message: Message, flags: int = 0) -> int:
        """Queue a message for the next write; returns its offset."""
        offset = self.next_offset
        self.next_offset = offset + 1
        if not self._pending:
            self._timestamp = self.now()
            self._committer.touch(self)
        if flags:
            self._flags[offset] = flags
        self._pending.append(message)
        return offset

    def append_run(self, messages: list[Message]) -> None:
        """Queue messages for the next write; their offsets follow each other."""
        if not self._pending:
            self._timestamp = self.now()
            self._committer.touch(self)
        self.next_offset += len(messages)
        self._pending += messages

    def write(self) -> None:
        """Write pending messages to the files; after an OSError the rest stays pending."""
        if self._pending:
            self._encode_pending()
        while self._unwritten:
            chunk = self._unwritten[0]
            self._ensure_segment(chunk)
            self._segments.append(chunk)
            self._unwritten.popleft()
            self.written_offset = chunk.end
            if self._followed:
                self._recent.append(chunk)
                self._followed = False

    def _encode_pending(self) -> None:
        """Encode the pending messages, once, however often they must be written."""
        base = self.next_offset - len(self._pending)
        for part in _parts(self._pending):
            self._unwritten.append(encode_chunk(base, self._timestamp, part, self._flags))
            base += len(part)
        self._pending = []
        self._flags.clear()

    def _ensure_segment(self, chunk: Chunk) -> None:
        """Start a new segment if the active one is full, or its last sync failed."""
        if self._closed:
            raise OSError(errno.EBADF, "the log is closed", str(self._directory))
        active = self._segments.active
        if active is not None:
            room = self._segment_bytes - active.size
            usable = not (self._distrusted or self._stale)
            if not active.size or (room >= chunk.header.file_bytes and usable):
                return
        sealed = self._segments.roll(chunk.base)
        if sealed is not None:
            self._sealed.append(sealed)
        self._new_files = True
        self._distrusted = self._stale = False
        self._active_since = self.now()

    def begin_sync(self) -> list[int]:
        self._syncing_offset = self.written_offset
        if self._closed:
            return []
        descriptors: list[int] = []
        try:
            if (active := self._segments.active) is not None:
                descriptors.append(active.duplicate())
            if self._new_files:
                descriptors.append(os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY))
            if self._made_directory:
                descriptors.append(os.open(self._directory.parent, os.O_RDONLY | os.O_DIRECTORY))
        except OSError:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        descriptors += self._sealed
        self._sealed = []
        self._new_files = self._made_directory = False
        return descriptors

    def end_sync(self, error: OSError | None) -> None:
        if error is None:
            self._committer.when_replicated(partial(self._advance, self._syncing_offset))
        else:  # continue in another file: this one may have holes
            self._distrusted = self._new_files = True

    def _advance(self, offset: int) -> None:
        self.synced_offset = max(self.synced_offset, offset)

    def read(self, offset: int) -> Chunk | None:
        """The chunk with the offset, or the next valid one; None after the last written message.

        The chunk begins after the offset if older messages are deleted or damaged. None also if
        only an object store has the chunk: `on_not_local` is told.
        """
        for chunk in self._recent:
            if chunk.base <= offset < chunk.end:
                self._followed = self._followed or chunk.end == self.written_offset
                return chunk
        try:
            found = self._segments.read(offset) if offset < self.written_offset else None
        except SegmentNotLocal as missing:
            self.on_not_local(missing.segment)
            return None
        if found is None:
            self._followed = True
        else:
            self._recent.append(found)
        return found

    def chunks(self, start: int, stop: int) -> Iterator[Chunk]:
        """The chunks with messages from `start` to before `stop`, uncached; raises
        SegmentNotLocal."""
        while start < min(stop, self.written_offset):
            chunk = self._segments.read(start)
            if chunk is None or chunk.base >= stop:
                return
            yield chunk
            start = chunk.end

    def find(self, timestamp_ms: int) -> int:
        """The first offset of the first chunk with a message of that time or later, else the next
        offset."""
        found = self._segments.find(timestamp_ms)
        if found is not None:
            return found
        for chunk in self._unwritten:
            if chunk.header.newest >= timestamp_ms:
                return chunk.base
        late = self._timestamp >= timestamp_ms
        return self.next_offset - len(self._pending) if late else self.next_offset

    def last_chunk_offset(self) -> int:
        """The first offset of the last written chunk; the next offset if there is none."""
        last = self._segments.last_chunk_offset()
        return self.next_offset if last is None else last

    def limit(self, start: int, stop: int, most: int) -> int:
        """The end of a range from `start` to at most `stop` that takes at most so many bytes, or
        one message. In a chunk, messages count as equally large."""
        return self._segments.limit(start, stop, most)

    def truncate_before(self, offset: int) -> None:
        """Delete segments that have only messages below the offset. If that is all of a large and
        old active segment, the next message starts another one."""
        self._segments.drop_before(offset)
        active = self._segments.active
        if active is not None and offset >= self.next_offset and active.size >= STALE_BYTES:
            self._stale = abs(self.now() - self._active_since) >= STALE_MILLISECONDS

    def retain(self, max_age_ms: int | None, max_bytes: int | None) -> int:
        """Delete segments beyond an age or total size, except the active one; returns the first
        offset."""
        oldest = None if max_age_ms is None else self.now() - max_age_ms
        self._segments.retain(oldest, max_bytes)
        return self.first_offset

    def close(self) -> None:
        """Write pending messages and close the files; the committer syncs them.

        Messages that cannot be written are lost and never confirmed.
        """
        if self._closed:
            return
        try:
            self.write()
        finally:
            for descriptor in self.begin_sync():
                self._committer.adopt(descriptor)
            self._closed = True
            self._segments.close()
            self._recent.clear()

    def delete(self) -> None:
        self._closed = True
        self._pending = []
        self._unwritten.clear()
        self._recent.clear()
        for descriptor in self._sealed:
            os.close(descriptor)
        self._sealed = []
        self._segments.delete()
        with suppress(OSError):  # it may have other files
            self._directory.rmdir()


def _parts(messages: list[Message]) -> Iterator[list[Message]]:
    """Slices of about the size of a chunk."""
    if sum([len(m.body) + len(m.header) for m in messages]) <= CHUNK_BYTES:
        yield messages
        return
    start = size = 0
    for i, message in enumerate(messages):
        size += len(message.body) + len(message.header)
        if size >= CHUNK_BYTES:
            yield messages[start : i + 1]
            start, size = i + 1, 0
    if start < len(messages):
        yield messages[start:]


#: Open sealed segments. Readers of one log are mostly close together.
OPEN_SEGMENTS: Final = 4


class SegmentList:
    """The segments of one log, oldest first; the last is active. Damaged chunks are skipped."""

    __slots__ = (
        "_committer",
        "_corruption",
        "_directory",
        "_list",
        "_open",
        "bytes",
        "on_dropped",
    )

    def __init__(self, directory: Path, corruption: CorruptionReport, committer: Committer) -> None:
        self._directory = directory
        self._committer = committer
        self._corruption = corruption
        self._open: deque[Segment] = deque()
        for leftover in directory.glob("*.idx.new"):
            leftover.unlink()
        names = {path.stem for kind in ("*.seg", "*.remote") for path in directory.glob(kind)}
        self._list = [
            Segment(directory / f"{name}.seg", corruption)
            for name in sorted(names)
            if name.isdigit()
        ]
        self.on_dropped: Callable[[Segment], None] = _ignore_segment
        if self._list and not self._list[-1].recover():
            # After a kill, data of the last segment, and of one sealed just before, may not be
            # synced.
            for segment in self._list[-2:]:
                segment.sync()
        self.bytes = sum(segment.size for segment in self._list)

    def __len__(self) -> int:
        return len(self._list)

    @property
    def first_offset(self) -> int:
        return self._list[0].base if self._list else 0

    @property
    def end(self) -> int:
        """The offset after the last message."""
        return self._list[-1].index.end if self._list else 0

    @property
    def active(self) -> Segment | None:
        return self._list[-1] if self._list else None

    def roll(self, base: int) -> int | None:
        """Start a segment at that offset; the caller syncs the returned sealed descriptor."""
        fresh = Segment(self._directory / f"{base:020}.seg", self._corruption)
        fresh.create()  # when this fails, nothing has changed
        before = self.active
        self._list.append(fresh)
        return before.seal() if before is not None else None

    def append(self, chunk: Chunk) -> None:
        segment = self._list[-1]
        segment.append(chunk)
        if (observer := self._committer.observer) is not None:
            data = encode_chunk_header(chunk.header) + chunk.payload
            observer.append(segment.path, segment.size - len(data), data)
        self.bytes += chunk.header.file_bytes

    def read(self, offset: int) -> Chunk | None:
        """The chunk with the offset, or the first valid one after it."""
        where = max(bisect_right(self._list, offset, key=_base) - 1, 0)
        for segment in self._list[where:]:
            self._use(segment)
            index = segment.index
            for i in range(index.at_offset(offset), len(index)):
                try:
                    chunk = segment.read(i)
                except CorruptChunk as damaged:
                    self._corruption.found(segment.path, index.positions[i], str(damaged))
                    continue
                if chunk.end > offset:  # else the offset is in a damaged part after it
                    return chunk
        return None

    def find(self, timestamp: int) -> int | None:
        """The first offset of the first chunk with a message of that time or later."""
        for segment in self._list:
            if segment.newest >= timestamp:
                self._use(segment)
                return segment.index.bases[segment.index.at_time(timestamp)]
        return None

    def limit(self, start: int, stop: int, most: int) -> int:
        at = start
        for segment in self._list[max(bisect_right(self._list, start, key=_base) - 1, 0) :]:
            if segment.base >= stop:
                break
            self._use(segment)
            index, size = segment.index, segment.size
            begin = index.position(max(at, segment.base), size)
            if begin + most < size:
                return max(start + 1, min(stop, index.offset(begin + most, size)))
            most -= size - begin
            at = index.end
        return stop

    def last_chunk_offset(self) -> int | None:
        for segment in reversed(self._list):
            self._use(segment)
            if len(segment.index):
                return segment.index.bases[-1]
        return None

    def _use(self, segment: Segment) -> None:
        if segment is not self._list[-1] and segment not in self._open:
            if len(self._open) == OPEN_SEGMENTS:
                self._open.popleft().release()
            self._open.append(segment)

    def drop_before(self, offset: int) -> None:
        """Delete segments that end at or before the offset, except the active one."""
        while len(self._list) > 1 and self._list[1].base <= offset:
            self._drop_oldest()

    def retain(self, oldest: int | None, most: int | None) -> None:
        """Delete the oldest segments while they are older than `oldest`, or all take more than
        `most` bytes."""
        while len(self._list) > 1 and (
            (most is not None and self.bytes > most)
            or (oldest is not None and self._list[0].newest < oldest)
        ):
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        segment = self._list.pop(0)
        self.release(segment)
        self.bytes -= segment.size
        self._delete(segment)

    def _delete(self, segment: Segment) -> None:
        segment.delete()
        if (observer := self._committer.observer) is not None:
            observer.delete(segment.path)
            if segment.remote is not None:
                observer.delete(remote_path(segment.path))
        if segment.remote is not None:
            self.on_dropped(segment)

    def sealed(self) -> Iterator[tuple[Segment, int]]:
        """The sealed segments, and the offset after each."""
        for segment, following in pairwise(self._list):
            yield segment, following.base

    def at(self, offset: int) -> tuple[Segment, int] | None:
        """The segment with the offset, and the offset after it, unless it is the active one."""
        where = max(bisect_right(self._list, offset, key=_base) - 1, 0)
        if where + 1 >= len(self._list):
            return None
        return self._list[where], self._list[where + 1].base

    def release(self, segment: Segment) -> None:
        with suppress(ValueError):
            self._open.remove(segment)

    def close(self) -> None:
        if self._list:
            self._list[-1].mark_clean()
        for segment in self._list:
            segment.release()
        self._open.clear()

    def delete(self) -> None:
        for segment in self._list:
            self._delete(segment)
        self._open.clear()
        self._list = []
        self.bytes = 0


def _base(segment: Segment) -> int:
    return segment.base
