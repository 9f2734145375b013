"""Work that concurrent callers share, and a cache that serves stale values on errors.

    document = await flight.run(key, lambda: read_from_database(hive))

Callers that arrive while the work runs wait for the same result, or the same error. The work is
cancelled when all of them have given up.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, TypeVar, cast

from penstock.core.retry import is_transient
from penstock_store.errors import StoreUnavailable

T = TypeVar("T")

FRESH_SECONDS: Final = 60.0
#: The age up to which a value is served while no newer one can be read.
STALE_SECONDS: Final = 600.0
MAX_ENTRIES: Final = 10_000
#: Between two attempts to read while the database is unavailable.
RETRY_SECONDS: Final = 2.0


class SingleFlight(Generic[T]):
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
                # The next caller starts new work, not the cancelled one.
                self._flights.pop(key, None)
                flight.task.cancel()

    def _landed(self, key: str, task: asyncio.Future[Any]) -> None:
        flight = self._flights.get(key)
        if flight is not None and flight.task is task:
            del self._flights[key]
        if not task.cancelled():
            task.exception()  # retrieved, in case that no caller waits any more


class _Flight(Generic[T]):
    __slots__ = ("task", "waiting")

    def __init__(self, task: asyncio.Future[T]) -> None:
        self.task = task
        self.waiting = 0


async def _run(work: Callable[[], Awaitable[T]]) -> T:
    return await work()


class StaleIfErrorCache:
    """Values by key for a minute. While the database is unavailable, older values are served and
    it is tried every two seconds only."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._flight: SingleFlight[Any] = SingleFlight()
        self._values: OrderedDict[str, tuple[float, Any]] = OrderedDict()
        self._unavailable_until = float("-inf")

    async def get(self, key: str, read: Callable[[], Awaitable[T]]) -> T:
        since, value = self._values.get(key, (-STALE_SECONDS, None))
        age = self._clock() - since
        usable = key in self._values and age < STALE_SECONDS
        if usable and (age < FRESH_SECONDS or self._clock() < self._unavailable_until):
            return cast(T, value)
        if self._clock() < self._unavailable_until:
            raise StoreUnavailable("the database was unavailable a moment ago")

        async def read_and_store() -> T:
            new = await read()
            self._values[key] = (self._clock(), new)
            self._values.move_to_end(key)
            if len(self._values) > MAX_ENTRIES:
                self._values.popitem(last=False)
            return new

        try:
            return cast(T, await self._flight.run(key, read_and_store))
        except Exception as error:
            if isinstance(error, StoreUnavailable):
                self._unavailable_until = self._clock() + RETRY_SECONDS
            if usable and is_transient(error):
                return cast(T, value)
            raise
