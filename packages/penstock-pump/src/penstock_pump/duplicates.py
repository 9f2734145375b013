"""Suppression of duplicate posts.

Two posts are duplicates when they have the same checksum and, by the `basis`, the same path, the
same name, or nothing else in common; `path_only` and `name_only` do not compare checksums. While
the first of them is handled, its duplicates wait: if it succeeds they are suppressed, if it fails
the next one is handled. So no duplicate passes and no file is lost, wherever a process is killed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Literal

from penstock_pump.posts import checksums
from penstock_pump.posts.post import FileEvent, Post
from penstock_pump.sqlite_store import SqliteStore

DuplicateBasis = Literal["path", "name", "data", "path_only", "name_only"]
EXPIRE_SECONDS: Final = 300.0
_SCHEMA: Final = """
create table if not exists seen (key text primary key, at real not null) without rowid;
"""


class DuplicateFilter:
    def __init__(self, fingerprints: FingerprintStore, basis: DuplicateBasis = "path") -> None:
        self.fingerprints = fingerprints
        self._basis = basis
        self._pending: dict[str, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def first(self, post: Post) -> AsyncIterator[bool]:
        """Whether it is no duplicate; it is stored when the block ends without an error."""
        key = fingerprint(post, self._basis)
        while (pending := self._pending.get(key)) is not None:
            await asyncio.shield(pending)
        if self.fingerprints.is_known(key):
            yield False
            return
        done = self._pending[key] = asyncio.get_running_loop().create_future()
        try:
            yield True
            await self.fingerprints.add(key)
        finally:
            del self._pending[key]
            done.set_result(None)

    async def expire_regularly(self) -> None:
        while True:
            await asyncio.sleep(EXPIRE_SECONDS)
            await self.fingerprints.expire_old()


def fingerprint(post: Post, basis: DuplicateBasis) -> str:
    """The key that duplicates have in common. Parts of a file are no duplicates of each other."""
    subject = {"path": post.relpath.lstrip("/"), "name": post.name}.get(basis[:4], "")
    if basis.endswith("_only") and post.event is FileEvent.MODIFY:
        return f"{basis} {subject}*{post.parts.number if post.parts is not None else 0}"
    if post.event is not FileEvent.MODIFY:
        return f"{post.sum} {subject}*{post.relpath.lstrip('/')}"
    parts = post.parts
    by_name = post.sum is not None and post.sum.method == checksums.NAME
    if by_name and (parts is None or parts.single):
        return f"{post.sum} {subject}"
    return f"{post.sum} {subject}*{parts}"


class FingerprintStore:
    """Fingerprints for `lifetime` seconds since they were last seen, in memory and on disk.

    Lookups are in memory. Changes are written in batches; `add` returns when its change is on disk.
    Processes must not share a store.
    """

    def __init__(self, path: Path, lifetime: float, clock: Callable[[], float]) -> None:
        self._lifetime = lifetime
        self._clock = clock
        self._store = SqliteStore(path, _SCHEMA)
        with self._store.transaction() as db:
            db.execute("delete from seen where at < ?", (clock() - lifetime,))
            self._seen: dict[str, float] = dict(db.execute("select key, at from seen"))
        self._changed: dict[str, float] = {}
        self._written: asyncio.Future[None] | None = None
        self._writer: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._seen)

    def is_known(self, key: str) -> bool:
        """Whether it was seen within the lifetime, which then starts again."""
        at, now = self._seen.get(key), self._clock()
        if at is None or at < now - self._lifetime:
            return False
        self._seen[key] = self._changed[key] = now
        return True

    async def add(self, key: str) -> None:
        self._seen[key] = self._changed[key] = self._clock()
        if self._written is None:
            self._written = asyncio.get_running_loop().create_future()
        written = self._written
        if self._writer is None or self._writer.done():
            self._writer = asyncio.create_task(self._write_batches())
        await asyncio.shield(written)

    async def expire_old(self) -> None:
        oldest = self._clock() - self._lifetime
        for key in [key for key, at in self._seen.items() if at < oldest]:
            del self._seen[key]
        await asyncio.to_thread(self._write, self._take_changes(), oldest)

    async def close(self) -> None:
        if self._writer is not None:
            await self._writer
        await asyncio.to_thread(self._write, self._take_changes(), None)
        self._store.close()

    async def _write_batches(self) -> None:
        while self._written is not None:
            written, self._written = self._written, None
            try:
                await asyncio.to_thread(self._write, self._take_changes(), None)
            except Exception as error:
                written.set_exception(error)
            else:
                written.set_result(None)

    def _take_changes(self) -> dict[str, float]:
        changed, self._changed = self._changed, {}
        return changed

    def _write(self, changed: dict[str, float], oldest: float | None) -> None:
        with self._store.transaction() as db:
            db.executemany(
                "insert into seen values (?, ?) on conflict (key) do update set at = excluded.at",
                changed.items(),
            )
            if oldest is not None:
                db.execute("delete from seen where at < ?", (oldest,))
