"""Who may do what to a flow at a time: locks on files, gone with the process that held them.

Three claims, each its own file: *running* (one engine a flow), *batch* (a batch being applied, or
tables being exchanged) and *files* (compaction and replay, which both arrange bronze's files). The
system drops a lock when its holder dies, however it died.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path

from penstock.core.data_directory import FileLock
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
        with FileLock(path) as lock:
            if not lock.acquire(wait=wait):
                raise ResourceLocked(
                    f"flow {self._flow!r}: {_WORDS[claim]} already, by {lock.holder}"
                )
            yield

    def held(self, claim: Claim) -> bool:
        """Whether somebody holds it now."""
        return FileLock(self._path(claim)).is_held

    def _path(self, claim: Claim) -> Path:
        return self._folder / f"{self._flow}.{claim.value}"


_WORDS = {
    Claim.RUNNING: "it runs",
    Claim.BATCH: "a batch is being applied",
    Claim.FILES: "it is being compacted or replayed",
}
