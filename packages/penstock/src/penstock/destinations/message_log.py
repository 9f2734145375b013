"""The messages of a queue on disk: the log, its acknowledgements, and files of large bodies."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple

from penstock.broker.contract import (
    Message,
)
from penstock.broker.kernel import Kernel
from penstock.broker.log.ack_file import AckFile
from penstock.broker.log.chunk import SPOOLED
from penstock.broker.log.log import Log
from penstock.broker.log.observer import remove_tree
from penstock.broker.spool import BodyFiles

#: Record flag: a transient message, paged; not restored after a restart.
TRANSIENT_RECORD: Final = 1

#: Record flag: a transient message that was delivered before it was paged, so not ready.
DELIVERED_RECORD: Final = 2

#: Acknowledgements between two truncations of the log.
TRIM_INTERVAL: Final = 1024


class LoggedMessage(NamedTuple):
    offset: int
    timestamp: int  #: milliseconds since the epoch
    message: Message
    transient: bool


class MessageLog:
    """A queue's messages on disk: log, acknowledgement file and bodies of large messages.

    The files are created when they are first used: there may be very many queues that never have a
    persistent message.
    """

    def __init__(self, kernel: Kernel, directory: Path) -> None:
        self.directory = directory
        self._kernel = kernel
        self._committer = kernel.committer
        self._bodies = BodyFiles(directory, kernel.committer)
        self._trim_at = 0
        if directory.exists():
            self._open()

    @property
    def is_new(self) -> bool:
        """Nothing was ever stored."""
        return "log" not in vars(self)

    @cached_property
    def log(self) -> Log:
        return self._open()[0]

    @cached_property
    def acks(self) -> AckFile:
        return self._open()[1]

    def _open(self) -> tuple[Log, AckFile]:
        """Open the files together: acknowledgements beyond the end of the log must not count."""
        kernel = self._kernel
        segment_bytes = min(kernel.settings.segment_bytes, 16 << 20)
        log = Log(
            self.directory, kernel.committer, segment_bytes=segment_bytes, report=kernel.report
        )
        acks = AckFile(self.directory / "acks", kernel.committer, report=kernel.report)
        acks.truncate(log.next_offset)
        vars(self).update(log=log, acks=acks)
        self._trim_at = acks.floor + TRIM_INTERVAL
        self._bodies.sweep(lambda offset: offset < log.next_offset and offset not in acks)
        return log, acks

    def append(self, message: Message, transient: bool = False, delivered: bool = False) -> int:
        flags = TRANSIENT_RECORD if transient else 0
        offset = self.log.append(message, flags | DELIVERED_RECORD if delivered else flags)
        if message.spool is not None:
            self._bodies.add(offset, message.spool)
        return offset

    def append_run(self, messages: list[Message]) -> None:
        """Small ones; their offsets follow each other."""
        self.log.append_run(messages)

    def acknowledge(self, offset: int, spooled: bool) -> None:
        self.acks.add(offset)
        if spooled:
            self._bodies.remove(offset)
        self._trim()

    def acknowledge_run(self, offsets: list[int]) -> bool:
        """Acknowledge messages that are not spooled; False if their offsets do not follow each
        other."""
        if not self.acks.add_run(offsets):
            return False
        self._trim()
        return True

    def _trim(self) -> None:
        floor = self.acks.floor
        if floor >= self._trim_at:
            self._trim_at = floor + TRIM_INTERVAL
            self.log.truncate_before(floor)

    def acknowledge_all(self) -> None:
        self.acks.add_range(self.acks.floor, self.log.next_offset)
        self.log.truncate_before(self.acks.floor)
        self._bodies.sweep(lambda offset: False)

    def message(self, offset: int) -> Message | None:
        """A message that is not spooled; None if it is damaged."""
        if offset >= self.log.written_offset:
            self.log.write()
        chunk = self.log.read(offset)
        if chunk is None or not chunk.base <= offset < chunk.end:
            return None
        return chunk.messages()[offset - chunk.base]

    def batch(self, offset: int, with_delivered: bool = False) -> tuple[list[LoggedMessage], int]:
        """Unacknowledged records of the first chunk at or after `offset`, and the next offset."""
        if offset >= self.log.written_offset:
            self.log.write()
        chunk = self.log.read(offset)
        if chunk is None:
            return [], self.log.next_offset
        start = max(0, offset - chunk.base)
        acks = self.acks
        if chunk.base > offset:
            acks.add_range(offset, chunk.base)  # damaged; it was reported
        records = []
        flags, timestamps = chunk.flags, chunk.timestamps
        for index, message in enumerate(chunk.messages(start), start):
            at = chunk.base + index
            if at in acks or (flags[index] & DELIVERED_RECORD and not with_delivered):
                continue
            if flags[index] & SPOOLED:
                try:
                    message.spool = self._bodies.open(at, message.size)
                except FileNotFoundError:
                    acks.add(at)
                    continue
                message.body = b""
            records.append(
                LoggedMessage(at, timestamps[index], message, bool(flags[index] & TRANSIENT_RECORD))
            )
        return records, chunk.base + chunk.count

    def timestamp(self, offset: int) -> int | None:
        if offset >= self.log.written_offset:
            self.log.write()
        chunk = self.log.read(offset) if offset < self.log.next_offset else None
        if chunk is None or not chunk.base <= offset < chunk.base + chunk.count:
            return None
        return chunk.timestamps[offset - chunk.base]

    def count_pending(self, offset: int) -> tuple[int, int, int]:
        """The number and the size of the messages of the chunk at `offset`, and the offset after
        them, if it begins there and all are small, persistent and unacknowledged; else zeros."""
        chunk = self.log.read(offset)
        if chunk is None or chunk.base != offset or any(chunk.flags):
            return 0, 0, 0
        done = self.acks.done
        if offset < self.acks.floor or (done and not done.isdisjoint(range(offset, chunk.end))):
            return 0, 0, 0
        return chunk.count, chunk.header.body_bytes, chunk.end

    @property
    def first_offset(self) -> int:
        """Not above the offset of any unacknowledged record."""
        return max(self.acks.floor, self.log.first_offset)

    def records(self) -> Iterator[LoggedMessage]:
        """Every unacknowledged record, oldest first."""
        if self.is_new:
            return
        offset = self.first_offset
        while offset < self.log.next_offset:
            records, offset = self.batch(offset, with_delivered=True)
            yield from records

    def close(self) -> None:
        if not self.is_new:
            self.log.close()
            self.acks.close()

    def delete(self) -> None:
        if self.is_new:
            return
        with contextlib.suppress(FileNotFoundError):
            self.log.delete()
            self.acks.delete()
        remove_tree(self.directory, self._committer.observer)
