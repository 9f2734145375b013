"""The bodies of large retained messages: files beside the log, named by their records' offsets.

A body is linked before its record is written, and goes only when what has taken the record's place
is on disk: a broker that is killed, or a machine that loses its power, finds the one or the other.
What such an end leaves behind without a record is swept at the next start. That a body's bytes are
synced is the business of whoever took it in.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from penstock.broker.log.committer import Committer
from penstock.broker.spool import Spool


class Bodies:
    __slots__ = ("_committer", "_directory")

    def __init__(self, directory: Path, committer: Committer) -> None:
        self._directory = directory
        self._committer = committer

    def path(self, offset: int) -> Path:
        return self._directory / f"{offset:020d}.body"

    def open(self, offset: int) -> Spool:
        """The body of a record; raises FileNotFoundError."""
        return Spool(self.path(offset), owned=False)

    def add(self, offset: int, spool: Spool) -> None:
        spool.link(self.path(offset))
        self._committer.adopt(os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY))

    def remove(self, offset: int) -> None:
        self.path(offset).unlink(missing_ok=True)

    def remove_later(self, offset: int) -> None:
        """Remove a body once all that is appended so far is on disk."""
        self._committer.after(lambda: self.remove(offset))

    def sweep(self, live: Collection[int]) -> None:
        for body in self._directory.glob("*.body"):
            if int(body.stem) not in live:
                body.unlink()
