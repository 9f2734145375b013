"""One at a time: however many ask for what is being made, it is made once.

    document = await flight.run(key, lambda: read_from_database(hive))

Those who come while it is being made wait for the same result, or the same error. One who gives
up waiting disturbs nobody; when all have, the work is given up too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SingleFlight(Generic[T]):
    """Work under way, by key."""

    __slots__ = ("_flights",)

    def __init__(self) -> None:
        self._flights: dict[str, _Flight[T]] = {}

    async def run(self, key: str, work: Callable[[], Awaitable[T]]) -> T:
        flight = self._flights.get(key)
        if flight is None:
            flight = self._flights[key] = _Flight(asyncio.ensure_future(_run(work)))
            flight.task.add_done_callback(lambda task: self._landed(key, task))
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.task.done():
                # Whoever comes next starts anew, not with what is being given up.
                self._flights.pop(key, None)
                flight.task.cancel()

    def _landed(self, key: str, task: asyncio.Future[Any]) -> None:
        flight = self._flights.get(key)
        if flight is not None and flight.task is task:
            del self._flights[key]
        if not task.cancelled():
            task.exception()  # if all who waited have gone, nobody else looks at it


class _Flight(Generic[T]):
    __slots__ = ("task", "waiting")

    def __init__(self, task: asyncio.Future[T]) -> None:
        self.task = task
        self.waiting = 0


async def _run(work: Callable[[], Awaitable[T]]) -> T:
    return await work()
