"""The cache in this process: an LRU with limits of entries and bytes."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Self

from penstock.core.units import MiB
from penstock_store.cache.cache import DEFAULT_TTL_SECONDS, CacheStatistics

MAX_ENTRIES: Final = 100_000
MAX_BYTES: Final = 64 * MiB
#: Approximate bytes of an entry beside key and value.
_OVERHEAD: Final = 200


class LruCache:
    """Thread-safe."""

    __slots__ = ("_clock", "_entries", "_lock", "_max_bytes", "_max_entries", "_size")

    def __init__(
        self,
        max_entries: int = MAX_ENTRIES,
        max_bytes: int = MAX_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._clock = clock
        self._entries: OrderedDict[str, tuple[bytes, float]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size(self) -> int:
        """Bytes."""
        return self._size

    def get(self, key: str) -> bytes | None:
        with self._lock:
            found = self._entries.get(key)
            if found is None:
                return None
            value, until = found
            if self._clock() >= until:
                self._drop(key)
                return None
            self._entries.move_to_end(key)
            return value

    def set(self, key: str, value: bytes, ttl: float) -> None:
        size = _size(key, value)
        with self._lock:
            self._drop(key)
            if ttl <= 0 or size > self._max_bytes:
                return
            self._entries[key] = (value, self._clock() + ttl)
            self._size += size
            while len(self._entries) > self._max_entries or self._size > self._max_bytes:
                self._drop(next(iter(self._entries)))

    def delete(self, key: str) -> None:
        with self._lock:
            self._drop(key)

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._size = 0

    def _drop(self, key: str) -> None:
        found = self._entries.pop(key, None)
        if found is not None:
            self._size -= _size(key, found[0])


def _size(key: str, value: bytes) -> int:
    return len(key) + len(value) + _OVERHEAD


class MemoryCache:
    """An `LruCache` with the interface of `Cache`."""

    __slots__ = ("_lru", "statistics")

    def __init__(self, lru: LruCache | None = None) -> None:
        self._lru = lru or LruCache()
        self.statistics = CacheStatistics()

    async def get(self, key: str) -> bytes | None:
        value = self._lru.get(key)
        if value is None:
            self.statistics.misses += 1
        else:
            self.statistics.hits += 1
        return value

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        return {key: value for key in keys if (value := await self.get(key)) is not None}

    async def set(self, key: str, value: bytes, ttl: float = DEFAULT_TTL_SECONDS) -> None:
        self._lru.set(key, value, ttl)

    async def set_many(self, values: Mapping[str, bytes], ttl: float = DEFAULT_TTL_SECONDS) -> None:
        for key, value in values.items():
            self._lru.set(key, value, ttl)

    async def delete(self, key: str) -> None:
        self._lru.delete(key)

    async def close(self) -> None:
        self._lru.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
