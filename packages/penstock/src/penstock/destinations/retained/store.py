"""The retained messages of a virtual host: the last one of each key.

All are in memory and, unless `volatile`, in the log. The last record of a key in the log counts;
one without a body removes the message. So a killed broker finds everything it confirmed.
`compaction.py` keeps the log small. Bodies of large messages are in files beside the log.

A periodic sweep removes expired messages. Keys are routing keys, with levels separated by dots. The
terminal checks permissions and decides what a subscriber receives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

from penstock.broker.contract import ACCEPTED, EXPIRES, FROM_RETAINED, LOGGED, Message
from penstock.broker.kernel import Kernel
from penstock.broker.log.chunk import SPOOLED
from penstock.broker.log.log import Log
from penstock.broker.log.observer import remove_tree
from penstock.broker.spool import BodyFiles
from penstock.core.basic_properties import HEADER_PREFIX, decode_header
from penstock.destinations.retained.compaction import RetainedCompactor
from penstock.destinations.retained.index import (
    NOT_LOGGED,
    RECORD_BYTES,
    RetainedIndex,
    RetainedRecord,
    routing_key_of,
)

RetainedKey = bytes

SEGMENT_BYTES: Final = 16 << 20

#: Keys per sweep, and seconds between sweeps.
SWEEP_KEYS: Final = 2000
SWEEP_SECONDS: Final = 1.0

#: The latest deadline.
_NEVER: Final = (1 << 63) - 1

#: The header of a record without a body.
_NOTHING: Final = HEADER_PREFIX + bytes(10)


class RetainedStore:
    def __init__(self, kernel: Kernel, directory: Path) -> None:
        """Open the store in `directory`, or create it."""
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
        return self._index.bytes

    def retain(self, message: Message, volatile: bool = False) -> int:
        """Store a complete message under its key, or remove the stored one if it has no body.

        LOGGED, or ACCEPTED if there is nothing to wait for. A `volatile` message does not survive
        the broker; a large message is never volatile.
        """
        key = routing_key_of(message.route)
        spool = message.spool
        if not message.body and spool is None:
            return self.remove(key)
        deadline = 0
        if message.flags & EXPIRES:
            deadline = _deadline(message, self.log.now())
        if volatile and spool is None:
            before = self._index.put(key, message, NOT_LOGGED, deadline, spooled=False)
            outcome = ACCEPTED if before is None else self._log_removal(key, before)
        else:
            if spool is not None:
                self._bodies.add(self.log.next_offset, spool)
            offset = self.log.append(message)
            before = self._index.put(key, message, offset, deadline, spooled=spool is not None)
            outcome = LOGGED
            if before is not None:
                self._release(before)
            size = len(message.route) + len(message.header) + len(message.body)
            self._compaction.on_append(RECORD_BYTES + size)
        if deadline:
            self._sweep_soon()
        return outcome

    def remove(self, key: RetainedKey) -> int:
        before = self._index.pop(key)
        return ACCEPTED if before is None else self._log_removal(key, before)

    def _log_removal(self, key: RetainedKey, before: RetainedRecord) -> int:
        """Log the removal of a record."""
        if before.offset == NOT_LOGGED:
            return ACCEPTED
        route = b"\0" + bytes((len(key),)) + key
        self.log.append(Message(route, _NOTHING, b""))
        self._release(before)
        self._compaction.on_append(RECORD_BYTES + len(route) + len(_NOTHING))
        return LOGGED

    def _release(self, before: RetainedRecord) -> None:
        if before.spooled:
            self._bodies.remove_later(before.offset)

    def get(self, key: RetainedKey) -> Message | None:
        """The message of a key, flagged FROM_RETAINED, with its remaining time to live."""
        record = self._index.get(key)
        return None if record is None else self._message(key, record)

    def messages(self, pattern: RetainedKey) -> Iterator[Message | None]:
        """The messages whose keys match, lazily; None is one that has expired or is lost."""
        return self._index.messages(pattern, self._message)

    def _message(self, key: RetainedKey, record: RetainedRecord) -> Message | None:
        now = self.log.now() if record.deadline else 0
        if record.expired(now):
            self._drop(key)
            return None
        message = self._index.message(key, record, now)
        message.flags |= FROM_RETAINED
        if record.spooled:
            try:  # it may be replaced before it is read
                message.spool = self._kernel.spools.relink(self._bodies.open(record.offset))
            except FileNotFoundError:
                self._lost(key, record.offset)
                return None
        return message

    def match(self, pattern: RetainedKey) -> list[RetainedKey]:
        """The keys that match: `*` is one level, `#` at the end any number of levels, also none.

        A pattern that begins with a wildcard does not match keys that begin with `$`. Keys may be
        removed before they are read.
        """
        return list(self._index.match(pattern))

    def matching(self, pattern: RetainedKey) -> Iterator[RetainedKey]:
        """The same, lazily; the store may change meanwhile."""
        return self._index.match(pattern)

    # Expiry. It is not logged: the deadline of a record is known at the next start.

    def _drop(self, key: RetainedKey) -> None:
        before = self._index.pop(key)
        if before is not None:
            self._release(before)

    def _sweep_soon(self) -> None:
        if self._timer is None and self._index.expiring:
            when = self._kernel.loop.time() + SWEEP_SECONDS
            self._timer = self._kernel.write_batch.call_at(when, self._sweep)

    def _sweep(self) -> None:
        self._timer = None
        now = self.log.now()
        keys = list(islice(self._unswept, SWEEP_KEYS))
        for key in keys:
            record = self._index.get(key)
            if record is not None and record.expired(now):
                self._drop(key)
        if len(keys) < SWEEP_KEYS:
            self._unswept = iter(self._index)
        self._sweep_soon()

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
        self._bodies.sweep(live.__contains__)
        for offset, key in live.items():
            if not self._bodies.path(offset).exists():
                self._lost(key, offset)

    def _lost(self, key: RetainedKey, offset: int) -> None:
        self._index.pop(key)
        what = f"the retained message {key.decode('utf-8', 'replace')!r} has no body"
        self._kernel.report(f"{self._bodies.path(offset)}: {what}; skipped")

    def close(self) -> None:
        self._stop()
        self.log.close()

    def delete(self) -> None:
        self._stop()
        with suppress(FileNotFoundError):
            self.log.delete()
        remove_tree(self._directory, self._kernel.committer.observer)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._compaction.close()


def _deadline(message: Message, since: int) -> int:
    return min(since + int(decode_header(message.header).expiration or 0), _NEVER)
