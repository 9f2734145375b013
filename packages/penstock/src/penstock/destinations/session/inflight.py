"""Messages become letters: at which quality, and with which number."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final
from zlib import crc32

from penstock.broker.contract import (
    EXACTLY_ONCE,
    MAX_PACKET_ID,
    PERSISTENT,
    Delivery,
    EffectiveSubscription,
    InflightMessage,
    Message,
)
from penstock.broker.kernel import Kernel
from penstock.destinations.session.subscriptions import DEFAULT_SUBSCRIPTION

#: Stands for what the client has already: only its number is still spoken of.
_RELEASED_MESSAGE: Final = Message(b"", b"", b"")


def delivery_qos(message: Message, grant: EffectiveSubscription) -> int:
    if not message.flags & PERSISTENT:
        return 0
    published = 2 if message.flags & EXACTLY_ONCE else 1
    return min(published, grant.qos)


def packet_id_of(offset: int) -> int:
    """The number of what is logged: the same after a restart."""
    return offset % MAX_PACKET_ID + 1


def inflight_message(delivery: Delivery, grant: EffectiveSubscription) -> InflightMessage:
    """What comes from where it waited, as it is to be delivered today."""
    entry = InflightMessage(
        delivery.message, delivery.position, grant, delivery_qos(delivery.message, grant)
    )
    entry.offset = delivery.offset
    entry.count = delivery.count
    entry.expires = delivery.expires
    return entry


def restore_released(offsets: Iterable[int]) -> Iterator[InflightMessage]:
    """What was in the middle of being delivered once, in order: it goes on where it was."""
    for offset in sorted(offsets):
        entry = InflightMessage(_RELEASED_MESSAGE, 0, DEFAULT_SUBSCRIPTION, 2)
        entry.offset = offset
        entry.packet_id = packet_id_of(offset)
        entry.released = True
        yield entry


# What exactly-once delivery has to remember: which numbers are in the middle of it.
#
# `received` are the numbers of messages the client has sent and not released yet: one that comes
# again is the same message. `released` are the log offsets of messages the client has and is to be
# told to forget the number of: they are not sent again. A durable session writes both down in a
# small journal, in the turn that changes them and so before the client hears of it.
#
# A journal that has grown long is replaced by a short copy, which takes every fact from when it is
# begun and is given the name once it is on disk: the disk is never waited for here, as others of
# the same turn are still to be written.

_FACT: Final = Struct("<BQ")
_RECORD: Final = Struct("<BQI")

_RECEIVED: Final = 1
_DISCARDED: Final = 2
_RELEASED: Final = 3
_COMPLETED: Final = 4

#: The journal is written anew when it has this many records more than there is to remember.
COMPACT_RECORDS: Final = 4096

_APPEND: Final = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


class ExactlyOnceState:
    __slots__ = (
        "_copy",
        "_copy_records",
        "_fd",
        "_kernel",
        "_new",
        "_path",
        "_pending",
        "_records",
        "received",
        "released",
    )

    def __init__(self, kernel: Kernel, path: Path | None) -> None:
        self._kernel = kernel
        self._path = path  #: None: nothing outlives the broker
        self._pending: list[bytes] = []
        self._records = 0
        self._fd = -1
        self._copy = -1  #: the short journal, until it is on disk
        self._copy_records = 0
        self._new = False
        self.received: set[int] = set()
        self.released: set[int] = set()
        if path is not None and path.exists():
            _copy_of(path).unlink(missing_ok=True)
            self._load(path)

    def add_received(self, packet_id: int) -> None:
        self.received.add(packet_id)
        self._note(_RECEIVED, packet_id)

    def release_received(self, packet_id: int) -> None:
        if packet_id in self.received:
            self.received.discard(packet_id)
            self._note(_DISCARDED, packet_id)

    def release(self, offset: int) -> None:
        self.released.add(offset)
        self._note(_RELEASED, offset)

    def complete(self, offset: int) -> None:
        if offset in self.released:
            self.released.discard(offset)
            self._note(_COMPLETED, offset)

    def _note(self, kind: int, value: int) -> None:
        if self._path is None:
            return
        if not self._pending:
            # Behind the messages of the turn: what is remembered is never without its message.
            self._kernel.committer.touch(self, lazy=True)
        self._pending.append(_encoded(kind, value))

    # What the committer asks of whatever it writes.

    def write(self) -> None:
        if not self._pending or self._path is None:
            return
        if self._fd < 0:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._open(self._path)
        data = b"".join(self._pending)
        _append(self._fd, data)
        self._records += len(self._pending)
        if self._copy >= 0:
            try:
                _append(self._copy, data)
            except OSError:
                self._give_up_copy()
            self._copy_records += len(self._pending)
        elif self._records > COMPACT_RECORDS + 4 * (len(self.received) + len(self.released)):
            self._begin_copy(self._path)
        self._pending.clear()

    def begin_sync(self) -> list[int]:
        descriptors: list[int] = []
        try:
            for fd in (self._fd, self._copy):
                if fd >= 0:
                    descriptors.append(os.dup(fd))
            if self._new and self._path is not None:  # its name must be on disk too
                descriptors.append(os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY))
        except OSError:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        self._new = False
        return descriptors

    def end_sync(self, error: OSError | None) -> None:
        """The next change is written all the same."""

    # The file.

    def _open(self, path: Path) -> None:
        self._fd = os.open(path, _APPEND, 0o600)
        self._new = True

    def _load(self, path: Path) -> None:
        data = path.read_bytes()
        whole = 0
        for record in range(0, len(data) - _RECORD.size + 1, _RECORD.size):
            kind, value, check = _RECORD.unpack_from(data, record)
            if check != crc32(data[record : record + _FACT.size]):
                break
            whole = record + _RECORD.size
            self._records += 1
            if kind == _RECEIVED:
                self.received.add(value)
            elif kind == _DISCARDED:
                self.received.discard(value)
            elif kind == _RELEASED:
                self.released.add(value)
            else:
                self.released.discard(value)
        if whole < len(data):
            self._kernel.report(f"{path}: cut a torn tail of {len(data) - whole} bytes")
        self._open(path)
        os.ftruncate(self._fd, whole)

    def _begin_copy(self, path: Path) -> None:
        facts = [(_RECEIVED, n) for n in self.received] + [(_RELEASED, n) for n in self.released]
        committer = self._kernel.committer
        try:
            self._copy = os.open(_copy_of(path), _APPEND | os.O_TRUNC, 0o600)
            _append(self._copy, b"".join(_encoded(kind, value) for kind, value in facts))
            committer.also_sync(self._copy)
        except OSError:
            self._give_up_copy()
        else:
            self._copy_records = len(facts)
            committer.after(self._finish_copy, lambda _: self._give_up_copy())

    def _finish_copy(self) -> None:
        if self._copy < 0 or self._path is None:
            return
        try:
            _copy_of(self._path).replace(self._path)
        except OSError:  # the journal as it is holds everything
            self._give_up_copy()
            return
        former, self._fd, self._copy = self._fd, self._copy, -1
        os.close(former)
        self._records = self._copy_records
        self._new = True
        self._kernel.committer.touch(self, lazy=True)

    def _give_up_copy(self) -> None:
        """Go on with the journal as it is, and try again when it has grown by as much again."""
        self._records = 0
        if self._copy >= 0:
            os.close(self._copy)
            self._copy = -1
        if self._path is not None:
            with suppress(OSError):
                _copy_of(self._path).unlink(missing_ok=True)

    def close(self) -> None:
        try:
            self.write()
        finally:
            self._end()

    def delete(self) -> None:
        path = self._path
        self._pending.clear()
        self._end()
        if path is not None:
            path.unlink(missing_ok=True)

    def _end(self) -> None:
        if self._copy >= 0:
            self._give_up_copy()
        if self._fd >= 0:
            self._kernel.committer.adopt(self._fd)
            self._fd = -1
        self._path = None


def _encoded(kind: int, value: int) -> bytes:
    fact = _FACT.pack(kind, value)
    return fact + crc32(fact).to_bytes(4, "little")


def _append(fd: int, data: bytes) -> None:
    """All of it, or nothing."""
    end = os.lseek(fd, 0, os.SEEK_END)
    try:
        if os.write(fd, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        os.ftruncate(fd, end)
        raise


def _copy_of(path: Path) -> Path:
    return path.with_suffix(".new")
