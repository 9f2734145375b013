"""Which announcement is the first of its kind.

Two are of a kind when they have the same sum and, by the `basis`, the same path, the same name, or
nothing else. While the first is being dealt with, the others of its kind wait: if it succeeds they
are duplicates, and if it fails the next of them is the first. So a duplicate is never let through
and the last of its kind never lost, whatever dies in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, Literal

from penstock.pump.posts import sums
from penstock.pump.posts.post import Event, Post
from penstock.pump.winnowing.fingerprints import Fingerprints

Basis = Literal["path", "name", "data"]
#: How often what is too old is forgotten.
HOUSEKEEPING_SECONDS: Final = 300.0


class Suppression:
    def __init__(self, fingerprints: Fingerprints, basis: Basis = "path") -> None:
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
            await asyncio.sleep(HOUSEKEEPING_SECONDS)
            await self.fingerprints.forget_old()


def fingerprint(post: Post, basis: Basis) -> str:
    """A kind, as a text. Parts of a file are each of their own kind."""
    what = {"path": post.relpath.lstrip("/"), "name": post.name, "data": ""}[basis]
    if post.event is not Event.MODIFY:
        return f"{post.sum} {what}*{post.relpath.lstrip('/')}"
    parts = post.parts
    if post.sum is not None and post.sum.method == sums.NAME and (parts is None or parts.single):
        return f"{post.sum} {what}"
    return f"{post.sum} {what}*{parts}"
