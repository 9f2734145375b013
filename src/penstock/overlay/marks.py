"""How far each neighbour's publications have come: the number of the last one that was taken.

A neighbour that did not hear our confirm sends again what we have. The mark tells it apart. It is
written behind the publications of the same turn, never before them: a crash in between shows one
twice, and none not at all. A neighbour that lost its data counts from the start again, so a mark
holds for one store of the neighbour's.
"""

from __future__ import annotations

import os
from pathlib import Path

from penstock.broker.log.committer import Committer
from penstock.broker.paths import folder


class Mark:
    def __init__(self, path: Path, store: str, committer: Committer) -> None:
        self.store = store
        self._committer = committer
        self._written = self.number = 0
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        kept, _, number = os.read(self._fd, 4096).decode(errors="replace").partition(" ")
        if kept == store and number.strip().isdigit():
            self._written = self.number = int(number)
        else:
            os.ftruncate(self._fd, 0)

    def move(self, number: int) -> None:
        if self.number == self._written:
            self._committer.touch(self, lazy=True)
        self.number = number

    # What the committer asks of whatever it writes.

    def write(self) -> None:
        if self._fd < 0:  # closed, and so written
            return
        line = f"{self.store} {self.number:020}\n".encode()  # always as long: no torn number
        os.pwrite(self._fd, line, 0)
        self._written = self.number

    def begin_sync(self) -> list[int]:
        return [os.dup(self._fd)] if self._fd >= 0 else []

    def end_sync(self, error: OSError | None) -> None:
        """The next move is written all the same."""

    def close(self) -> None:
        if self._fd >= 0:
            if self.number != self._written:
                self.write()
            os.close(self._fd)
            self._fd = -1


class Marks:
    """The marks of all neighbours, a small file each."""

    def __init__(self, directory: Path, committer: Committer) -> None:
        self._directory = directory
        self._committer = committer
        self._open: dict[str, Mark] = {}

    def of(self, neighbour: str, store: str) -> Mark:
        found = self._open.get(neighbour)
        if found is not None and found.store == store:
            return found
        if found is not None:
            found.close()
        self._directory.mkdir(parents=True, exist_ok=True)
        path = self._directory / f"{folder(neighbour)}.mark"
        mark = self._open[neighbour] = Mark(path, store, self._committer)
        return mark

    def close(self) -> None:
        for mark in self._open.values():
            mark.close()
        self._open.clear()
