"""The cache in memcached, with a copy in this process for when it is away.

What memcached says holds, a miss too. When it does not answer, reads are answered from what this
process has written or read itself and may still serve, and it is left alone for a moment, so that
a dead server costs nothing per read. Nothing is raised; everything is counted.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Final, Self

from penstock.core.errors import PenstockError, ProtocolError
from penstock.core.logs import get_logger
from penstock_store.cache.cache import DEFAULT_TTL_SECONDS, CacheStatistics
from penstock_store.cache.memcached_protocol import (
    DELETED,
    STORED,
    MemcachedReplyParser,
    Reply,
    encode_delete,
    encode_get,
    encode_set,
)
from penstock_store.cache.memory import LruCache

log = get_logger(__name__)

DEFAULT_PORT: Final = 11211
#: A cache that takes longer is slower than what it saves.
RESPONSE_TIMEOUT_SECONDS: Final = 0.5
#: How long a server that failed is left alone.
RECONNECT_SECONDS: Final = 1.0
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
        port: int = DEFAULT_PORT,
        *,
        copy: LruCache | None = None,
        seconds: float = RESPONSE_TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = (host, port)
        self._copy = copy or LruCache()
        self._seconds = seconds
        self._clock = clock
        self._line: MemcachedConnection | None = None
        self._connecting = asyncio.Lock()
        self._rest_until = float("-inf")
        self.figures = CacheStatistics()

    async def get(self, key: str) -> bytes | None:
        return (await self.get_many((key,))).get(key)

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        wanted = list(dict.fromkeys(keys))
        found: dict[str, bytes] = {}
        for start in range(0, len(wanted), _KEYS_AT_ONCE):
            some = wanted[start : start + _KEYS_AT_ONCE]
            reply = await self._ask(encode_get(some))
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

    async def set(self, key: str, value: bytes, ttl: float = DEFAULT_TTL_SECONDS) -> None:
        self._copy.set(key, value, ttl)
        self._expect(await self._ask(encode_set(key, value, ttl)), STORED)

    async def set_many(self, values: Mapping[str, bytes], ttl: float = DEFAULT_TTL_SECONDS) -> None:
        await asyncio.gather(*(self.set(key, value, ttl) for key, value in values.items()))

    async def delete(self, key: str) -> None:
        self._copy.delete(key)
        self._expect(await self._ask(encode_delete(key)), *DELETED)

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
                self._copy.set(key, value, DEFAULT_TTL_SECONDS)

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
            self._rest_until = self._clock() + RECONNECT_SECONDS
            log.warning("memcached is away", server=self._address, reason=str(error) or "no answer")
            return None

    async def _connected(self) -> MemcachedConnection:
        async with self._connecting:
            if self._line is None or not self._line.open:
                host, port = self._address
                loop = asyncio.get_running_loop()
                async with asyncio.timeout(self._seconds):
                    _, self._line = await loop.create_connection(MemcachedConnection, host, port)
            return self._line


# One connection to memcached: requests are sent as they come, replies matched in order.
#
# Nobody waits for another's reply before sending. One who gives up waiting leaves a gap that the
# reply falls into, so the rest stay matched; a connection that is late or breaks the protocol is
# ended, and everyone who waits on it is told.


class MemcachedConnection(asyncio.Protocol):
    """The client's end."""

    def __init__(self) -> None:
        self._replies = MemcachedReplyParser()
        self._waiting: deque[asyncio.Future[Reply]] = deque()
        self._transport: asyncio.Transport | None = None

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def ask(self, request: bytes, seconds: float) -> Reply:
        if self._transport is None or not self.open:
            raise ConnectionResetError("the connection is closed")
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append(reply)
        self._transport.write(request)
        try:
            async with asyncio.timeout(seconds):
                return await reply
        except TimeoutError:
            # Later replies would be as late: better a new connection, or none.
            self.close()
            raise

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        try:
            for reply in self._replies.feed(data):
                if not self._waiting:
                    raise ProtocolError("this is not memcached: it speaks unasked")
                waiter = self._waiting.popleft()
                if not waiter.done():
                    waiter.set_result(reply)
        except PenstockError as error:
            self._fail(error)
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(error or ConnectionResetError("memcached ended the connection"))

    def _fail(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            if not waiter.done():
                waiter.set_exception(error)
