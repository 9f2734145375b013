"""Who may do what to a flow at a time: locks on files, gone with the process that held them.

Three claims, each its own file: *running* (one engine a flow), *batch* (a batch being applied, or
tables being exchanged) and *files* (compaction and replay, which both arrange bronze's files). The
system drops a lock when its holder dies, however it died.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

from penstock.core.errors import ResourceLocked


class Claim(Enum):
    RUNNING = "running"  #: the engine follows the flow's streams
    BATCH = "batch"  #: a batch is applied, or generations change
    FILES = "files"  #: files are compacted, or replayed


class Claims:
    """The claims on one flow. Picklable: a file is opened when a claim is made."""

    __slots__ = ("_flow", "_folder")

    def __init__(self, folder: Path, flow: str) -> None:
        self._folder = folder
        self._flow = flow

    @contextmanager
    def hold(self, claim: Claim, *, wait: bool = True) -> Iterator[None]:
        """Hold it for the length of the block. Without waiting, one that is taken is an error."""
        path = self._path(claim)
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                holder = path.read_text().strip() or "another process"
                raise ResourceLocked(
                    f"flow {self._flow!r}: {_WORDS[claim]} already, by process {holder}"
                ) from None
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(handle)

    def held(self, claim: Claim) -> bool:
        """Whether somebody holds it now."""
        try:
            with self._path(claim).open() as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def _path(self, claim: Claim) -> Path:
        return self._folder / f"{self._flow}.{claim.value}"


_WORDS = {
    Claim.RUNNING: "it runs",
    Claim.BATCH: "a batch is being applied",
    Claim.FILES: "it is being compacted or replayed",
}
