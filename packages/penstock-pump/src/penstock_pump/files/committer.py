"""Commits files in batches: written one by one, synced all at once, then renamed.

Files that arrive during a commit share the next one. So a single file does not wait, and hundreds
cost two syncs. An error of one file does not affect the others, except a failing disk.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Final, cast

from penstock_pump.files.inflight import InflightFile
from penstock_pump.posts.checksums import Checksum
from penstock_pump.thread_pool import BatchThreadPool, UncancellableFuture, run_to_completion

#: One batch is written while another is synced.
MAX_COMMIT_TASKS: Final = 2
MAX_BATCH_FILES: Final = 256
#: File systems on which syncfs(2) means as much as a sync of each file.
SYNCFS_FILE_SYSTEMS: Final = frozenset({"ext3", "ext4", "xfs", "f2fs", "tmpfs"})
#: Since this version syncfs(2) reports write errors.
_SYNCFS_KERNEL: Final = (5, 8)
#: A slower sync means that others are writing; files are then synced one by one for a while.
SLOW_SYNC_SECONDS: Final = 0.5
SYNC_PAUSE_SECONDS: Final = 30.0
_SYNC_THREADS: Final = 8
_MOUNTS: Final = Path("/proc/self/mountinfo")

#: The checksum of a file, if known; or the reason why it need not be written.
CommitResult = Checksum | str | None
SyncAll = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class PendingFile:
    inflight_file: InflightFile
    path: str
    write_content: Callable[[], CommitResult]  #: writes and verifies the file in flight


PendingCommit = tuple[UncancellableFuture[CommitResult], PendingFile]


class FileCommitter:
    def __init__(self, *, durable: bool = True) -> None:
        self._disk = DiskSync() if durable else None
        self._thread_pool = BatchThreadPool(MAX_COMMIT_TASKS)
        self._waiting: list[PendingCommit] = []
        self._commit_tasks: set[asyncio.Task[None]] = set()

    def commit(self, pending_file: PendingFile) -> UncancellableFuture[CommitResult]:
        """Done when the file has its final name on disk. For small files."""
        committed: UncancellableFuture[CommitResult] = UncancellableFuture()
        self._waiting.append((committed, pending_file))
        if len(self._commit_tasks) < MAX_COMMIT_TASKS:
            # The task starts in the next pass of the loop, so all files of this one share it.
            commit_task = asyncio.create_task(self._commit_waiting())
            self._commit_tasks.add(commit_task)
            commit_task.add_done_callback(self._finished)
        return committed

    async def commit_alone(self, pending_file: PendingFile) -> CommitResult:
        """The same in a thread of its own, for large files."""
        (result,) = await run_to_completion(commit_files, [pending_file], self._disk)
        if isinstance(result, BaseException):
            raise result
        return result

    async def close(self) -> None:
        await self._thread_pool.close()
        if self._disk is not None:
            await asyncio.to_thread(self._disk.close)

    async def _commit_waiting(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = (
                    self._waiting[:MAX_BATCH_FILES],
                    self._waiting[MAX_BATCH_FILES:],
                )
                await self._commit_batch(batch)
        finally:
            # Here and not in the done callback: a file that arrives in between would wait for a
            # task that has ended.
            self._commit_tasks.remove(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _commit_batch(self, batch: Sequence[PendingCommit]) -> None:
        pending_files = [pending_file for _, pending_file in batch]
        try:
            results = await self._thread_pool.submit(
                partial(commit_files, pending_files, self._disk)
            )
        except BaseException as error:
            _set_results(batch, [error] * len(batch))
            raise
        _set_results(batch, results)

    def _finished(self, commit_task: asyncio.Task[None]) -> None:
        """Fails the waiting files of a task that was cancelled, perhaps before it started."""
        self._commit_tasks.discard(commit_task)
        error = asyncio.CancelledError() if commit_task.cancelled() else commit_task.exception()
        if error is not None and not self._commit_tasks:
            waiting, self._waiting = self._waiting, []
            _set_results(waiting, [error] * len(waiting))


def _set_results(
    batch: Sequence[PendingCommit], results: Sequence[CommitResult | BaseException]
) -> None:
    for (committed, _), result in zip(batch, results, strict=True):
        if isinstance(result, BaseException):
            committed.set_exception(result)
        else:
            committed.set_result(result)


def commit_files(
    pending_files: Sequence[PendingFile], disk: DiskSync | None
) -> list[CommitResult | BaseException]:
    """The result of each file. Blocking."""
    results = [_write(each) for each in pending_files]
    written = [at for at, each in enumerate(results) if not isinstance(each, str | BaseException)]
    try:
        if disk is not None:
            disk.sync([pending_files[at].inflight_file.file for at in written])
        folders: set[str] = set()
        for at in written:
            pending_file = pending_files[at]
            try:
                folders.add(pending_file.inflight_file.rename_to(pending_file.path))
            except OSError as error:
                results[at] = error
        if disk is not None:
            disk.sync_folders(folders)
    except OSError as error:
        for at in written:
            results[at] = error
    return results


def _write(pending_file: PendingFile) -> CommitResult | BaseException:
    try:
        return pending_file.write_content()
    except Exception as error:
        return error


class DiskSync:
    """Syncs many files with one sync of their file system.

    Each fsync writes the journal and flushes the disk's cache, which costs more CPU than writing a
    small file. syncfs(2) does it once for all files, but also waits for what other processes have
    written: where that is slow, and on other file systems, files are synced one by one, several at
    a time. Blocking; any thread may call it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._paused_until: dict[int, float] = {}  #: by device
        self._pool = ThreadPoolExecutor(_SYNC_THREADS, "sync")

    def close(self) -> None:
        self._pool.shutdown()

    def sync(self, files: Sequence[int]) -> None:
        """Open files or folders; after an error any of them may not be on disk."""
        if len(files) < 2:
            for each in files:
                os.fsync(each)
            return
        by_device: dict[int, list[int]] = {}
        for each in files:
            by_device.setdefault(os.fstat(each).st_dev, []).append(each)
        for device, on_device in by_device.items():
            self._sync_device(device, on_device)

    def sync_folders(self, folders: Iterable[str]) -> None:
        opened: list[int] = []
        try:
            for folder in folders:
                opened.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            self.sync(opened)
        finally:
            for each in opened:
                os.close(each)

    def _sync_device(self, device: int, files: list[int]) -> None:
        sync_all = sync_of(device)
        started = self._clock()
        if len(files) < 2 or sync_all is None or started < self._paused_until.get(device, started):
            for _ in self._pool.map(os.fsync, files):
                continue
            return
        sync_all(files[0])
        if self._clock() - started > SLOW_SYNC_SECONDS:
            self._paused_until[device] = self._clock() + SYNC_PAUSE_SECONDS


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@cache
def sync_of(device: int) -> SyncAll | None:
    """A function that syncs a whole file system, given any file of it; None where syncfs(2) is not
    good enough."""
    release = platform.release().split(".")
    if platform.system() != "Linux" or _version(release) < _SYNCFS_KERNEL:
        return None
    if _file_system(device) not in SYNCFS_FILE_SYSTEMS:
        return None
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        return None

    def sync_all(file: int) -> None:
        if syncfs(file) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    return sync_all


def _file_system(device: int) -> str | None:
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = _MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        mount, _, source = line.partition(" - ")
        if mount.split(" ")[2] == number:
            return source.split(" ")[0]
    return None


def _version(release: list[str]) -> tuple[int, int]:
    try:
        return int(release[0]), int(release[1])
    except (ValueError, IndexError):
        return 0, 0
