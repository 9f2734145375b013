"""Files that land together: written one by one, synced all at once, and then given their names.

Whoever comes while others land waits for the next turn, and shares it with all who do; so a file
that comes alone waits for nobody, and hundreds cost two syncs. What befalls one of them befalls no
other, but a disk that fails.
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

#: While some are synced, others are written.
MAX_COMMIT_TASKS: Final = 2
#: So many land together at most: those who wait for their names are not to wait long.
MAX_BATCH_FILES: Final = 256

#: The sum a file has, if one is known; or why it need not land at all.
CommitResult = Checksum | str | None


@dataclass(frozen=True, slots=True)
class PendingFile:
    draft: InflightFile
    place: str
    write_content: Callable[[], CommitResult]  #: all of it is in the draft then, and right


PendingCommit = tuple[UncancellableFuture[CommitResult], PendingFile]


class FileCommitter:
    """Ended by `close`."""

    def __init__(self, *, durable: bool = True) -> None:
        self._disk = DiskSync() if durable else None
        self._thread_pool = BatchThreadPool(MAX_COMMIT_TASKS)
        self._waiting: list[PendingCommit] = []
        self._commit_tasks: set[asyncio.Task[None]] = set()

    def commit(self, pending_file: PendingFile) -> UncancellableFuture[CommitResult]:
        """Done when it has its name, on the disk as it is. For what is quick to take in."""
        committed: UncancellableFuture[CommitResult] = UncancellableFuture()
        self._waiting.append((committed, pending_file))
        if len(self._commit_tasks) < MAX_COMMIT_TASKS:
            # It begins in the loop's next turn, so that all who come in this one go together.
            commit_task = asyncio.create_task(self._land())
            self._commit_tasks.add(commit_task)
            commit_task.add_done_callback(self._ended)
        return committed

    async def commit_alone(self, pending_file: PendingFile) -> CommitResult:
        """The same in a thread of its own: for what takes its time."""
        (found,) = await run_to_completion(commit_files, [pending_file], self._disk)
        if isinstance(found, BaseException):
            raise found
        return found

    async def close(self) -> None:
        await self._thread_pool.close()
        if self._disk is not None:
            await asyncio.to_thread(self._disk.close)

    async def _land(self) -> None:
        try:
            while self._waiting:
                together, self._waiting = (
                    self._waiting[:MAX_BATCH_FILES],
                    self._waiting[MAX_BATCH_FILES:],
                )
                await self._land_together(together)
        finally:
            # At once, and not when the task is seen to have ended: who comes until then would wait
            # for a crew that looks no more.
            self._commit_tasks.remove(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _land_together(self, together: Sequence[PendingCommit]) -> None:
        pending_files = [pending_file for _, pending_file in together]
        try:
            found = await self._thread_pool.do(partial(commit_files, pending_files, self._disk))
        except BaseException as error:
            _set_results(together, [error] * len(together))  # nobody is to wait for ever
            raise
        _set_results(together, found)

    def _ended(self, commit_task: asyncio.Task[None]) -> None:
        """Nobody is to wait for a crew that was cancelled, perhaps before it had begun."""
        self._commit_tasks.discard(commit_task)
        error = asyncio.CancelledError() if commit_task.cancelled() else commit_task.exception()
        if error is not None and not self._commit_tasks:
            behind, self._waiting = self._waiting, []
            _set_results(behind, [error] * len(behind))


def _set_results(
    together: Sequence[PendingCommit],
    found: Sequence[CommitResult | BaseException],
) -> None:
    for (committed, _), each in zip(together, found, strict=True):
        if isinstance(each, BaseException):
            committed.set_exception(each)
        else:
            committed.set_result(each)


def commit_files(
    pending_files: Sequence[PendingFile], disk: DiskSync | None
) -> list[CommitResult | BaseException]:
    """What became of each. Blocking."""
    found = [_written(each) for each in pending_files]
    named = [at for at, each in enumerate(found) if not isinstance(each, str | BaseException)]
    try:
        if disk is not None:
            disk.sync([pending_files[each].draft.file for each in named])
        folders: set[str] = set()
        for each in named:
            pending_file = pending_files[each]
            try:
                folders.add(pending_file.draft.name(pending_file.place))
            except OSError as error:
                found[each] = error
        if disk is not None:
            disk.sync_folders(folders)
    except OSError as error:
        for each in named:
            found[each] = error
    return found


def _written(pending_file: PendingFile) -> CommitResult | BaseException:
    try:
        return pending_file.write_content()
    except Exception as error:
        return error


# Files on the disk, many by one sync.
#
# To sync a file is to have the journal written and the disk's cache emptied: a hundred files synced
# one after the other are a hundred waits, and each costs the processor more than writing a small
# file does. Where several wait together, one sync of their file system does for all of them. It
# also waits for what others have written there: where that takes long, files are synced by
# themselves again for a while, several at a time. The same goes for file systems that are not known
# to report what could not be written. Blocking, and safe to call from several threads.

#: Those of which one knows that a sync of all of it means what a sync of each file does.
MAX_KNOWN_DEVICES: Final = frozenset({"ext3", "ext4", "xfs", "f2fs", "tmpfs"})
#: Since then a sync of a file system tells of what could not be written.
_TELLING: Final = (5, 8)
#: Longer than this, others are at work there; and how long they are given.
SLOW_SYNC_SECONDS: Final = 0.5
SYNC_PAUSE_SECONDS: Final = 30.0
_AT_A_TIME: Final = 8
_MOUNTS: Final = Path("/proc/self/mountinfo")

SyncAll = Callable[[int], None]


class DiskSync:
    """Ended by `close`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rest_until: dict[int, float] = {}  #: by device
        self._pool = ThreadPoolExecutor(_AT_A_TIME, "sync")  # its threads begin when needed

    def close(self) -> None:
        self._pool.shutdown()

    def sync(self, files: Sequence[int]) -> None:
        """Open files, and folders; an error means that any of them may not be on the disk."""
        if len(files) < 2:
            for each in files:
                os.fsync(each)
            return
        by_device: dict[int, list[int]] = {}
        for each in files:
            by_device.setdefault(os.fstat(each).st_dev, []).append(each)
        for device, those in by_device.items():
            self._sync_device(device, those)

    def sync_folders(self, folders: Iterable[str]) -> None:
        """So that the names in them are on the disk, too."""
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
        begun = self._clock()
        if len(files) < 2 or sync_all is None or begun < self._rest_until.get(device, begun):
            for _ in self._pool.map(os.fsync, files):
                continue
            return
        sync_all(files[0])
        if self._clock() - begun > SLOW_SYNC_SECONDS:
            self._rest_until[device] = self._clock() + SYNC_PAUSE_SECONDS


def sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@cache
def sync_of(device: int) -> SyncAll | None:
    """How to sync a whole file system, by any file of it; None where files are to be synced each
    by itself."""
    release = platform.release().split(".")
    if platform.system() != "Linux" or _number(release) < _TELLING:
        return None
    if _kind(device) not in MAX_KNOWN_DEVICES:
        return None
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        return None

    def sync_all(file: int) -> None:
        if syncfs(file) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))

    return sync_all


def _kind(device: int) -> str | None:
    """The file system's, as the kernel calls it."""
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        lines = _MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        place, _, about = line.partition(" - ")
        if place.split(" ")[2] == wanted:
            return about.split(" ")[0]
    return None


def _number(release: list[str]) -> tuple[int, int]:
    try:
        return int(release[0]), int(release[1])
    except (ValueError, IndexError):
        return 0, 0
