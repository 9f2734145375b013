"""Functions that tests call through the queue."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def nothing() -> None:
    """As little as can be done."""


def add(first: float, second: float) -> float:
    return first + second


def moment() -> float:
    """When it was called, in seconds since 1970."""
    return time.time()


def take(seconds: float, progress: Callable[[float], None], step: float = 0.1) -> float:
    """Take time, and tell how much of it has gone."""
    begun = time.monotonic()
    while (gone := time.monotonic() - begun) < seconds:
        progress(gone / seconds)
        time.sleep(min(step, seconds - gone))
    return gone


def fail(text: str = "as asked") -> None:
    raise RuntimeError(text)


def count_on_spark(spark: SparkSession, rows: int) -> int:
    """Make as many rows, and count them."""
    print(f"counting {rows:,} rows")
    return spark.range(rows).count()


def say(first: object, second: object, *, more: object) -> list[object]:
    print("said")
    return [first, second, more]


_arrived: set[str] = set()
_all_here = asyncio.Event()


async def meet(name: str, count: int) -> int:
    """Returns when so many calls are running at the same time."""
    _arrived.add(name)
    if len(_arrived) >= count:
        _all_here.set()
    await _all_here.wait()
    return len(_arrived)


async def wait_long(progress: Callable[[float], None]) -> None:
    progress(0.5)
    await asyncio.sleep(60)
