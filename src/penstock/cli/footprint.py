"""How much memory a part takes, with the processes it has started."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


def footprint(pid: int) -> int:
    """Bytes that a process and its descendants have for themselves; 0 where nobody says.

    What they share (libraries, PostgreSQL's buffers) would be counted once for each of them.
    """
    total, left = 0, [pid]
    while left:
        each = left.pop()
        try:
            _, resident, shared, *_ = Path(f"/proc/{each}/statm").read_text().split()
            children = _children(Path(f"/proc/{each}/task"))
        except (OSError, ValueError):  # it has just ended, or the system has no such thing
            continue
        total += (int(resident) - int(shared)) * _PAGE
        left += children
    return total


def _children(tasks: Path) -> list[int]:
    """Of all its threads: Spark's Java starts Python's workers from one of many."""
    return [int(pid) for path in tasks.glob("*/children") for pid in path.read_text().split()]
