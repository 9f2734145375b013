"""Who used the processor: the processes of a run, told apart by what they are."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

from benchmarks.usage import children_of, tree_of, usage_of


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of processor time, of all that a run needs."""

    broker: float
    database: float
    spark: float  #: Java
    python: float  #: the driver and the workers
    #: Of the last two: this process, its Java and the Python processes that this starts to plan and
    #: to ask the broker; in local mode with tasks.
    driver: float = 0.0

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
    java, python = 0.0, _own(os.getpid())
    driver = python
    # Executors and Python's workers are below the driver's Java, or that of a cluster's workers.
    for root in _children():
        if "java" not in command_of(root):
            continue
        submitted = "SparkSubmit" in _arguments(root)
        for child in children_of(root):
            planning = submitted and "java" not in command_of(child)
            for pid in tree_of(child):
                seconds = _own(pid) + _reaped(pid)
                if "java" in command_of(pid):
                    java += seconds
                else:
                    python += seconds
                    driver += seconds if planning else 0.0
        seconds = _own(root) + _reaped(root)
        java += seconds
        driver += seconds if submitted else 0.0
    return Spent(served, stored, java, python, driver)


def _children() -> list[int]:
    text = Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    return [int(pid) for pid in text.split()]


def command_of(pid: int) -> str:
    return _arguments(pid).partition("\0")[0]


def _arguments(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _own(pid: int) -> float:
    """Of this process alone."""
    return sum(_times(pid)[:2])


def _reaped(pid: int) -> float:
    """Of its children that have ended."""
    return sum(_times(pid)[2:])


def _times(pid: int) -> list[float]:
    try:
        after = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return [0.0] * 4
    return [int(each) / os.sysconf("SC_CLK_TCK") for each in after[11:15]]
