"""The segments of one log, oldest first: finding and reading chunks in them, dropping the oldest.

The last one is active. Of the sealed ones only a few are open at a time. Damaged chunks are told
to `Damages` and skipped, so that a reader only ever meets sound ones. What is appended, and when
something is dropped, is the log's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from penstock.broker.log.segment import Segment
from penstock.core.errors import CorruptChunk

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.broker.log.chunk import Chunk
    from penstock.broker.log.damage import Damages

#: Sealed segments kept open. Readers of one log are mostly close together.
OPEN_SEGMENTS: Final = 4


class Segments:
    __slots__ = ("_damages", "_directory", "_list", "_open", "bytes")

    def __init__(self, directory: Path, damages: Damages) -> None:
        self._directory = directory
        self._damages = damages
        self._open: deque[Segment] = deque()
        for leftover in directory.glob("*.idx.new"):
            leftover.unlink()
        self._list = [
            Segment(path, damages)
            for path in sorted(directory.glob("*.seg"))
            if path.stem.isdigit()
        ]
        if self._list and not self._list[-1].recover():
            # A process that was killed leaves data that only the kernel has, at the end of the
            # last segment and perhaps of the one it had just sealed.
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

    # Growing.

    def roll(self, base: int) -> int | None:
        """Begin the segment of that offset. Returns the sealed one's descriptor, to be synced."""
        fresh = Segment(self._directory / f"{base:020}.seg", self._damages)
        fresh.create()  # when this fails, nothing has changed
        before = self.active
        self._list.append(fresh)
        return before.seal() if before is not None else None

    def append(self, chunk: Chunk) -> None:
        self._list[-1].append(chunk)
        self.bytes += chunk.header.file_bytes

    # Reading.

    def read(self, offset: int) -> Chunk | None:
        """The chunk that holds the offset, or the first sound one after it."""
        where = max(bisect_right(self._list, offset, key=_base) - 1, 0)
        for segment in self._list[where:]:
            self._use(segment)
            index = segment.index
            for i in range(index.at_offset(offset), len(index)):
                try:
                    chunk = segment.read(i)
                except CorruptChunk as damage:
                    self._damages.found(segment.path, index.positions[i], str(damage))
                    continue
                if chunk.end > offset:  # else the offset lies in a damaged stretch after it
                    return chunk
        return None

    def find(self, timestamp: int) -> int | None:
        """Where the first chunk with a message of that time or later begins."""
        for segment in self._list:
            if segment.newest >= timestamp:
                self._use(segment)
                return segment.index.bases[segment.index.at_time(timestamp)]
        return None

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

    # Forgetting.

    def drop_before(self, offset: int) -> None:
        """Delete the segments, but never the active one, that end at or before the offset."""
        while len(self._list) > 1 and self._list[1].base <= offset:
            self._drop_oldest()

    def retain(self, oldest: int | None, most: int | None) -> None:
        """Delete oldest segments while they are older than that, or all are more bytes."""
        while len(self._list) > 1 and (
            (most is not None and self.bytes > most)
            or (oldest is not None and self._list[0].newest < oldest)
        ):
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        segment = self._list.pop(0)
        with suppress(ValueError):
            self._open.remove(segment)
        self.bytes -= segment.size
        segment.delete()

    def close(self) -> None:
        if self._list:
            self._list[-1].mark_clean()
        for segment in self._list:
            segment.release()
        self._open.clear()

    def delete(self) -> None:
        for segment in self._list:
            segment.delete()
        self._open.clear()
        self._list = []
        self.bytes = 0


def _base(segment: Segment) -> int:
    return segment.base
