"""The job that all queues run: it writes down when it was sent and when it began.

Each process of a worker has a file of its own, to which a job adds two numbers; the clock is the
machine's, the same in all processes. What is read from the files afterwards is the rate, the
latency of every job, and whether each ran once.
"""

from __future__ import annotations

import os
import struct
import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

FOLDER: Final = "JOBS_BENCH_STAMPS"
_RECORD: Final = struct.Struct("<qqq")


@cache
def _file() -> int:
    path = Path(os.environ[FOLDER]) / str(os.getpid())
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)


def stamp(number: int, sent: int) -> None:
    """`sent` in nanoseconds of the monotonic clock."""
    now = time.monotonic_ns()
    os.write(_file(), _RECORD.pack(number, sent, now))


@dataclass(frozen=True, slots=True)
class Stamp:
    number: int
    sent: int
    began: int

    @property
    def seconds(self) -> float:
        return (self.began - self.sent) / 1e9


def count(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir()) // _RECORD.size


def read(folder: Path) -> list[Stamp]:
    """In the order in which they began."""
    found = [
        Stamp(*fields)
        for file in folder.iterdir()
        for fields in _RECORD.iter_unpack(file.read_bytes())
    ]
    return sorted(found, key=lambda each: each.began)


def clear(folder: Path) -> None:
    """Emptied, not removed: the processes that write there go on."""
    for file in folder.iterdir():
        os.truncate(file, 0)
