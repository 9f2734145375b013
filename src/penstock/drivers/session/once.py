"""What exactly-once delivery has to remember: which numbers are in the middle of it.

`received` are the numbers of messages the client has sent and not released yet: one that comes
again is the same message. `released` are the log offsets of messages the client has and is to be
told to forget the number of: they are not sent again. A durable session writes both down in a
small journal, in the turn that changes them and so before the client hears of it.
"""

from __future__ import annotations

import os
from pathlib import Path
from struct import Struct
from typing import Final
from zlib import crc32

from penstock.broker.kernel import Kernel

_FACT: Final = Struct("<BQ")
_RECORD: Final = Struct("<BQI")

_RECEIVED: Final = 1
_FORGOTTEN: Final = 2
_RELEASED: Final = 3
_COMPLETED: Final = 4

#: The journal is written anew when it has this many records more than there is to remember.
HISTORY: Final = 4096


class Once:
    __slots__ = ("_fd", "_kernel", "_new", "_path", "_pending", "_records", "received", "released")

    def __init__(self, kernel: Kernel, path: Path | None) -> None:
        self._kernel = kernel
        self._path = path  #: None: nothing outlives the broker
        self._pending: list[bytes] = []
        self._records = 0
        self._fd = -1
        self._new = False
        self.received: set[int] = set()
        self.released: set[int] = set()
        if path is not None and path.exists():
            self._load(path)

    def remember(self, number: int) -> None:
        self.received.add(number)
        self._note(_RECEIVED, number)

    def forget(self, number: int) -> None:
        if number in self.received:
            self.received.discard(number)
            self._note(_FORGOTTEN, number)

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
        end = os.lseek(self._fd, 0, os.SEEK_END)
        try:
            if os.write(self._fd, data) != len(data):
                raise OSError(28, "No space left on device", str(self._path))
        except OSError:
            os.ftruncate(self._fd, end)
            raise
        self._records += len(self._pending)
        self._pending.clear()
        if self._records > HISTORY + 4 * (len(self.received) + len(self.released)):
            self._rewrite(self._path)

    def begin_sync(self) -> list[int]:
        if self._fd < 0:
            return []
        descriptors = [os.dup(self._fd)]
        if self._new and self._path is not None:  # its name must be on disk too
            self._new = False
            descriptors.append(os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY))
        return descriptors

    def end_sync(self, error: OSError | None) -> None:
        """The next change is written all the same."""

    # The file.

    def _open(self, path: Path) -> None:
        self._new = True
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

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
            elif kind == _FORGOTTEN:
                self.received.discard(value)
            elif kind == _RELEASED:
                self.released.add(value)
            else:
                self.released.discard(value)
        if whole < len(data):
            self._kernel.report(f"{path}: cut a torn tail of {len(data) - whole} bytes")
        self._open(path)
        os.ftruncate(self._fd, whole)

    def _rewrite(self, path: Path) -> None:
        fresh = path.with_suffix(".new")
        facts = [(_RECEIVED, n) for n in self.received] + [(_RELEASED, n) for n in self.released]
        with fresh.open("wb") as file:
            file.write(b"".join(_encoded(kind, value) for kind, value in facts))
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        os.close(self._fd)
        self._open(path)
        self._records = len(facts)

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
        if self._fd >= 0:
            self._kernel.committer.adopt(self._fd)
            self._fd = -1
        self._path = None


def _encoded(kind: int, value: int) -> bytes:
    fact = _FACT.pack(kind, value)
    return fact + crc32(fact).to_bytes(4, "little")
