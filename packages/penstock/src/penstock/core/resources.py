"""What the machine gives a process: how much memory it may have, how much it has.

Containers are believed before the kernel's totals: a cgroup limit is the memory there is.
"""

from __future__ import annotations

import ctypes
import os
import resource
from pathlib import Path
from typing import Final

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
#: glibc's M_MMAP_THRESHOLD.
_MMAP_THRESHOLD: Final = -3
#: More descriptors than anybody has a use for.
MAX_DESCRIPTORS: Final = 1 << 20
_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def memory_total() -> int:
    """Bytes of memory this process may hope for."""
    total = _PAGE * os.sysconf("SC_PHYS_PAGES")
    for path in _LIMITS:
        try:
            total = min(total, int(path.read_text()))
        except (OSError, ValueError):  # no such limit, or "max"
            continue
    return total


def memory_used(pid: int | None = None) -> int:
    """Resident bytes of a process (this one unless told), or 0 where the system does not say."""
    try:
        with open(f"/proc/{pid or 'self'}/statm", "rb") as statm:  # noqa: PTH123 - no Path churn
            return int(statm.read().split()[1]) * _PAGE
    except (OSError, IndexError):
        return 0


def disk_free(path: Path) -> int:
    """Bytes that may still be written under a directory."""
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize


def descriptor_limit() -> int:
    """How many descriptors (sockets, files) this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else soft


def raise_descriptor_limit() -> int:
    """Let this process have as many as the system allows it, within reason; how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return descriptor_limit()


def set_mmap_threshold(size: int = 1 << 20) -> None:
    """Have freed blocks of this size go back to the system at once, in the whole process.

    glibc keeps them once it has seen a few: the memory of one password check (19 MiB) would stay
    for good. Other C libraries have no such call, and no such habit.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, size)
