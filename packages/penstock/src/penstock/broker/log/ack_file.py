"""The acknowledgement file: which offsets of a queue's log are acknowledged.

Everything below `floor` is acknowledged, and so is every offset in `done`. `sent` holds offsets
that were sent and not acknowledged, for queues that call `mark_sent`. Each write batch with changes
adds one frame to the file:

    frame  magic "PSAK", crc32 of all that follows, count i64, then (start i64, stop i64)[count]

Ranges may repeat and overlap. A range of sent offsets is written as (-stop, -start). Reading
continues after a damaged frame. It costs its acknowledgements, so its messages are redelivered; no
offset is ever taken as acknowledged that was not. For that, the queue must call `truncate` after a
crash, as offsets beyond the end of the log will be assigned again; and add the ranges that the log
lost, as nobody will acknowledge them.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple
from zlib import crc32

from penstock.broker.log.committer import Committer
from penstock.broker.log.compacted_file import CompactedFile

#: Smaller files are not compacted.
COMPACT_BYTES: Final = 256 << 10


def _ignore(_: str) -> None:
    return None


class AckFile:
    def __init__(
        self, path: Path, committer: Committer, report: Callable[[str], None] = _ignore
    ) -> None:
        self.floor = 0
        self.done: set[int] = set()
        self.sent: set[int] = set()
        self._pending: list[int] = []
        self._pending_ranges: list[OffsetRange] = []
        self._pending_sent: list[int] = []
        self._file = CompactedFile(
            path,
            committer,
            pending=self._encode_pending,
            written=self._clear_pending,
            snapshot=lambda: encode_ack_frame(self._ranges()),
            min_bytes=COMPACT_BYTES,
        )
        content = decode_ack_frames(self._file.read())
        for start, stop in merge_ranges(given for given in content.ranges if given[0] >= 0):
            self._take(start, stop)
        for start, stop in merge_ranges(given for given in content.ranges if given[0] < 0):
            self.sent.update(offset for offset in range(-stop, -start) if offset not in self)
        if content.damaged:
            report(f"{path}: {content.damaged} damaged bytes; messages may be redelivered")
        self._file.resume(content.end, report)

    def __contains__(self, offset: int) -> bool:
        return offset < self.floor or offset in self.done

    def add(self, offset: int) -> None:
        if not self._pending:
            self._file.touch()
        if offset == self.floor:
            self.floor = offset + 1
            if self.done:
                self._raise_floor()
        elif offset < self.floor or offset in self.done:
            return
        else:
            self.done.add(offset)
        self._pending.append(offset)
        if self.sent:
            self.sent.discard(offset)

    def add_run(self, offsets: list[int]) -> bool:
        """Add offsets if they follow each other from the floor on; returns whether they do."""
        start, count = self.floor, len(offsets)
        if self.done or self.sent or offsets != [*range(start, start + count)]:
            return False
        self.add_range(start, start + count)
        return True

    def mark_sent(self, offset: int) -> None:
        if offset not in self.sent:
            self.sent.add(offset)
            if not self._pending_sent:
                self._file.touch()
            self._pending_sent.append(offset)

    def add_range(self, start: int, stop: int) -> None:
        if stop <= max(start, self.floor):
            return
        self._file.touch()
        self._pending_ranges.append((start, stop))
        self._take(start, stop)

    def hasten(self) -> None:
        """Who waits for a sync from now on also waits for this file."""
        self._file.hasten()

    def truncate(self, end: int) -> None:
        """Forget every offset from `end` on, at once: the log ends there after a crash."""
        beyond = {offset for offset in self.done if offset >= end}
        unsent = {offset for offset in self.sent if offset >= end}
        if self.floor <= end and not beyond and not unsent:
            return
        self.floor = min(self.floor, end)
        self.done -= beyond
        self.sent -= unsent
        self._file.compact()

    def close(self) -> None:
        self._file.close()

    def delete(self) -> None:
        self._clear_pending()
        self._file.delete()

    def _encode_pending(self) -> bytes:
        if not (self._pending or self._pending_ranges or self._pending_sent):
            return b""
        ranges = offset_ranges(self._pending)
        if self._pending_ranges:
            ranges = merge_ranges(ranges + self._pending_ranges)
        if self._pending_sent:
            ranges = _sent_ranges(self._pending_sent) + ranges
        return encode_ack_frame(ranges)

    def _clear_pending(self) -> None:
        self._pending.clear()
        self._pending_ranges.clear()
        self._pending_sent.clear()

    def _ranges(self) -> list[OffsetRange]:
        return _sent_ranges(self.sent) + merge_ranges([(0, self.floor), *offset_ranges(self.done)])

    def _take(self, start: int, stop: int) -> None:
        if self.sent:
            self.sent.difference_update([offset for offset in self.sent if start <= offset < stop])
        if start > self.floor:
            self.done.update(range(start, stop))
        elif stop > self.floor:
            if self.done:
                self.done.difference_update([o for o in self.done if o < stop])
            self.floor = stop
            self._raise_floor()

    def _raise_floor(self) -> None:
        floor, done = self.floor, self.done
        while floor in done:
            done.remove(floor)
            floor += 1
        self.floor = floor


def _sent_ranges(sent: Iterable[int]) -> list[OffsetRange]:
    return [(-stop, -start) for start, stop in offset_ranges(sent)]


ACK_MAGIC: Final = b"PSAK"
_SEAL = struct.Struct("<4sI")
_COUNT = struct.Struct("<q")
_HEADER_BYTES: Final = _SEAL.size + _COUNT.size

OffsetRange = tuple[int, int]


class AckFileContent(NamedTuple):
    ranges: list[OffsetRange]
    end: int  #: of the last valid frame
    damaged: int  #: bytes before that


def encode_ack_frame(ranges: Sequence[OffsetRange]) -> bytes:
    body = _COUNT.pack(len(ranges)) + array("q", chain.from_iterable(ranges)).tobytes()
    return _SEAL.pack(ACK_MAGIC, crc32(body)) + body


def decode_ack_frames(data: bytes) -> AckFileContent:
    ranges: list[OffsetRange] = []
    position = end = damaged = 0
    while position >= 0:
        frame = _frame(data, position)
        if frame is None:
            position = data.find(ACK_MAGIC, position + 1)
        else:
            damaged += position - end
            ranges += zip(frame[::2], frame[1::2], strict=True)
            position = end = position + _HEADER_BYTES + 8 * len(frame)
    return AckFileContent(ranges, end, damaged)


def _frame(data: bytes, at: int) -> array[int] | None:
    """The numbers of the valid frame at that position, if there is one."""
    if data[at : at + 4] != ACK_MAGIC or at + _HEADER_BYTES > len(data):
        return None
    (count,) = _COUNT.unpack_from(data, at + _SEAL.size)
    stop = at + _HEADER_BYTES + 16 * count
    if count < 1 or stop > len(data):
        return None
    if crc32(data[at + _SEAL.size : stop]) != _SEAL.unpack_from(data, at)[1]:
        return None
    return array("q", data[at + _HEADER_BYTES : stop])


def merge_ranges(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """The same offsets in as few ranges as possible, sorted."""
    result: list[OffsetRange] = []
    for start, stop in sorted(ranges):
        if result and start <= result[-1][1]:
            if stop > result[-1][1]:
                result[-1] = (result[-1][0], stop)
        else:
            result.append((start, stop))
    return result


def offset_ranges(offsets: Iterable[int]) -> list[OffsetRange]:
    ordered = sorted(offsets)
    if not ordered:
        return []
    if ordered[-1] - ordered[0] == len(ordered) - 1:  # the usual case: acknowledgements in order
        return [(ordered[0], ordered[-1] + 1)]
    return merge_ranges((offset, offset + 1) for offset in ordered)
