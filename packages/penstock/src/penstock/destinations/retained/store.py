"""The retained messages of a virtual host: one for each key, the last that was kept.

Every one of them is in memory, and, unless it is `volatile`, in the log: a message is safe once the
log is committed, and so is its being forgotten. A key's last record in the log is what counts, and
a record without a body says that there is none; so a broker that is killed at any point finds what
it had promised. The log is kept small by `compaction.py`. The body of a large message stays in its
file (`compaction.py`).

A message with a time to live is gone when it is over, also if nobody asks: a sweep looks at all
keys by and by. Keys are in AMQP's form, levels parted by dots. Who may read what, and when a
subscriber is given which of these, is the terminal's.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from penstock.broker.contract import ACCEPTED, EXPIRES, FROM_RETAINED, LOGGED, Message
from penstock.broker.kernel import Kernel
from penstock.broker.log.chunk import SPOOLED
from penstock.broker.log.log import Log
from penstock.core.basic_properties import HEADER_PREFIX, decode_header
from penstock.destinations.retained.compaction import BodyFiles, RetainedCompactor
from penstock.destinations.retained.index import (
    NOT_LOGGED,
    RECORD_BYTES,
    RetainedIndex,
    RetainedRecord,
    routing_key_of,
)

#: Levels parted by dots; of a pattern, some are wildcards.
RetainedKey = bytes

#: Segments are small enough that a few of them are little on any disk.
SEGMENT_BYTES: Final = 16 << 20

#: How many keys the sweep looks at, and how often: a few milliseconds of a second.
SWEEP_KEYS: Final = 2000
SWEEP_SECONDS: Final = 1.0

#: A time to live beyond all calendars ends here.
_NEVER: Final = (1 << 63) - 1

#: The header of a record without a body.
_NOTHING: Final = HEADER_PREFIX + bytes(10)


class RetainedStore:
    def __init__(self, kernel: Kernel, directory: Path) -> None:
        """Open what is kept in `directory`, or begin there."""
        self._kernel = kernel
        self._directory = directory
        segment_bytes = min(kernel.settings.segment_bytes, SEGMENT_BYTES)
        committer = kernel.committer
        self.log = Log(directory, committer, segment_bytes=segment_bytes, report=kernel.report)
        self._index = RetainedIndex()
        self._bodies = BodyFiles(directory, committer)
        self._recover()
        self._compaction = RetainedCompactor(
            self.log, self._index, self._bodies, committer, segment_bytes
        )
        self._unswept: Iterator[RetainedKey] = iter(())
        self._timer: asyncio.TimerHandle | None = None
        self._sweep_soon()

    def __len__(self) -> int:
        return len(self._index)

    @property
    def bytes(self) -> int:
        """Of all bodies."""
        return self._index.bytes

    # Keeping.

    def keep(self, message: Message, volatile: bool = False) -> int:
        """Keep a whole message under its key, or forget what is there if it has no body.

        LOGGED, or TAKEN when there is nothing to wait for. What is `volatile` does not outlive the
        broker; a large message is never.
        """
        key = routing_key_of(message.route)
        spool = message.spool
        if not message.body and spool is None:
            return self.forget(key)
        deadline = 0
        if message.flags & EXPIRES:
            deadline = _deadline(message, self.log.now())
        if volatile and spool is None:
            before = self._index.put(key, message, NOT_LOGGED, deadline, spooled=False)
            outcome = ACCEPTED if before is None else self._strike(key, before)
        else:
            if spool is not None:
                self._bodies.add(self.log.next_offset, spool)
            offset = self.log.append(message)
            before = self._index.put(key, message, offset, deadline, spooled=spool is not None)
            outcome = LOGGED
            if before is not None:
                self._release(before)
            size = len(message.route) + len(message.header) + len(message.body)
            self._compaction.pay(RECORD_BYTES + size)
        if deadline:
            self._sweep_soon()
        return outcome

    def forget(self, key: RetainedKey) -> int:
        before = self._index.pop(key)
        return ACCEPTED if before is None else self._strike(key, before)

    def _strike(self, key: RetainedKey, before: RetainedRecord) -> int:
        """A record that has left the shelf is to be gone from the log too."""
        if before.offset == NOT_LOGGED:
            return ACCEPTED
        route = b"\0" + bytes((len(key),)) + key
        self.log.append(Message(route, _NOTHING, b""))
        self._release(before)
        self._compaction.pay(RECORD_BYTES + len(route) + len(_NOTHING))
        return LOGGED

    def _release(self, before: RetainedRecord) -> None:
        if before.spooled:
            self._bodies.remove_later(before.offset)

    # Recalling.

    def get(self, key: RetainedKey) -> Message | None:
        """What is kept under a key, flagged RECALLED; of its time to live it has what is left."""
        kept = self._index.get(key)
        if kept is None:
            return None
        now = self.log.now()
        if kept.expired(now):
            self._drop(key)
            return None
        message = self._index.message(key, kept, now)
        message.flags |= FROM_RETAINED
        if kept.spooled:
            try:  # another may take its place before this one has been read
                message.spool = self._kernel.spools.keep(self._bodies.open(kept.offset))
            except FileNotFoundError:
                self._lost(key, kept.offset)
                return None
        return message

    def match(self, pattern: RetainedKey) -> list[RetainedKey]:
        """The keys that match now: `*` is one level, `#` at the end any number, none too.

        A pattern that begins with a wildcard does not match keys that begin with `$`. Some may be
        gone when they are asked for.
        """
        return list(self._index.match(pattern))

    def matching(self, pattern: RetainedKey) -> Iterator[RetainedKey]:
        """The same a key at a time, for one who can wait: others may keep and forget meanwhile."""
        return self._index.match(pattern)

    # Forgetting what has expired. No record says so: its time says it at the next start.

    def _drop(self, key: RetainedKey) -> None:
        before = self._index.pop(key)
        if before is not None:
            self._release(before)

    def _sweep_soon(self) -> None:
        if self._timer is None and self._index.mortal:
            when = self._kernel.loop.time() + SWEEP_SECONDS
            self._timer = self._kernel.write_batch.call_at(when, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = self.log.now()
        keys = list(islice(self._unswept, SWEEP_KEYS))
        for key in keys:
            kept = self._index.get(key)
            if kept is not None and kept.expired(now):
                self._drop(key)
        if len(keys) < SWEEP_KEYS:
            self._unswept = iter(self._index)
        self._sweep_soon()

    # Beginning and ending.

    def _recover(self) -> None:
        retained_index, log = self._index, self.log
        now = log.now()
        spooled: dict[int, RetainedKey] = {}
        for chunk in log.chunks(log.first_offset, log.next_offset):
            flags = chunk.flags
            timestamps = chunk.timestamps
            for index, message in enumerate(chunk.messages()):
                key = routing_key_of(message.route)
                deadline = 0
                if message.flags & EXPIRES:
                    deadline = _deadline(message, timestamps[index])
                if not message.body or 0 < deadline <= now:
                    retained_index.pop(key)
                    continue
                offset = chunk.base + index
                elsewhere = bool(flags[index] & SPOOLED)
                if elsewhere:
                    spooled[offset] = key
                retained_index.put(key, message, offset, deadline, spooled=elsewhere)
        live = {
            offset: key for offset, key in spooled.items() if retained_index.offset(key) == offset
        }
        self._bodies.sweep(live)
        for offset, key in live.items():
            if not self._bodies.path(offset).exists():
                self._lost(key, offset)

    def _lost(self, key: RetainedKey, offset: int) -> None:
        self._index.pop(key)
        what = f"the message retained as {key.decode('utf-8', 'replace')!r} has lost its body"
        self._kernel.report(f"{self._bodies.path(offset)}: {what}; skipped")

    def close(self) -> None:
        """Stop, keeping what is logged."""
        self._stop()
        self.log.close()

    def delete(self) -> None:
        """Stop, keeping nothing."""
        self._stop()
        with suppress(FileNotFoundError):
            self.log.delete()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._compaction.close()


def _deadline(message: Message, since: int) -> int:
    return min(since + int(decode_header(message.header).expiration or 0), _NEVER)
