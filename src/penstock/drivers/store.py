"""A queue's messages on disk: the log, what of it is done, and the bodies of large messages.

A durable queue logs every persistent message and marks it done in the acknowledgement file. Any
queue that outgrows its share of memory pages to the log too; what was not persistent is marked so,
and forgotten at the next start.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from penstock.broker.contract import Message
from penstock.broker.kernel import Kernel
from penstock.broker.log.acks import AckFile
from penstock.broker.log.chunk import SPOOLED
from penstock.broker.log.log import Log
from penstock.broker.spool import Spool

#: Record flag: paged only for want of memory; does not survive a restart.
TRANSIENT: Final = 1

#: How many messages are done before the log is asked to drop segments.
TRIM_EVERY: Final = 1024


class Record(NamedTuple):
    offset: int
    timestamp: int  #: milliseconds since the epoch
    message: Message
    transient: bool


class Store:
    def __init__(self, kernel: Kernel, directory: Path) -> None:
        self.directory = directory
        self._committer = kernel.committer
        segment_bytes = min(kernel.settings.segment_bytes, 16 << 20)
        self.log = Log(
            directory, kernel.committer, segment_bytes=segment_bytes, report=kernel.report
        )
        self.acks = AckFile(directory / "acks", kernel.committer, report=kernel.report)
        self.acks.cut(self.log.next_offset)  # of what a power failure took, nothing is done
        self._trim_at = self.acks.floor + TRIM_EVERY
        self._sweep()

    def append(self, message: Message, transient: bool = False) -> int:
        offset = self.log.append(message, TRANSIENT if transient else 0)
        if message.spool is not None:
            message.spool.link(self._body(offset))
            self._committer.adopt(os.open(self.directory, os.O_RDONLY))
        return offset

    def done(self, offset: int, spooled: bool) -> None:
        acks = self.acks
        acks.add(offset)
        if spooled:
            self._body(offset).unlink(missing_ok=True)
        if acks.floor >= self._trim_at:
            self._trim_at = acks.floor + TRIM_EVERY
            self.log.truncate_before(acks.floor)

    def all_done(self) -> None:
        """Nothing of what was logged so far is wanted any more."""
        self.acks.add_range(self.acks.floor, self.log.next_offset)
        self.log.truncate_before(self.acks.floor)
        for body in self.directory.glob("*.body"):
            body.unlink(missing_ok=True)

    def batch(self, offset: int) -> tuple[list[Record], int]:
        """The live records of the first chunk at or after `offset`, and where to go on."""
        if offset >= self.log.written_offset:
            self.log.write()
        chunk = self.log.read(offset)
        if chunk is None:
            return [], self.log.next_offset
        start = max(0, offset - chunk.base)
        acks = self.acks
        if chunk.base > offset:
            acks.add_range(offset, chunk.base)  # damaged, and reported
        records = []
        flags, timestamps = chunk.flags, chunk.timestamps
        for index, message in enumerate(chunk.messages(start), start):
            at = chunk.base + index
            if at in acks:
                continue
            if flags[index] & SPOOLED:
                path = self._body(at)
                if not path.exists():
                    acks.add(at)
                    continue
                message.spool = Spool(path, owned=False)
                message.body = b""
            records.append(Record(at, timestamps[index], message, bool(flags[index] & TRANSIENT)))
        return records, chunk.base + chunk.count

    def records(self) -> Iterator[Record]:
        """Every live record, oldest first."""
        offset = max(self.acks.floor, self.log.first_offset)
        while offset < self.log.next_offset:
            records, offset = self.batch(offset)
            yield from records

    def _body(self, offset: int) -> Path:
        return self.directory / f"{offset:020d}.body"

    def _sweep(self) -> None:
        for body in self.directory.glob("*.body"):
            offset = int(body.stem)
            if offset in self.acks or offset >= self.log.next_offset:
                body.unlink()

    def close(self) -> None:
        self.log.close()
        self.acks.close()

    def delete(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.log.delete()
            self.acks.delete()
        shutil.rmtree(self.directory, ignore_errors=True)
