"""Who used the processor: the processes of a run, told apart by what they are."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from benchmarks.usage import usage_of


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of processor time, of all that a run needs."""

    broker: float
    database: float
    spark: float  #: Java
    python: float  #: the driver and the workers

    @property
    def total(self) -> float:
        return self.broker + self.database + self.spark + self.python

    def since(self, before: Spent) -> Spent:
        pairs = ((getattr(self, each.name), getattr(before, each.name)) for each in fields(self))
        return Spent(*(now - then for now, then in pairs))


def spent(brokers: Iterable[int], database: int) -> Spent:
    """By the processes of the broker, of the database, and below this one."""
    served = usage_of(brokers).cpu_seconds
    stored = usage_of([database]).cpu_seconds
    java = [pid for pid in _children() if "java" in _command(pid)]
    # Workers are Java's children, and are counted with its tree.
    tree = usage_of(java).cpu_seconds
    alone = sum(_own(pid) for pid in java)
    driver = _own(os.getpid())
    return Spent(served, stored, alone, tree - alone + driver)


def _children() -> list[int]:
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(pid) for pid in text.split()]


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().partition("\0")[0]


def _own(pid: int) -> float:
    """Of this process alone, without its children."""
    after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(after[11]) + int(after[12])) / os.sysconf("SC_CLK_TCK")
