"""Which announcement is the first of its kind.

Two are of a kind when they have the same sum and, by the `basis`, the same path, the same name, or
nothing else. While the first is being dealt with, the others of its kind wait: if it succeeds they
are duplicates, and if it fails the next of them is the first. So a duplicate is never let through
and the last of its kind never lost, whatever dies in between.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Literal

from penstock_pump.posts import checksums
from penstock_pump.posts.post import FileEvent, Post

DuplicateBasis = Literal["path", "name", "data"]
#: How often what is too old is forgotten.
CLEANUP_SECONDS: Final = 300.0


class DuplicateFilter:
    def __init__(self, fingerprints: FingerprintStore, basis: DuplicateBasis = "path") -> None:
        self.fingerprints = fingerprints
        self._basis = basis
        self._pending: dict[str, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def first(self, post: Post) -> AsyncIterator[bool]:
        """Whether it is the first; it is remembered when the block is left without an error."""
        key = fingerprint(post, self._basis)
        while (pending := self._pending.get(key)) is not None:
            await asyncio.shield(pending)
        if self.fingerprints.known(key):
            yield False
            return
        done = self._pending[key] = asyncio.get_running_loop().create_future()
        try:
            yield True
            await self.fingerprints.remember(key)
        finally:
            del self._pending[key]
            done.set_result(None)

    async def keep_house(self) -> None:
        while True:
            await asyncio.sleep(CLEANUP_SECONDS)
            await self.fingerprints.forget_old()


def fingerprint(post: Post, basis: DuplicateBasis) -> str:
    """A kind, as a text. Parts of a file are each of their own kind."""
    what = {"path": post.relpath.lstrip("/"), "name": post.name, "data": ""}[basis]
    if post.event is not FileEvent.MODIFY:
        return f"{post.sum} {what}*{post.relpath.lstrip('/')}"
    parts = post.parts
    if (
        post.sum is not None
        and post.sum.method == checksums.NAME
        and (parts is None or parts.single)
    ):
        return f"{post.sum} {what}"
    return f"{post.sum} {what}*{parts}"


# What was seen, for as long as it counts, on disk and in memory.
#
# Looking is in memory; what is new or was seen again is written behind, many at a time, and
# `remember` returns when it is written. A fingerprint that is seen again counts from then on, so
# that a file which keeps coming keeps being known. Several processes must not share a store:
# duplicates are told apart by whoever has seen them.

_SCHEMA: Final = """
create table if not exists seen (key text primary key, at real not null) without rowid;
"""


class FingerprintStore:
    def __init__(self, path: Path, lifetime: float, clock: Callable[[], float]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lifetime = lifetime
        self._clock = clock
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.execute("pragma journal_mode = wal")
        self._db.execute("pragma synchronous = normal")
        self._db.executescript(_SCHEMA)
        oldest = clock() - lifetime
        self._db.execute("delete from seen where at < ?", (oldest,))
        self._seen: dict[str, float] = dict(self._db.execute("select key, at from seen"))
        self._changed: dict[str, float] = {}
        self._written: asyncio.Future[None] | None = None
        self._writer: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._seen)

    def known(self, key: str) -> bool:
        """Whether it was seen lately; if so it counts from now."""
        at, now = self._seen.get(key), self._clock()
        if at is None or at < now - self._lifetime:
            return False
        self._seen[key] = now
        self._changed[key] = now
        return True

    async def remember(self, key: str) -> None:
        """Returns when it would be known after a restart."""
        now = self._clock()
        self._seen[key] = now
        self._changed[key] = now
        if self._written is None:
            self._written = asyncio.get_running_loop().create_future()
        written = self._written
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_behind())
        await asyncio.shield(written)

    async def forget_old(self) -> None:
        """Housekeeping: to be called now and then."""
        oldest = self._clock() - self._lifetime
        for key in [key for key, at in self._seen.items() if at < oldest]:
            del self._seen[key]
        await asyncio.to_thread(self._store, self._taken(), oldest)

    async def close(self) -> None:
        if self._writer is not None:
            await self._writer
        await asyncio.to_thread(self._store, self._taken(), None)
        with self._lock:
            self._db.close()

    async def _write_behind(self) -> None:
        while self._written is not None:
            written, self._written = self._written, None
            try:
                await asyncio.to_thread(self._store, self._taken(), None)
            except Exception as error:
                written.set_exception(error)
            else:
                written.set_result(None)

    def _taken(self) -> dict[str, float]:
        taken, self._changed = self._changed, {}
        return taken

    def _store(self, changed: dict[str, float], oldest: float | None) -> None:
        with self._lock:
            self._db.execute("begin")
            self._db.executemany(
                "insert into seen values (?, ?) on conflict (key) do update set at = excluded.at",
                changed.items(),
            )
            if oldest is not None:
                self._db.execute("delete from seen where at < ?", (oldest,))
            self._db.execute("commit")


# Winnowing: of equal announcements the first goes on, the others do not.
