"""A cache for those who wait: the pipeline's batches, which run in plain threads.

The cache's event loop runs while somebody waits for an answer, and not otherwise. Threads take
turns.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from penstock.store.cache.contract import TTL_SECONDS, Cache, Figures
from penstock.store.cache.opening import open_cache

T = TypeVar("T")


class BlockingCache:
    """The same as `Cache`, without `async`; by the same URL."""

    __slots__ = ("_cache", "_lock", "_runner")

    def __init__(self, url: str | None) -> None:
        self._runner = asyncio.Runner()
        self._lock = threading.Lock()
        self._cache: Cache = open_cache(url)

    @property
    def figures(self) -> Figures:
        return self._cache.figures

    def get(self, key: str) -> bytes | None:
        return self._wait(self._cache.get(key))

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        return self._wait(self._cache.get_many(keys))

    def set(self, key: str, value: bytes, ttl: float = TTL_SECONDS) -> None:
        self._wait(self._cache.set(key, value, ttl))

    def set_many(self, values: Mapping[str, bytes], ttl: float = TTL_SECONDS) -> None:
        self._wait(self._cache.set_many(values, ttl))

    def delete(self, key: str) -> None:
        self._wait(self._cache.delete(key))

    def close(self) -> None:
        self._wait(self._cache.close())
        with self._lock:
            self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            return self._runner.run(work)
