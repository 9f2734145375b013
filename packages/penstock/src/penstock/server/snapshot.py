"""Snapshots of a running broker: all its files as they were between two write batches.

Files grow or are replaced; no byte in them changes. So hard links and sizes are a snapshot. Links
are made in a thread while the broker works. A recorder notes what changes meanwhile, and these
files are linked again between two write batches, before anything else happens.

There is one snapshot at a time, below `snapshots` in the data directory. One that nobody reads for
a while is removed.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.broker.log.observer import CommitWaiters, StorageObserver
from penstock.cluster.file_index import is_replicated, replicated_files
from penstock.core.errors import NotFound, PreconditionFailed
from penstock.core.logs import get_logger

if TYPE_CHECKING:
    from penstock.broker.kernel import Kernel
    from penstock.broker.topology import Topology

DIRECTORY: Final = "snapshots"
#: A snapshot that was not read for so long may be replaced by another, …
BUSY_SECONDS: Final = 60.0
#: … and one that was not read for so long is removed.
IDLE_SECONDS: Final = 600.0
#: As many changed files are linked between two write batches; more are linked beforehand.
FINAL_LINKS: Final = 100
ROUNDS: Final = 10
READ_BYTES: Final = 256 * 1024
#: The topology's record of the broker's identity, which a restored broker keeps.
_IDENTITY: Final = ("broker", "id")

_log = get_logger("penstock.backup")


class SnapshotFile(NamedTuple):
    path: str  #: below the data directory
    size: int
    inode: int
    modified: int  #: nanoseconds; the same file with the same size and time has the same content


class Snapshot(NamedTuple):
    id: str
    time: float  #: seconds since the epoch
    broker: str  #: its identity
    files: list[SnapshotFile]


class Snapshots:
    def __init__(self, data: Path, kernel: Kernel, topology: Topology) -> None:
        self._data = data
        self._directory = data / DIRECTORY
        self._kernel = kernel
        self._topology = topology
        self._current: Snapshot | None = None
        self._sizes: dict[str, int] = {}
        self._read_at = 0.0
        self._taking = False
        self._timer: asyncio.TimerHandle | None = None
        shutil.rmtree(self._directory, ignore_errors=True)

    async def take(self) -> Snapshot:
        """Everything confirmed so far, and nothing that is written later."""
        loop = self._kernel.loop
        is_read = self._current is not None and loop.time() - self._read_at < BUSY_SECONDS
        if self._taking or is_read:
            raise PreconditionFailed("another backup is running: wait for its end")
        self._read_at = loop.time()
        self._taking = True
        try:
            return await self._take()
        finally:
            self._taking = False

    async def _take(self) -> Snapshot:
        self._current = None
        await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)
        identity = self._identity()
        self._kernel.write_batch.flush()
        if self._kernel.committer.has_fault:
            raise PreconditionFailed("the broker cannot write its log: see its alarms")
        snapshot = uuid.uuid4().hex
        target = self._directory / snapshot
        target.mkdir(parents=True, mode=0o700)
        committer = self._kernel.committer
        recorder = committer.observer = ChangeRecorder(committer.observer, committer.report)
        try:
            files = await asyncio.to_thread(_link_all, self._data, target)
            for _ in range(ROUNDS):
                if len(recorder.changed) <= FINAL_LINKS:
                    break
                changed, recorder.changed = recorder.changed, set()
                await asyncio.to_thread(_link_again, self._data, target, changed, files)
            # From here to the end of the block nothing else runs.
            self._kernel.write_batch.flush()
            if committer.has_fault:
                raise PreconditionFailed("the broker cannot write its log: see its alarms")
            users = self._data / "users.json"
            _link_again(self._data, target, recorder.changed | {users}, files)
            taken = time.time()
        except BaseException:
            shutil.rmtree(self._directory, ignore_errors=True)
            raise
        finally:
            committer.observer = recorder.inner
        self._current = Snapshot(snapshot, taken, identity, list(files.values()))
        self._sizes = {one.path: one.size for one in files.values()}
        self._watch()
        _log.info("snapshot taken", files=len(files), bytes=sum(self._sizes.values()))
        return self._current

    def _identity(self) -> str:
        found = self._topology.get(_IDENTITY)
        if found is None:
            found = {"value": uuid.uuid4().hex}
            self._topology.put(_IDENTITY, found)
        return str(found["value"])

    def read(self, snapshot: str, path: str, start: int) -> AsyncIterator[bytes]:
        """The content of a file from that position on; raises NotFound."""
        if self._current is None or self._current.id != snapshot:
            raise NotFound(f"no snapshot '{snapshot}': take another")
        size = self._sizes.get(path)
        if size is None:
            raise NotFound(f"the snapshot has no file '{path}'")
        self._read_at = self._kernel.loop.time()
        fd = os.open(self._directory / snapshot / path, os.O_RDONLY | os.O_CLOEXEC)
        return self._pieces(fd, start, size)

    async def _pieces(self, fd: int, position: int, size: int) -> AsyncIterator[bytes]:
        try:
            while position < size:
                self._read_at = self._kernel.loop.time()
                length = min(READ_BYTES, size - position)
                piece = await asyncio.to_thread(os.pread, fd, length, position)
                if not piece:
                    raise OSError("a file of the snapshot is too short")
                yield piece
                position += len(piece)
        finally:
            os.close(fd)

    async def remove(self, snapshot: str) -> None:
        if self._current is None or self._current.id != snapshot:
            raise NotFound(f"no snapshot '{snapshot}'")
        self._current = None
        await asyncio.to_thread(shutil.rmtree, self._directory, ignore_errors=True)

    def _watch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._kernel.loop.call_later(IDLE_SECONDS / 10, self._expire)

    def _expire(self) -> None:
        self._timer = None
        if self._current is None:
            return
        if self._kernel.loop.time() - self._read_at > IDLE_SECONDS:
            self._current = None
            shutil.rmtree(self._directory, ignore_errors=True)
            _log.warning("snapshot removed", reason="nobody has read it for ten minutes")
        else:
            self._watch()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        shutil.rmtree(self._directory, ignore_errors=True)


class ChangeRecorder:
    """Notes the names of changed files and passes everything on; implements `StorageObserver`."""

    def __init__(self, inner: StorageObserver | None, report: Callable[[Exception], None]) -> None:
        self.inner = inner
        self._report = report
        self.changed: set[Path] = set()  #: a deleted directory stands for all in it

    @property
    def refuses(self) -> bool:
        return self.inner is not None and self.inner.refuses

    def append(self, path: Path, position: int, data: bytes) -> None:
        self.changed.add(path)
        if self.inner is not None:
            self.inner.append(path, position, data)

    def truncate(self, path: Path, size: int) -> None:
        self.changed.add(path)
        if self.inner is not None:
            self.inner.truncate(path, size)

    def replace(self, path: Path, fd: int, size: int) -> None:
        self.changed.add(path)
        if self.inner is not None:
            self.inner.replace(path, fd, size)

    def delete(self, path: Path) -> None:
        self.changed.add(path)
        if self.inner is not None:
            self.inner.delete(path)

    def seal(self) -> int:
        return 0 if self.inner is None else self.inner.seal()

    def when_replicated(self, sequence: int, waiters: CommitWaiters) -> None:
        if self.inner is not None:
            self.inner.when_replicated(sequence, waiters)
        else:
            waiters.confirm(self._report)

    def fail(self, cause: OSError) -> None:
        if self.inner is not None:
            self.inner.fail(cause)


def _link_all(data: Path, target: Path) -> dict[str, SnapshotFile]:
    """Sizes are those of now: a file that grows later is in the recorder's set."""
    files: dict[str, SnapshotFile] = {}
    for path in replicated_files(data):
        _link(data, target, path, files)
    return files


def _link_again(
    data: Path, target: Path, changed: set[Path], files: dict[str, SnapshotFile]
) -> None:
    """Make the links of changed files those of now. A directory was deleted, and may be back."""
    names = {path.relative_to(data).as_posix() for path in changed}
    for name in [name for name in names if (target / name).is_dir()]:
        names.remove(name)
        shutil.rmtree(target / name)
        for path in [path for path in files if path.startswith(name + "/")]:
            del files[path]
        names.update(
            file.relative_to(data).as_posix() for file in (data / name).rglob("*") if file.is_file()
        )
    for name in names:
        (target / name).unlink(missing_ok=True)
        files.pop(name, None)
        if is_replicated(name):
            _link(data, target, name, files)


def _link(data: Path, target: Path, name: str, files: dict[str, SnapshotFile]) -> None:
    linked = target / name
    linked.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    try:
        os.link(data / name, linked)
    except FileNotFoundError:
        return  # deleted meanwhile
    status = linked.stat()
    files[name] = SnapshotFile(name, status.st_size, status.st_ino, status.st_mtime_ns)
