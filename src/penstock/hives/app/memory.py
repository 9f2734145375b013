"""What was found out lately, remembered for a minute: never a stampede on PostgreSQL.

However many ask for what is not remembered, it is made once. Should making it fail while an older
one is still at hand, that one is served. While the database is away it is tried once in a while,
and nobody else waits for it.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar, cast

from penstock.store import StoreUnavailable
from penstock.store.cache import SingleFlight
from penstock.store.errors import passing

T = TypeVar("T")

FRESH_SECONDS: Final = 60.0
#: How old an answer may be while no newer one can be made.
OLDEST_SECONDS: Final = 600.0
REMEMBERED: Final = 10_000
#: Between two tries of a database that was away.
PAUSE_SECONDS: Final = 2.0


class Memory:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._flight: SingleFlight[Any] = SingleFlight()
        self._held: OrderedDict[str, tuple[float, Any]] = OrderedDict()
        self._away_until = float("-inf")

    async def get(self, key: str, make: Callable[[], Awaitable[T]]) -> T:
        since, held = self._held.get(key, (-OLDEST_SECONDS, None))
        age = self._clock() - since
        usable = key in self._held and age < OLDEST_SECONDS
        if usable and (age < FRESH_SECONDS or self._clock() < self._away_until):
            return cast(T, held)
        if self._clock() < self._away_until:
            raise StoreUnavailable("the database was away a moment ago")

        async def made() -> T:
            value = await make()
            self._held[key] = (self._clock(), value)
            self._held.move_to_end(key)
            if len(self._held) > REMEMBERED:
                self._held.popitem(last=False)
            return value

        try:
            return cast(T, await self._flight.run(key, made))
        except Exception as error:
            if isinstance(error, StoreUnavailable):
                self._away_until = self._clock() + PAUSE_SECONDS
            if usable and passing(error):
                return cast(T, held)
            raise
