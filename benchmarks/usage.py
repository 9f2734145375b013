"""What a broker uses: CPU seconds and resident memory of all its processes.

CPU time is that of the kernel's clock of each process, in nanoseconds; /proc counts it in ticks of
ten milliseconds, too coarse for a broker that needs few of them. A broker may be a tree of
processes (RabbitMQ's emulator has port programs); the tree is found anew at each reading, and the
time of children that have ended and been waited for counts too, in ticks.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Usage:
    """A reading; CPU seconds are meant to be subtracted, memory is what it is now."""

    cpu_seconds: float
    rss_bytes: int


@dataclass(frozen=True, slots=True)
class _Stat:
    parent: int
    child_ticks: int  #: of children that have ended
    pages: int


def _stat(pid: int) -> _Stat | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None  # it ended while we looked
    # The second field, the command, may hold spaces and parentheses: count from its end. The
    # fields' numbers are those of proc(5); cutime and cstime are 16 and 17.
    after_command = text[text.rindex(")") + 2 :].split()
    times = after_command[16 - 3 : 18 - 3]
    return _Stat(int(after_command[4 - 3]), sum(map(int, times)), int(after_command[24 - 3]))


def _stats() -> dict[int, _Stat]:
    pids = (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return {pid: stat for pid in pids if (stat := _stat(pid)) is not None}


def _tree(roots: Iterable[int], stats: dict[int, _Stat]) -> Iterator[int]:
    pending = [pid for pid in roots if pid in stats]
    while pending:
        pid = pending.pop()
        yield pid
        pending.extend(child for child, stat in stats.items() if stat.parent == pid)


def tree_of(root: int) -> list[int]:
    """A process and all its descendants."""
    return list(_tree([root], _stats()))


def children_of(pid: int) -> list[int]:
    return [child for child, stat in _stats().items() if stat.parent == pid]


def usage_of(roots: Iterable[int]) -> Usage:
    """What the processes `roots` and all their descendants have used."""
    stats = _stats()
    pids = list(_tree(roots, stats))
    tree = [stats[pid] for pid in pids]
    return Usage(
        sum(map(_own_cpu_seconds, pids))
        + sum(stat.child_ticks for stat in tree) / _TICKS_PER_SECOND,
        sum(stat.pages for stat in tree) * _PAGE_BYTES,
    )


def _own_cpu_seconds(pid: int) -> float:
    """Of all threads of the process, also those that have ended."""
    try:
        return time.clock_gettime(~pid << 3 | 2)  # clock_getcpuclockid(3) on Linux
    except OSError:
        return 0.0  # it ended while we looked


def proportional_bytes(pid: int) -> int:
    """The memory of a process; pages that it shares with others count in equal parts."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it ended while we looked
    return sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) << 10
