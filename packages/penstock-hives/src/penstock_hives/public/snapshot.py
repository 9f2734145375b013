"""Editions in the cache: one worker makes them, all of them show them.

An edition is written in pieces that memcached takes, then its head, which names them: who reads
finds all of an edition or takes none. What is read is checked as if a stranger had written it.
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

#: memcached takes a mebibyte with the key and what it needs itself.
PIECE_BYTES: Final = 900 * KiB
#: Of an edition that is read, as JSON: a hundred thousand hives have less.
MAX_SNAPSHOT_BYTES: Final = 256 * MiB
_HEAD: Final = CACHE_KEYS.key("edition", "head")


@dataclass(frozen=True, slots=True)
class PublicSnapshot:
    """All that anybody may see, at one moment."""

    snapshot: HiveSnapshot
    plans: tuple[SubscriptionPlan, ...] = ()
    popular: tuple[Popularity, ...] = ()  #: of every window, by rank: the first by each interest

    @property
    def as_of(self) -> datetime:
        return self.snapshot.as_of


_SNAPSHOT: Final = TypeAdapter(PublicSnapshot)


@dataclass(frozen=True, slots=True)
class SnapshotManifest:
    """Names an edition."""

    made_at: float
    pieces: int
    check: int

    @property
    def keys(self) -> list[str]:
        return [CACHE_KEYS.key("edition", f"{self.check:08x}", n) for n in range(self.pieces)]


class SnapshotCache:
    def __init__(self, cache: Cache) -> None:
        self._cache = cache

    async def latest(self) -> SnapshotManifest | None:
        text = await self._cache.get(_HEAD)
        if text is None:
            return None
        try:
            found = json.loads(text)
            return SnapshotManifest(
                float(found["made_at"]), int(found["pieces"]), int(found["check"])
            )
        except (ValueError, KeyError, TypeError) as error:
            log.warning("no head of an edition", reason=str(error))
            return None

    async def read(self, head: SnapshotManifest) -> PublicSnapshot | None:
        """The edition, if all of it is still there."""
        found = await self._cache.get_many(head.keys)
        if len(found) != head.pieces:
            return None
        packed = b"".join(found[key] for key in head.keys)
        if zlib.crc32(packed) != head.check:
            return None
        try:
            return await asyncio.to_thread(_unpacked, packed)
        except (ValidationError, ContentTooLarge, zlib.error) as error:
            log.warning("no edition", reason=str(error)[:200])
            return None

    async def write(self, edition: PublicSnapshot) -> SnapshotManifest:
        packed = await asyncio.to_thread(_packed, edition)
        pieces = [packed[at : at + PIECE_BYTES] for at in range(0, len(packed), PIECE_BYTES)]
        head = SnapshotManifest(edition.as_of.timestamp(), len(pieces), zlib.crc32(packed))
        await self._cache.set_many(dict(zip(head.keys, pieces, strict=True)))
        await self._cache.set(_HEAD, json.dumps(asdict(head)).encode())
        return head


def _packed(edition: PublicSnapshot) -> bytes:
    return zlib.compress(_SNAPSHOT.dump_json(edition), 3)


def _unpacked(packed: bytes) -> PublicSnapshot:
    return _SNAPSHOT.validate_json(decompress(packed, MAX_SNAPSHOT_BYTES))


def snapshot_age(head: SnapshotManifest, now: datetime) -> float:
    """Seconds."""
    return now.timestamp() - head.made_at


# Keeps the window's edition young: one a minute, made once for all workers.
#
# A worker takes the edition that is in the cache if it is young enough. Else it takes the lock in
# the database, looks again, for whoever had the lock may have made one, and makes it. So workers
# that share memcached make one edition a minute together, and workers that have a cache each make
# theirs one after the other. The database is never asked because somebody outside asked.
#
# When it does not answer, the window goes on showing what it has, and an old edition from the cache
# is better than none.

EVERY_SECONDS: Final = 60.0
#: After a failure.
RETRY_SECONDS: Final = 5.0
#: How often figures are looked up in the cache while none are heard.
CATCH_UP_SECONDS: Final = 10.0


class SnapshotRefresher:
    """Of one worker."""

    def __init__(
        self,
        show: Callable[[PublicSnapshot], None],
        read: Callable[[], Awaitable[PublicSnapshot]],
        alone: Callable[[], AbstractAsyncContextManager[object]],
        cache: Cache | None,
        clock: Callable[[], datetime],
        every: float = EVERY_SECONDS,
        retry: float = RETRY_SECONDS,
    ) -> None:
        """`cache` is one that other workers have as well; without it, this one makes its own."""
        self._show = show
        self._read = read
        self._alone = alone
        self._editions = None if cache is None else SnapshotCache(cache)
        self._clock = clock
        self._every = every
        self._retry = retry
        self._flight: SingleFlight[None] = SingleFlight()
        self._shown: SnapshotManifest | None = None
        self.made = 0  #: editions that were made here

    async def run(self) -> None:
        while True:
            pause = self._every
            try:
                await self.refresh()
            except (PenstockError, OSError) as error:
                pause = self._retry
                log.warning("edition is not renewed", reason=str(error), again_in=pause)
            # Not all workers at once.
            await asyncio.sleep(pause * random.uniform(0.9, 1.0))

    async def refresh(self) -> None:
        """Show an edition that is young; raises what keeps it from being made."""
        await self._flight.run("refresh", self._refresh)

    async def _refresh(self) -> None:
        head = await self._latest()
        if await self._shows(head):
            return
        try:
            async with self._alone():
                if not await self._shows(await self._latest()):
                    await self._make()
        except (PenstockError, OSError):
            if self._shown is None and head is not None:
                await self._take(head)  # old, and better than none
            raise

    async def _latest(self) -> SnapshotManifest | None:
        return self._shown if self._editions is None else await self._editions.latest()

    async def _shows(self, head: SnapshotManifest | None) -> bool:
        """Whether this edition is young, and now shown."""
        if head is None or snapshot_age(head, self._clock()) >= self._every:
            return False
        return await self._take(head)

    async def _take(self, head: SnapshotManifest) -> bool:
        if head == self._shown or self._editions is None:
            return True
        edition = await self._editions.read(head)
        if edition is None:
            return False
        self._show(edition)
        self._shown = head
        return True

    async def _make(self) -> None:
        edition = await self._read()
        self._show(edition)
        self.made += 1
        if self._editions is None:
            self._shown = SnapshotManifest(edition.as_of.timestamp(), 0, 0)
        else:
            self._shown = await self._editions.write(edition)


class LiveFallback:
    """Figures from the cache, where the pipeline keeps them too, while none are heard."""

    def __init__(
        self,
        cache: Cache,
        hives: Callable[[], list[int]],
        heard: Callable[[Document], None],
        listening: Callable[[], bool],
        every: float = CATCH_UP_SECONDS,
    ) -> None:
        self._cache = cache
        self._hives = hives
        self._heard = heard
        self._listening = listening
        self._every = every

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            if not self._listening():
                await self.look()

    async def look(self) -> None:
        keys = [CACHE_KEYS.key("hive", hive) for hive in self._hives()]
        for text in (await self._cache.get_many(keys)).values():
            try:
                document = json.loads(text)
                int(document["hive"]), int(document["version"])
            except (ValueError, KeyError, TypeError):
                continue  # another's value under our key: no figure
            self._heard(document)
