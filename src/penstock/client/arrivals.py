"""What has arrived and is yet to be taken, or why nothing more will be.

It lies between the socket and the program. How much of it there may be, and what becomes of it when
a connection breaks, is the inlet's to say.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.core.errors import PenstockError

T = TypeVar("T")


class Arrivals(Generic[T]):
    def __init__(self) -> None:
        self._waiting: deque[T] = deque()
        self._change = asyncio.Event()  #: something arrived, or there was a failure
        self._failure: PenstockError | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, arrival: T) -> None:
        self._waiting.append(arrival)
        self._change.set()

    async def take(self) -> T:
        while not self._waiting:
            self.check()
            self._change.clear()
            await self._change.wait()
        return self._waiting.popleft()

    def fail(self, error: PenstockError) -> None:
        """The first failure stays."""
        self._failure = self._failure or error
        self._change.set()

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def keep(self, wanted: Callable[[T], bool]) -> None:
        """Drop the rest."""
        self._waiting = deque(filter(wanted, self._waiting))

    def clear(self) -> None:
        self._waiting.clear()
