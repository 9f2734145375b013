"""The cache in memcached, with a copy in this process for when it is away.

What memcached says holds, a miss too. When it does not answer, reads are answered from what this
process has written or read itself and may still serve, and it is left alone for a moment, so that
a dead server costs nothing per read. Nothing is raised; everything is counted.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Final, Self

from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.store.cache.contract import TTL_SECONDS, Figures
from penstock.store.cache.line import Line
from penstock.store.cache.memory import Shelf
from penstock.store.cache.replies import GONE, STORED, Reply, delete, get, set_

log = get_logger(__name__)

PORT: Final = 11211
#: A cache that takes longer is slower than what it saves.
ANSWER_SECONDS: Final = 0.5
#: How long a server that failed is left alone.
REST_SECONDS: Final = 1.0
#: What one request asks for: the server reads a command line of some thousand keys at most.
_KEYS_AT_ONCE: Final = 100


class MemcachedCache:
    """One server. Used in one event loop."""

    __slots__ = (
        "_address",
        "_clock",
        "_connecting",
        "_copy",
        "_line",
        "_rest_until",
        "_seconds",
        "figures",
    )

    def __init__(
        self,
        host: str,
        port: int = PORT,
        *,
        copy: Shelf | None = None,
        seconds: float = ANSWER_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = (host, port)
        self._copy = copy or Shelf()
        self._seconds = seconds
        self._clock = clock
        self._line: Line | None = None
        self._connecting = asyncio.Lock()
        self._rest_until = float("-inf")
        self.figures = Figures()

    async def get(self, key: str) -> bytes | None:
        return (await self.get_many((key,))).get(key)

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        wanted = list(dict.fromkeys(keys))
        found: dict[str, bytes] = {}
        for start in range(0, len(wanted), _KEYS_AT_ONCE):
            some = wanted[start : start + _KEYS_AT_ONCE]
            reply = await self._ask(get(some))
            if isinstance(reply, dict):
                self._remember(some, reply)
                found |= reply
            else:
                found |= self._recall(some)
        self.figures.hits += len(found)
        self.figures.misses += len(wanted) - len(found)
        return found

    def kept(self, key: str) -> bytes | None:
        return self._copy.get(key)

    async def set(self, key: str, value: bytes, ttl: float = TTL_SECONDS) -> None:
        self._copy.set(key, value, ttl)
        self._expect(await self._ask(set_(key, value, ttl)), STORED)

    async def set_many(self, values: Mapping[str, bytes], ttl: float = TTL_SECONDS) -> None:
        await asyncio.gather(*(self.set(key, value, ttl) for key, value in values.items()))

    async def delete(self, key: str) -> None:
        self._copy.delete(key)
        self._expect(await self._ask(delete(key)), *GONE)

    async def close(self) -> None:
        if self._line is not None:
            self._line.close()
        self._copy.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _remember(self, asked: list[str], found: Mapping[str, bytes]) -> None:
        for key in asked:
            value = found.get(key)
            if value is None:
                self._copy.delete(key)
            else:
                # How long it has left there is not said; no longer than a new one has.
                self._copy.set(key, value, TTL_SECONDS)

    def _recall(self, keys: list[str]) -> dict[str, bytes]:
        found = {key: value for key in keys if (value := self._copy.get(key)) is not None}
        self.figures.fallbacks += len(found)
        return found

    def _expect(self, reply: Reply | None, *wanted: bytes) -> None:
        """A refusal (too large, out of memory) is a failure, but no reason to leave it alone."""
        if reply is not None and reply not in wanted:
            self.figures.failures += 1
            log.warning("memcached refused", reply=str(reply)[:200])

    async def _ask(self, request: bytes) -> Reply | None:
        """The reply, or None from a server that is away."""
        if self._clock() < self._rest_until:
            return None
        try:
            return await (await self._connected()).ask(request, self._seconds)
        except (OSError, PenstockError) as error:  # a TimeoutError is an OSError
            self.figures.failures += 1
            self._rest_until = self._clock() + REST_SECONDS
            log.warning("memcached is away", server=self._address, reason=str(error) or "no answer")
            return None

    async def _connected(self) -> Line:
        async with self._connecting:
            if self._line is None or not self._line.open:
                host, port = self._address
                loop = asyncio.get_running_loop()
                async with asyncio.timeout(self._seconds):
                    _, self._line = await loop.create_connection(Line, host, port)
            return self._line
