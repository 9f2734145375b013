"""`open_cache`, and a blocking wrapper for plain threads such as those of the pipeline."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Mapping
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

from penstock.core.errors import ConfigurationError
from penstock_store.cache.cache import DEFAULT_TTL_SECONDS, Cache, CacheStatistics
from penstock_store.cache.memcached import DEFAULT_PORT, MemcachedCache
from penstock_store.cache.memory import MemoryCache


def open_cache(url: str | None) -> Cache:
    """`memcached://host:11211`; None: the cache of this process."""
    if url is None:
        return MemoryCache()
    parts = urlsplit(url)
    try:
        port = parts.port or DEFAULT_PORT
    except ValueError:
        port = 0
    if parts.scheme != "memcached" or not parts.hostname or not port:
        raise ConfigurationError(
            f"the cache URL must be memcached://host:{DEFAULT_PORT}, got {url!r}"
        )
    return MemcachedCache(parts.hostname, port)


T = TypeVar("T")


class BlockingCache:
    """A `Cache` without `async`; its event loop runs only during a call."""

    __slots__ = ("_cache", "_lock", "_runner")

    def __init__(self, url: str | None) -> None:
        self._runner = asyncio.Runner()
        self._lock = threading.Lock()
        self._cache: Cache = open_cache(url)

    @property
    def statistics(self) -> CacheStatistics:
        return self._cache.statistics

    def get(self, key: str) -> bytes | None:
        return self._wait(self._cache.get(key))

    def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        return self._wait(self._cache.get_many(keys))

    def set(self, key: str, value: bytes, ttl: float = DEFAULT_TTL_SECONDS) -> None:
        self._wait(self._cache.set(key, value, ttl))

    def set_many(self, values: Mapping[str, bytes], ttl: float = DEFAULT_TTL_SECONDS) -> None:
        self._wait(self._cache.set_many(values, ttl))

    def delete(self, key: str) -> None:
        self._wait(self._cache.delete(key))

    def close(self) -> None:
        self._wait(self._cache.close())
        with self._lock:
            self._runner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            return self._runner.run(work)
