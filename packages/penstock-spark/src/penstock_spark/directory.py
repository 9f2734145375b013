"""The files of a flow below the data directory, and its locks.

A lock is a file lock: the system releases it when the process ends.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from penstock.core.data_directory import FileLock
from penstock.core.errors import ConfigurationError, ResourceLocked
from penstock_spark.lake import GenerationPointer, Lake, StorageLocation

_FLOW_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,19}")


@dataclass(frozen=True, slots=True)
class FlowDirectory:
    """Checkpoint, progress and locks of the driver, and where the lake is."""

    data: Path
    flow: str
    lake_location: StorageLocation | None = None  #: None: in the data directory
    _lakes: dict[int, Lake] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not _FLOW_NAME.fullmatch(self.flow):
            raise ConfigurationError(
                f"invalid flow name {self.flow!r}: should be up to 20 of a-z, 0-9, - and _"
            )

    @property
    def lake(self) -> Lake:
        """The current generation; its tables stay open."""
        generation = self.pointer.read().current
        if generation not in self._lakes:
            self._lakes.clear()
            self._lakes[generation] = Lake(self._root, self.flow, generation)
        return self._lakes[generation]

    @property
    def pointer(self) -> GenerationPointer:
        return GenerationPointer(self._root, self.flow)

    @property
    def _root(self) -> StorageLocation:
        return self.lake_location or StorageLocation.parse(self.data / "lake")

    @property
    def checkpoint(self) -> Path:
        return self.data / "checkpoints" / self.flow

    @property
    def progress(self) -> Path:
        return self.data / "progress"

    @property
    def locks(self) -> FlowLocks:
        return FlowLocks(self.data / "progress", self.flow)


class FlowLock(Enum):
    RUNNING = "running"  #: a runner applies batches
    BATCH = "batch"  #: a batch is being applied, or generations are exchanged
    FILES = "files"  #: a compaction or a replay rearranges files


class FlowLocks:
    """Picklable: a lock file is opened when it is acquired."""

    __slots__ = ("_flow", "_folder")

    def __init__(self, folder: Path, flow: str) -> None:
        self._folder = folder
        self._flow = flow

    @contextmanager
    def hold(self, flow_lock: FlowLock, *, wait: bool = True) -> Iterator[None]:
        """Hold the lock during the block. Without `wait`, a lock that is held is an error."""
        path = self._path(flow_lock)
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path) as lock:
            if not lock.acquire(wait=wait):
                raise ResourceLocked(
                    f"flow {self._flow!r}: {_REASONS[flow_lock]} already, by {lock.holder}"
                )
            yield

    def held(self, flow_lock: FlowLock) -> bool:
        return FileLock(self._path(flow_lock)).is_held

    def _path(self, flow_lock: FlowLock) -> Path:
        return self._folder / f"{self._flow}.{flow_lock.value}"


_REASONS = {
    FlowLock.RUNNING: "running",
    FlowLock.BATCH: "a batch is being applied",
    FlowLock.FILES: "being compacted or replayed",
}
