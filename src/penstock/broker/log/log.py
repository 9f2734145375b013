"""The segmented log: an append-only sequence of messages, kept in files, read from any offset.

Appending only notes the message. At the end of the turn the committer has the log write what is
pending as one chunk, or several when it is much. The log promises that what `synced_offset` says
is on disk survives anything but the loss of the disk; that opening reads to the last whole chunk
and cuts what was torn; that a damaged chunk is reported once and skipped, never handed out. When
to write and to sync is the committer's, what may be forgotten is the queue's or the stream's.

Everything here runs on the broker's loop.
"""

from __future__ import annotations

import errno
import os
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from penstock.broker.log.chunk import CHUNK_BYTES, Chunk, encode
from penstock.broker.log.damage import Damages
from penstock.broker.log.segments import Segments

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.broker.contract import Message
    from penstock.broker.log.committer import Committer

#: Readers that follow the end of a log share chunks, and the messages made of them. Each may be a
#: megabyte, and there may be many logs.
RECENT_CHUNKS: Final = 2


def _milliseconds() -> int:
    return time.time_ns() // 1_000_000


def _say_nothing(_: str) -> None:
    return None


class Log:
    def __init__(
        self,
        directory: Path,
        committer: Committer,
        *,
        segment_bytes: int = 64 << 20,
        now: Callable[[], int] = _milliseconds,
        report: Callable[[str], None] = _say_nothing,
    ) -> None:
        """Open the log in `directory`, or begin one there."""
        self._directory = directory
        self._committer = committer
        self._segment_bytes = segment_bytes
        self.now = now  #: milliseconds since the epoch
        self._made_directory = not directory.exists()
        directory.mkdir(parents=True, exist_ok=True)
        self._damages = Damages(report)
        self._segments = Segments(directory, self._damages)
        end = self._segments.end
        self.next_offset = end  #: what the next message appended gets
        self.written_offset = end  #: everything below is in the files
        self.synced_offset = end  #: everything below is on disk
        self._pending: list[Message] = []
        self._flags: dict[int, int] = {}  # of pending messages, where not zero
        self._timestamp = 0  # of pending messages
        self._unwritten: deque[Chunk] = deque()  # encoded, and waiting for the disk
        self._recent: deque[Chunk] = deque(maxlen=RECENT_CHUNKS)
        self._followed = False  # somebody reads at the end: the next chunk will be wanted
        self._sealed: list[int] = []  # descriptors of segments sealed since the last sync
        self._new_files = False
        self._distrusted = False  # the active segment's last sync failed
        self._syncing_offset = 0
        self._closed = False

    @property
    def first_offset(self) -> int:
        """The oldest that is kept."""
        return self._segments.first_offset

    @property
    def bytes(self) -> int:
        """On disk."""
        return self._segments.bytes

    @property
    def corrupt(self) -> int:
        """Damaged places found so far."""
        return len(self._damages)

    # Writing.

    def append(self, message: Message, flags: int = 0) -> int:
        """Note a message for the next write; returns its offset."""
        offset = self.next_offset
        self.next_offset = offset + 1
        if not self._pending:
            self._timestamp = self.now()
            self._committer.touch(self)
        if flags:
            self._flags[offset] = flags
        self._pending.append(message)
        return offset

    def write(self) -> None:
        """Put what is pending into the files; on OSError the rest stays for the next time."""
        if self._pending:
            self._encode_pending()
        while self._unwritten:
            chunk = self._unwritten[0]
            self._make_room(chunk)
            self._segments.append(chunk)
            self._unwritten.popleft()
            self.written_offset = chunk.end
            if self._followed:
                self._recent.append(chunk)
                self._followed = False

    def _encode_pending(self) -> None:
        """Close the batch: it is encoded once, however often it must be written."""
        base = self.next_offset - len(self._pending)
        for part in _parts(self._pending):
            self._unwritten.append(encode(base, self._timestamp, part, self._flags))
            base += len(part)
        self._pending = []
        self._flags.clear()

    def _make_room(self, chunk: Chunk) -> None:
        """Begin another segment when the active one is full or cannot be trusted."""
        if self._closed:
            raise OSError(errno.EBADF, "the log is closed", str(self._directory))
        active = self._segments.active
        if active is not None:
            room = self._segment_bytes - active.size
            if not active.size or (room >= chunk.header.file_bytes and not self._distrusted):
                return
        sealed = self._segments.roll(chunk.base)
        if sealed is not None:
            self._sealed.append(sealed)
        self._new_files = True
        self._distrusted = False

    # Syncing, for the committer.

    def begin_sync(self) -> list[int]:
        self._syncing_offset = self.written_offset
        if self._closed:
            return []
        descriptors: list[int] = []
        try:
            if (active := self._segments.active) is not None:
                descriptors.append(active.duplicate())
            if self._new_files:  # their names must be on disk too
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
            self.synced_offset = max(self.synced_offset, self._syncing_offset)
        else:  # go on in another file: this one may have holes from here on
            self._distrusted = self._new_files = True

    # Reading.

    def read(self, offset: int) -> Chunk | None:
        """The chunk that holds the offset, or the next whole one; None after the last written.

        A chunk begins after the offset where older messages are gone or damaged.
        """
        for chunk in self._recent:
            if chunk.base <= offset < chunk.end:
                self._followed = self._followed or chunk.end == self.written_offset
                return chunk
        found = self._segments.read(offset) if offset < self.written_offset else None
        if found is None:
            self._followed = True
        else:
            self._recent.append(found)
        return found

    def chunks(self, start: int, stop: int) -> Iterator[Chunk]:
        """The chunks with messages from `start` to before `stop`, for one who reads them once."""
        while start < min(stop, self.written_offset):
            chunk = self._segments.read(start)
            if chunk is None or chunk.base >= stop:
                return
            yield chunk
            start = chunk.end

    def find(self, timestamp_ms: int) -> int:
        """The first offset of a chunk with a message of that time or later, else the next."""
        found = self._segments.find(timestamp_ms)
        if found is not None:
            return found
        for chunk in self._unwritten:
            if chunk.header.newest >= timestamp_ms:
                return chunk.base
        late = self._timestamp >= timestamp_ms
        return self.next_offset - len(self._pending) if late else self.next_offset

    def last_chunk_offset(self) -> int:
        """Where the last written chunk begins; the next offset when there is none."""
        last = self._segments.last_chunk_offset()
        return self.next_offset if last is None else last

    # Forgetting and ending.

    def truncate_before(self, offset: int) -> None:
        """Delete the segments that hold only messages below the offset."""
        self._segments.drop_before(offset)

    def retain(self, max_age_ms: int | None, max_bytes: int | None) -> int:
        """Delete the oldest segments past an age or a total size; returns the first offset left.

        The segment being written is always kept.
        """
        oldest = None if max_age_ms is None else self.now() - max_age_ms
        self._segments.retain(oldest, max_bytes)
        return self.first_offset

    def close(self) -> None:
        """Write what is pending and let go of the files; the committer syncs them.

        What cannot be written is lost, and those who wait for it are never confirmed.
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
        """Drop everything, also what is pending."""
        self._closed = True
        self._pending = []
        self._unwritten.clear()
        self._recent.clear()
        for descriptor in self._sealed:
            os.close(descriptor)
        self._sealed = []
        self._segments.delete()
        with suppress(OSError):  # others may keep files there
            self._directory.rmdir()


def _parts(messages: list[Message]) -> Iterator[list[Message]]:
    """Stretches of about a chunk's worth of bytes each."""
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
