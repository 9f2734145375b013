"""Memory that a burst has taken is returned to the system: by the driver and its Java.

A backlog, or the start, needs more memory than live batches do. Java shrinks its heap only at a
full collection, which it does not need for a long time; glibc keeps what Python has freed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.core.resources import return_free_memory
from penstock.core.units import MiB
from penstock_spark.flow import PeriodicTask

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SECONDS: Final = 30.0
#: Java's heap is collected when it has grown by so much since the last time.
_HEAP_GROWTH: Final = 16 * MiB
_KEPT: Final = 8 * MiB


def memory_task() -> PeriodicTask:
    return PeriodicTask("memory", _ReturnedMemory(), _SECONDS, _SECONDS)


class _ReturnedMemory:
    def __init__(self) -> None:
        self._heap = 0

    def __call__(self, spark: SparkSession) -> None:
        return_free_memory(_KEPT)
        context = getattr(spark, "_sc", None)  # None in Spark Connect
        if context is None:
            return
        java = context._jvm.java.lang
        runtime = java.Runtime.getRuntime()
        if runtime.totalMemory() > self._heap + _HEAP_GROWTH:
            java.System.gc()
            self._heap = runtime.totalMemory()
