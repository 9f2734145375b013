"""Editions: made once for all workers, one a minute, whatever else is asked or away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest

from penstock_hives.occupancy.publisher import CACHE_KEYS
from penstock_hives.public.snapshot import (
    CHUNK_BYTES,
    LiveFallback,
    PublicSnapshot,
    SnapshotCache,
    SnapshotRefresher,
)
from penstock_store.cache import MemoryCache
from penstock_store.errors import StoreUnavailable
from tests.hives.app.public.snapshots import NOON, edition


class Database:
    """Gives out snapshots, counts them, and may be away."""

    def __init__(self) -> None:
        self.now = NOON
        self.reads = 0
        self.away = False
        self._lock = asyncio.Lock()

    def clock(self) -> datetime:
        return self.now

    async def read(self) -> PublicSnapshot:
        if self.away:
            raise StoreUnavailable("nobody answers")
        self.reads += 1
        await asyncio.sleep(0)
        return edition(as_of=self.now)

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        if self.away:
            raise StoreUnavailable("nobody answers")
        async with self._lock:
            yield

    def worker(
        self, cache: MemoryCache | None = None
    ) -> tuple[SnapshotRefresher, list[PublicSnapshot]]:
        shown: list[PublicSnapshot] = []
        return SnapshotRefresher(shown.append, self.read, self.alone, cache, self.clock), shown


async def test_workers_that_share_a_cache_make_one_edition_together() -> None:
    database, cache = Database(), MemoryCache()
    workers = [database.worker(cache) for _ in range(5)]
    await asyncio.gather(*(refresher.refresh() for refresher, _ in workers))
    assert database.reads == 1
    assert all(shown == [edition()] for _, shown in workers)


async def test_workers_that_share_none_make_theirs_one_after_the_other() -> None:
    database = Database()
    workers = [database.worker() for _ in range(3)]
    await asyncio.gather(*(refresher.refresh() for refresher, _ in workers))
    assert database.reads == 3


async def test_however_many_ask_at_once_it_is_made_once() -> None:
    database = Database()
    refresher, shown = database.worker()
    await asyncio.gather(*(refresher.refresh() for _ in range(100)))
    assert (database.reads, len(shown)) == (1, 1)


async def test_an_edition_is_made_anew_when_it_is_a_minute_old() -> None:
    database = Database()
    refresher, shown = database.worker()
    for passed in (0, 30, 61):
        database.now = NOON + timedelta(seconds=passed)
        await refresher.refresh()
    assert database.reads == 2
    assert [each.as_of for each in shown] == [NOON, NOON + timedelta(seconds=61)]


async def test_a_new_worker_shows_the_old_edition_while_the_database_is_away() -> None:
    database, cache = Database(), MemoryCache()
    await database.worker(cache)[0].refresh()
    database.now += timedelta(minutes=5)
    database.away = True
    refresher, shown = database.worker(cache)
    with pytest.raises(StoreUnavailable):
        await refresher.refresh()
    assert shown == [edition()]


async def test_it_recovers_by_itself_when_the_database_is_back() -> None:
    database = Database()
    database.away = True
    made = asyncio.Event()
    refresher = SnapshotRefresher(
        lambda _: made.set(),
        database.read,
        database.alone,
        MemoryCache(),
        database.clock,
        retry=0.01,
    )
    running = asyncio.create_task(refresher.run())
    await asyncio.sleep(0.05)
    assert not made.is_set()
    database.away = False
    await asyncio.wait_for(made.wait(), 60)
    running.cancel()


async def test_an_edition_of_many_hives_is_kept_in_pieces_and_read_back_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock_hives.public.snapshot.CHUNK_BYTES", 500)
    editions = SnapshotCache(MemoryCache())
    head = await editions.write(edition(hives=40))
    assert head.chunks > 1
    assert await editions.read(head) == edition(hives=40)
    assert CHUNK_BYTES < 1024 * 1024


async def test_an_edition_with_a_piece_missing_or_spoilt_is_none() -> None:
    cache = MemoryCache()
    editions = SnapshotCache(cache)
    head = await editions.write(edition())
    await cache.set(head.keys[0], b"something else")
    assert await editions.read(head) is None
    await cache.delete(head.keys[0])
    assert await editions.read(head) is None
    await cache.set(CACHE_KEYS.key("snapshot", "manifest"), b"{}")
    assert await editions.latest() is None


async def test_figures_are_had_from_the_cache_while_none_are_heard() -> None:
    cache = MemoryCache()
    await cache.set(CACHE_KEYS.key("hive", 1), b'{"hive":1,"version":9}')
    await cache.set(CACHE_KEYS.key("hive", 2), b"nonsense")
    heard: list[int] = []
    look = LiveFallback(cache, lambda: [1, 2, 3], lambda told: heard.append(told["version"]), bool)
    await look.read_cache()
    assert heard == [9]
