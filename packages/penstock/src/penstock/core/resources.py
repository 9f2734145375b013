"""Memory, disk and descriptor limits of the machine. A cgroup limit counts as the total memory."""

from __future__ import annotations

import ctypes
import os
import resource
from pathlib import Path
from typing import Final

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
#: glibc's M_TRIM_THRESHOLD, M_MMAP_THRESHOLD and M_ARENA_MAX.
_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
_ARENA_MAX: Final = -8
#: An upper bound of useful descriptors.
MAX_DESCRIPTORS: Final = 1 << 20
_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def memory_total() -> int:
    """Bytes of memory available to this process."""
    total = _PAGE * os.sysconf("SC_PHYS_PAGES")
    for path in _LIMITS:
        try:
            total = min(total, int(path.read_text()))
        except (OSError, ValueError):  # no such limit, or "max"
            continue
    return total


def memory_used(pid: int | None = None) -> int:
    """Resident bytes of a process, by default this one; 0 where the system does not tell."""
    try:
        with open(f"/proc/{pid or 'self'}/statm", "rb") as statm:  # noqa: PTH123 - no Path churn
            return int(statm.read().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def disk_free(path: Path) -> int:
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def descriptor_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def has_descriptors(share: float = 0.75) -> bool:
    """Whether the open files are fewer than this share of the limit. A new file gets the lowest
    free number."""
    try:
        number = os.open("/", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    os.close(number)
    return number < descriptor_limit() * share


def raise_descriptor_limit() -> int:
    """Raise the limit as far as the system allows; returns the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return descriptor_limit()


def limit_arenas(count: int = 2) -> None:
    """Let threads share this many heaps of glibc: by default there are eight for each core."""
    _mallopt(_ARENA_MAX, count)


def return_free_memory(above: int = 0) -> None:
    """Return what glibc keeps of freed memory to the system, if it is more than this."""
    libc = ctypes.CDLL(None)
    mallinfo, trim = getattr(libc, "mallinfo2", None), getattr(libc, "malloc_trim", None)
    if mallinfo is None or trim is None:
        return
    mallinfo.restype = _MallocInfo
    if mallinfo().free > above:
        trim(0)


class _MallocInfo(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = (
        ("before", ctypes.c_size_t * 8),
        ("free", ctypes.c_size_t),
        ("top", ctypes.c_size_t),
    )


def set_mmap_threshold(size: int = 1 << 20) -> None:
    """Return freed blocks of this size to the system at once, in the whole process.

    glibc would keep the memory of one password check (19 MiB) forever. Other C libraries have no
    such function and do not need it.
    """
    _mallopt(_MMAP_THRESHOLD, size)


def set_trim_threshold(size: int = 4 << 20) -> None:
    """Keep this much freed memory at the end of the heap.

    By default glibc returns it from 128 KiB on: a broker that handles a large read would take new
    pages from the system for its buffers, and return them, at every read.
    """
    _mallopt(_TRIM_THRESHOLD, size)


def _mallopt(parameter: int, value: int) -> None:
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(parameter, value)
