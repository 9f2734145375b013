"""Where a flow keeps what: folders below the data directory, by the flow's name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Final

from penstock.core.data_directory import FileLock
from penstock.core.errors import ConfigurationError, ResourceLocked
from penstock_spark.lake import GenerationPointer, Lake

_FLOW_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,19}")


@dataclass(frozen=True, slots=True)
class FlowDirectory:
    """One flow's files. Driver and workers see the same ones."""

    data: Path
    flow: str

    def __post_init__(self) -> None:
        if not _FLOW_NAME.fullmatch(self.flow):
            raise ConfigurationError(
                f"{self.flow!r} is no name of a flow: up to 20 of a-z, 0-9, - and _"
            )

    @property
    def lake(self) -> Lake:
        """The generation that is current now."""
        return Lake.open(self.data / "lake", self.flow)

    @property
    def pointer(self) -> GenerationPointer:
        return GenerationPointer(self.data / "lake", self.flow)

    @property
    def checkpoint(self) -> Path:
        return self.data / "checkpoints" / self.flow

    @property
    def progress(self) -> Path:
        return self.data / "progress"

    @property
    def locks(self) -> FlowLocks:
        return FlowLocks(self.data / "progress", self.flow)


# Who may do what to a flow at a time: locks on files, gone with the process that held them.
#
# Three claims, each its own file: *running* (one engine a flow), *batch* (a batch being applied, or
# tables being exchanged) and *files* (compaction and replay, which both arrange bronze's files).
# The system drops a lock when its holder dies, however it died.


class FlowLock(Enum):
    RUNNING = "running"  #: the engine follows the flow's streams
    BATCH = "batch"  #: a batch is applied, or generations change
    FILES = "files"  #: files are compacted, or replayed


class FlowLocks:
    """The claims on one flow. Picklable: a file is opened when a claim is made."""

    __slots__ = ("_flow", "_folder")

    def __init__(self, folder: Path, flow: str) -> None:
        self._folder = folder
        self._flow = flow

    @contextmanager
    def hold(self, flow_lock: FlowLock, *, wait: bool = True) -> Iterator[None]:
        """Hold it for the length of the block. Without waiting, one that is taken is an error."""
        path = self._path(flow_lock)
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path) as lock:
            if not lock.acquire(wait=wait):
                raise ResourceLocked(
                    f"flow {self._flow!r}: {_REASONS[flow_lock]} already, by {lock.holder}"
                )
            yield

    def held(self, flow_lock: FlowLock) -> bool:
        """Whether somebody holds it now."""
        return FileLock(self._path(flow_lock)).is_held

    def _path(self, flow_lock: FlowLock) -> Path:
        return self._folder / f"{self._flow}.{flow_lock.value}"


_REASONS = {
    FlowLock.RUNNING: "it runs",
    FlowLock.BATCH: "a batch is being applied",
    FlowLock.FILES: "it is being compacted or replayed",
}
