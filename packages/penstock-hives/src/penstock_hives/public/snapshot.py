"""Snapshots of the public data: one worker reads them from the database, all share them.

A snapshot is stored in memcached in chunks, then its manifest is: readers find a complete snapshot
or none. What is read is validated.

A worker takes the cached snapshot if it is recent enough. Else it takes a lock in the database,
checks the cache again, and creates a snapshot. So the workers of a memcached create one snapshot a
minute, and no outside request ever reads the database. While the database is unavailable the old
snapshot is used.
"""

from __future__ import annotations

import asyncio
import json
import random
import zlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final

from pydantic import TypeAdapter, ValidationError

from penstock.core.compression import decompress
from penstock.core.errors import ContentTooLarge, PenstockError
from penstock.core.logs import get_logger
from penstock.core.units import KiB, MiB
from penstock_hives.analytics.models import Popularity
from penstock_hives.billing.models import SubscriptionPlan
from penstock_hives.live.subscriber import Document
from penstock_hives.occupancy.publisher import CACHE_KEYS
from penstock_hives.places.models import HiveSnapshot
from penstock_store.cache import Cache, SingleFlight

log = get_logger(__name__)

#: memcached accepts 1 MiB, with key and overhead.
CHUNK_BYTES: Final = 900 * KiB
#: Of the JSON; a hundred thousand hives need less.
MAX_SNAPSHOT_BYTES: Final = 256 * MiB
_MANIFEST: Final = CACHE_KEYS.key("snapshot", "manifest")


@dataclass(frozen=True, slots=True)
class PublicSnapshot:
    hives: HiveSnapshot
    plans: tuple[SubscriptionPlan, ...] = ()
    popular: tuple[Popularity, ...] = ()  #: of every period, the first by each measure

    @property
    def as_of(self) -> datetime:
        return self.hives.as_of


_SNAPSHOT: Final = TypeAdapter(PublicSnapshot)


@dataclass(frozen=True, slots=True)
class SnapshotManifest:
    made_at: float
    chunks: int
    crc: int

    @property
    def keys(self) -> list[str]:
        return [CACHE_KEYS.key("snapshot", f"{self.crc:08x}", n) for n in range(self.chunks)]


class SnapshotCache:
    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    async def latest(self) -> SnapshotManifest | None:
        text = await self._cache.get(_MANIFEST)
        if text is None:
            return None
        try:
            found = json.loads(text)
            return SnapshotManifest(
                float(found["made_at"]), int(found["chunks"]), int(found["crc"])
            )
        except (ValueError, KeyError, TypeError) as error:
            log.warning("cached snapshot invalid", reason=str(error))
            return None

    async def read(self, manifest: SnapshotManifest) -> PublicSnapshot | None:
        """None if a chunk is missing or invalid."""
        found = await self._cache.get_many(manifest.keys)
        if len(found) != manifest.chunks:
            return None
        packed = b"".join(found[key] for key in manifest.keys)
        if zlib.crc32(packed) != manifest.crc:
            return None
        try:
            return await asyncio.to_thread(_unpack, packed)
        except (ValidationError, ContentTooLarge, zlib.error) as error:
            log.warning("cached snapshot invalid", reason=str(error)[:200])
            return None

    async def write(self, snapshot: PublicSnapshot) -> SnapshotManifest:
        packed = await asyncio.to_thread(_pack, snapshot)
        chunks = [packed[at : at + CHUNK_BYTES] for at in range(0, len(packed), CHUNK_BYTES)]
        manifest = SnapshotManifest(snapshot.as_of.timestamp(), len(chunks), zlib.crc32(packed))
        await self._cache.set_many(dict(zip(manifest.keys, chunks, strict=True)))
        await self._cache.set(_MANIFEST, json.dumps(asdict(manifest)).encode())
        return manifest


def _pack(snapshot: PublicSnapshot) -> bytes:
    return zlib.compress(_SNAPSHOT.dump_json(snapshot), 3)


def _unpack(packed: bytes) -> PublicSnapshot:
    return _SNAPSHOT.validate_json(decompress(packed, MAX_SNAPSHOT_BYTES))


EVERY_SECONDS: Final = 60.0
#: After a failed refresh.
RETRY_SECONDS: Final = 5.0
#: Between two reads of the cache while there is no subscription.
CATCH_UP_SECONDS: Final = 10.0


class SnapshotRefresher:
    def __init__(
        self,
        on_snapshot: Callable[[PublicSnapshot], None],
        read: Callable[[], Awaitable[PublicSnapshot]],
        lock: Callable[[], AbstractAsyncContextManager[object]],
        cache: Cache | None,
        clock: Callable[[], datetime],
        every: float = EVERY_SECONDS,
        retry: float = RETRY_SECONDS,
    ) -> None:
        """`cache` is shared with other workers; without one, each worker creates snapshots."""
        self._on_snapshot = on_snapshot
        self._read = read
        self._lock = lock
        self._cached = None if cache is None else SnapshotCache(cache)
        self._clock = clock
        self._every = every
        self._retry = retry
        self._flight: SingleFlight[None] = SingleFlight()
        self._current: SnapshotManifest | None = None
        self.created = 0  #: snapshots that this worker created

    async def run(self) -> None:
        while True:
            pause = self._every
            try:
                await self.refresh()
            except (PenstockError, OSError) as error:
                pause = self._retry
                log.warning("snapshot refresh failed", reason=str(error), retry_in=pause)
            # Jitter, so that workers do not refresh at once.
            await asyncio.sleep(pause * random.uniform(0.9, 1.0))

    async def refresh(self) -> None:
        """Have a recent snapshot; raises the error that prevents it."""
        await self._flight.run("refresh", self._refresh)

    async def _refresh(self) -> None:
        manifest = await self._latest()
        if await self._use_if_recent(manifest):
            return
        try:
            async with self._lock():
                if not await self._use_if_recent(await self._latest()):
                    await self._create()
        except (PenstockError, OSError):
            if self._current is None and manifest is not None:
                await self._use(manifest)  # an old snapshot is better than none
            raise

    async def _latest(self) -> SnapshotManifest | None:
        return self._current if self._cached is None else await self._cached.latest()

    async def _use_if_recent(self, manifest: SnapshotManifest | None) -> bool:
        if manifest is None or self._clock().timestamp() - manifest.made_at >= self._every:
            return False
        return await self._use(manifest)

    async def _use(self, manifest: SnapshotManifest) -> bool:
        if manifest == self._current or self._cached is None:
            return True
        snapshot = await self._cached.read(manifest)
        if snapshot is None:
            return False
        self._on_snapshot(snapshot)
        self._current = manifest
        return True

    async def _create(self) -> None:
        snapshot = await self._read()
        self._on_snapshot(snapshot)
        self.created += 1
        if self._cached is None:
            self._current = SnapshotManifest(snapshot.as_of.timestamp(), 0, 0)
        else:
            self._current = await self._cached.write(snapshot)


class LiveFallback:
    """Reads occupancy from the cache, where the pipeline writes it too, without a subscription."""

    def __init__(
        self,
        cache: Cache,
        hives: Callable[[], list[int]],
        on_occupancy: Callable[[Document], None],
        is_subscribed: Callable[[], bool],
        every: float = CATCH_UP_SECONDS,
    ) -> None:
        self._cache = cache
        self._hives = hives
        self._on_occupancy = on_occupancy
        self._is_subscribed = is_subscribed
        self._every = every

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            if not self._is_subscribed():
                await self.read_cache()

    async def read_cache(self) -> None:
        keys = [CACHE_KEYS.key("hive", hive) for hive in self._hives()]
        for text in (await self._cache.get_many(keys)).values():
            try:
                document = json.loads(text)
                int(document["hive"]), int(document["version"])
            except (ValueError, KeyError, TypeError):
                continue  # not an occupancy message
            self._on_occupancy(document)
