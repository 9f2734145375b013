"""Files on the disk, many by one sync.

To sync a file is to have the journal written and the disk's cache emptied: a hundred files synced
one after the other are a hundred waits, and each costs the processor more than writing a small file
does. Where several wait together, one sync of their file system does for all of them. It also waits
for what others have written there: where that takes long, files are synced by themselves again for
a while, several at a time. The same goes for file systems that are not known to report what could
not be written. Blocking, and safe to call from several threads.
"""

from __future__ import annotations

import ctypes
import os
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final

#: Those of which one knows that a sync of all of it means what a sync of each file does.
KNOWN: Final = frozenset({"ext3", "ext4", "xfs", "f2fs", "tmpfs"})
#: Since then a sync of a file system tells of what could not be written.
_TELLING: Final = (5, 8)
#: Longer than this, others are at work there; and how long they are given.
SLOW_SECONDS: Final = 0.5
REST_SECONDS: Final = 30.0
_AT_A_TIME: Final = 8
_MOUNTS: Final = Path("/proc/self/mountinfo")

SyncAll = Callable[[int], None]


class Disk:
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
        if self._clock() - begun > SLOW_SECONDS:
            self._rest_until[device] = self._clock() + REST_SECONDS


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
    if _kind(device) not in KNOWN:
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
