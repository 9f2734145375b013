"""Order where it matters: what is about the same file happens one after the other.

Many files are worked on at a time, but a removal must not overtake the file it removes. Whoever
enters waits for all who entered with one of the same names before, in the order they came.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Self


class Lanes:
    def __init__(self) -> None:
        self._last: dict[str, asyncio.Future[None]] = {}

    def enter(self, names: Iterable[str]) -> Turn:
        """To be called in the order that is to be kept; then wait by `async with`."""
        names = tuple(dict.fromkeys(names))
        before = [self._last[name] for name in names if name in self._last]
        done = asyncio.get_running_loop().create_future()
        for name in names:
            self._last[name] = done
        return Turn(self, names, before, done)

    def leave(self, names: Iterable[str], done: asyncio.Future[None]) -> None:
        for name in names:
            if self._last.get(name) is done:
                del self._last[name]
        if not done.done():
            done.set_result(None)


class Turn:
    __slots__ = ("_before", "_done", "_lanes", "_names")

    def __init__(
        self,
        lanes: Lanes,
        names: tuple[str, ...],
        before: list[asyncio.Future[None]],
        done: asyncio.Future[None],
    ) -> None:
        self._lanes = lanes
        self._names = names
        self._before = before
        self._done = done

    async def __aenter__(self) -> Self:
        try:
            for each in self._before:
                await asyncio.shield(each)
        except BaseException:
            self._lanes.leave(self._names, self._done)
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._lanes.leave(self._names, self._done)
