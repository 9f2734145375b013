"""The acknowledgement file: which offsets of a queue's log are done.

Everything below `floor` is done, and so is every offset in `done`. Who has to know after a restart
what was sent and not acknowledged calls `mark_sent`: `sent` holds those offsets. Each turn in which
something was acknowledged or sent adds a frame. When the file has doubled since it was last
compacted, a copy that begins with one frame for all that is known is written beside it, takes every
frame from then on as well, and replaces the file once it is on disk: at no time is there less on
disk than there was.

A torn tail is cut. A damaged frame costs its acknowledgements, so its messages come again; none
is ever taken as done that was not. For that, two things are left to the queue: to `cut` what the
log does not reach after a crash, as those offsets will be given again; and to add the ranges that
the log lost, as nobody will acknowledge them and the floor would stay below them.
"""

from __future__ import annotations

import os
import struct
from array import array
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from penstock.broker.log.committer import Committer


#: Smaller files are not worth compacting.
COMPACT_BYTES: Final = 1 << 20
_CREATE: Final = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC


def _ignore(_: str) -> None:
    return None


class AckFile:
    def __init__(
        self, path: Path, committer: Committer, report: Callable[[str], None] = _ignore
    ) -> None:
        self._path = path
        self._committer = committer
        self.floor = 0
        self.done: set[int] = set()
        self.sent: set[int] = set()
        self._pending: list[int] = []
        self._pending_ranges: list[OffsetRange] = []
        self._pending_sent: list[int] = []
        self._file: _FrameFile | None = None  # made when there is something to write
        self._copy: _FrameFile | None = None  # the compacted file, until it is on disk
        self._new_name = False  # the directory must be synced
        self._compact_at = COMPACT_BYTES
        self._closed = False
        self._copy_path.unlink(missing_ok=True)
        if path.exists():
            self._load(report)
            committer.touch(self, lazy=True)  # a killed process may have left it to the kernel

    def __contains__(self, offset: int) -> bool:
        return offset < self.floor or offset in self.done

    def add(self, offset: int) -> None:
        if not self._pending:
            self._committer.touch(self, lazy=True)
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

    def mark_sent(self, offset: int) -> None:
        """It is about to be sent, to one who has yet to acknowledge it."""
        if offset not in self.sent:
            self.sent.add(offset)
            if not self._pending_sent:
                self._committer.touch(self, lazy=True)
            self._pending_sent.append(offset)

    def add_range(self, start: int, stop: int) -> None:
        if stop <= max(start, self.floor):
            return
        self._committer.touch(self, lazy=True)
        self._pending_ranges.append((start, stop))
        self._take(start, stop)

    def cut(self, end: int) -> None:
        """Forget every offset from `end` on, at once: the log ends there, after a crash."""
        beyond = {offset for offset in self.done if offset >= end}
        unsent = {offset for offset in self.sent if offset >= end}
        if self.floor <= end and not beyond and not unsent:
            return
        self.floor = min(self.floor, end)
        self.done -= beyond
        self.sent -= unsent
        copy = _FrameFile(self._copy_path)
        try:
            copy.write(encode_ack_frame(self._ranges()))
            os.fsync(copy.fd)
            self._replace_by(copy)
        except OSError:
            copy.close()
            raise
        directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    # Writing and syncing, for the committer.

    def write(self) -> None:
        if not (self._pending or self._pending_ranges or self._pending_sent) or self._closed:
            return
        ranges = offset_ranges(self._pending)
        if self._pending_ranges:
            ranges = merge_ranges(ranges + self._pending_ranges)
        if self._pending_sent:
            ranges = _sent_ranges(self._pending_sent) + ranges
        if self._file is None:
            self._file = _FrameFile(self._path)
            self._new_name = True
        frame = encode_ack_frame(ranges)
        self._file.write(frame)
        self._pending.clear()
        self._pending_ranges.clear()
        self._pending_sent.clear()
        if self._copy is not None:
            try:
                self._copy.write(frame)
            except OSError:
                self._give_up_copy()
        elif self._file.size >= self._compact_at:
            self._compact()

    def begin_sync(self) -> list[int]:
        descriptors: list[int] = []
        try:
            for file in (self._file, self._copy):
                if file is not None:
                    descriptors.append(os.dup(file.fd))
            if self._new_name and not self._closed:
                descriptors.append(os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY))
        except OSError:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        self._new_name = False
        return descriptors

    def end_sync(self, error: OSError | None) -> None:
        if error is not None and self._file is not None and self._copy is None:
            self._compact()  # what the file holds is no longer sure; all of it is in memory

    # Compaction.

    def _compact(self) -> None:
        try:
            self._copy = _FrameFile(self._copy_path)
            self._copy.write(encode_ack_frame(self._ranges()))
            self._committer.also_sync(self._copy.fd)
        except OSError:
            self._give_up_copy()
        else:
            self._committer.after(self._finish_copy, lambda _: self._give_up_copy())

    def _finish_copy(self) -> None:
        if self._copy is None:
            return
        try:
            self._replace_by(self._copy)
        except OSError:  # the file as it is holds everything
            self._give_up_copy()
            return
        self._copy = None
        self._new_name = True
        self._committer.touch(self, lazy=True)

    def _give_up_copy(self) -> None:
        """Go on with the file as it is, and try again when it has grown by as much again."""
        if self._copy is not None:
            self._copy.close()
            self._copy = None
        with suppress(OSError):
            self._copy_path.unlink(missing_ok=True)
        if self._file is not None:
            self._compact_at = self._file.size + COMPACT_BYTES

    def _replace_by(self, copy: _FrameFile) -> None:
        self._copy_path.replace(self._path)
        if self._file is not None:
            self._file.close()
        self._file = copy
        self._compact_at = max(COMPACT_BYTES, 2 * copy.size)

    def _ranges(self) -> list[OffsetRange]:
        return _sent_ranges(self.sent) + merge_ranges([(0, self.floor), *offset_ranges(self.done)])

    @property
    def _copy_path(self) -> Path:
        return self._path.with_name(self._path.name + ".new")

    # Opening and ending.

    def _load(self, report: Callable[[str], None]) -> None:
        data = self._path.read_bytes()
        reading = decode_ack_frames(data)
        for start, stop in merge_ranges(given for given in reading.ranges if given[0] >= 0):
            self._take(start, stop)
        for start, stop in merge_ranges(given for given in reading.ranges if given[0] < 0):
            self.sent.update(offset for offset in range(-stop, -start) if offset not in self)
        if reading.damaged:
            report(f"{self._path}: {reading.damaged} damaged bytes; some messages may come again")
        self._file = _FrameFile(self._path, reading.end)
        if len(data) > reading.end:
            self._file.cut()
            report(f"{self._path}: torn tail of {len(data) - reading.end} bytes cut")

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

    def close(self) -> None:
        if self._closed:
            return
        try:
            self.write()
        finally:
            for descriptor in self.begin_sync():
                self._committer.adopt(descriptor)
            self._end()

    def delete(self) -> None:
        self._pending.clear()
        self._pending_ranges.clear()
        self._pending_sent.clear()
        self._end()
        self._path.unlink(missing_ok=True)

    def _end(self) -> None:
        self._closed = True
        self._give_up_copy()
        if self._file is not None:
            self._file.close()
            self._file = None


def _sent_ranges(sent: Iterable[int]) -> list[OffsetRange]:
    return [(-stop, -start) for start, stop in offset_ranges(sent)]


class _FrameFile:
    """A file that grows by whole frames: what a failed write left is cut or overwritten."""

    __slots__ = ("fd", "size")

    def __init__(self, path: Path, size: int = 0) -> None:
        self.fd = os.open(path, _CREATE if size else _CREATE | os.O_TRUNC, 0o600)
        self.size = size

    def write(self, frame: bytes) -> None:
        written = 0
        try:
            while written < len(frame):
                written += os.pwrite(self.fd, frame[written:], self.size + written)
        except OSError:
            with suppress(OSError):
                self.cut()
            raise
        self.size += len(frame)

    def cut(self) -> None:
        os.ftruncate(self.fd, self.size)

    def close(self) -> None:
        os.close(self.fd)


# The format of an acknowledgement file: frames, each a list of ranges of offsets.
#
#     frame  magic "PSAK", crc32 of all that follows, count i64, then (start i64, stop i64)[count]
#
# Reading goes past a damaged frame to the next sound one. Ranges may repeat and overlap. A range
# of offsets that were sent, and not acknowledged, is written below zero: (-stop, -start).

ACK_MAGIC: Final = b"PSAK"
_SEAL = struct.Struct("<4sI")
_COUNT = struct.Struct("<q")
_HEADER_BYTES: Final = _SEAL.size + _COUNT.size

OffsetRange = tuple[int, int]


class AckFileContent(NamedTuple):
    """What a file holds: its ranges, where the last sound frame ends, damaged bytes before it."""

    ranges: list[OffsetRange]
    end: int
    damaged: int


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
    """The numbers of the frame that begins there, if a sound one does."""
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
    """The same offsets in as few ranges as can be, in order."""
    result: list[OffsetRange] = []
    for start, stop in sorted(ranges):
        if result and start <= result[-1][1]:
            if stop > result[-1][1]:
                result[-1] = (result[-1][0], stop)
        else:
            result.append((start, stop))
    return result


def offset_ranges(offsets: Iterable[int]) -> list[OffsetRange]:
    """Single offsets as ranges."""
    ordered = sorted(offsets)
    if not ordered:
        return []
    if ordered[-1] - ordered[0] == len(ordered) - 1:  # mostly acknowledgements come in order
        return [(ordered[0], ordered[-1] + 1)]
    return merge_ranges((offset, offset + 1) for offset in ordered)
