"""Memory that a burst has taken is returned."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock.core.units import MiB
from penstock_spark.memory import memory_task


class Java:
    """A heap that a collection shrinks to half."""

    def __init__(self) -> None:
        self.heap = 64 * MiB
        self.collections = 0
        runtime = SimpleNamespace(totalMemory=lambda: self.heap)
        self.Runtime = SimpleNamespace(getRuntime=lambda: runtime)
        self.System = SimpleNamespace(gc=self._collect)

    def _collect(self) -> None:
        self.heap //= 2
        self.collections += 1

    @property
    def session(self) -> Any:
        jvm = SimpleNamespace(java=SimpleNamespace(lang=self))
        return SimpleNamespace(_sc=SimpleNamespace(_jvm=jvm))


def test_a_heap_is_collected_when_it_has_grown_and_not_otherwise() -> None:
    java, task = Java(), memory_task()
    task.work(java.session)
    assert java.collections == 1
    task.work(java.session)
    assert java.collections == 1
    java.heap = 512 * MiB
    task.work(java.session)
    assert (java.collections, java.heap) == (2, 256 * MiB)


def test_a_remote_session_has_no_java_here() -> None:
    memory_task().work(SimpleNamespace())  # type: ignore[arg-type]
