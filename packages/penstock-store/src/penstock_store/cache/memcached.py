"""The cache in memcached, with a copy in this process for outages.

While memcached responds, its values and misses are used. While it does not, reads are served from
the values that this process has written or read, and memcached is not tried for a second, so that a
dead server costs nothing per read. Nothing is raised; errors are counted.

Why not a library: aiomcache 0.8 needs the same CPU (about 30 µs a read), but after a timed-out
request it returned misses for existing keys, in 3 of 3 reads.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
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
RESPONSE_TIMEOUT_SECONDS: Final = 0.5
#: Between two attempts after a failure.
RECONNECT_SECONDS: Final = 1.0
#: Of one request; memcached limits the length of a command line.
_MAX_KEYS: Final = 100


class MemcachedCache:
    """One server, for one event loop."""

    __slots__ = (
        "_address",
        "_clock",
        "_connecting",
        "_connection",
        "_copy",
        "_retry_at",
        "_timeout",
        "statistics",
    )

    def __init__(
        self,
        host: str,
        port: int = DEFAULT_PORT,
        *,
        copy: LruCache | None = None,
        timeout: float = RESPONSE_TIMEOUT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = (host, port)
        self._copy = copy or LruCache()
        self._timeout = timeout
        self._clock = clock
        self._connection: MemcachedConnection | None = None
        self._connecting = asyncio.Lock()
        self._retry_at = float("-inf")
        self.statistics = CacheStatistics()

    async def get(self, key: str) -> bytes | None:
        return (await self.get_many((key,))).get(key)

    async def get_many(self, keys: Iterable[str]) -> dict[str, bytes]:
        wanted = list(dict.fromkeys(keys))
        found: dict[str, bytes] = {}
        for start in range(0, len(wanted), _MAX_KEYS):
            chunk = wanted[start : start + _MAX_KEYS]
            reply = await self._request(encode_get(chunk))
            if isinstance(reply, dict):
                self._update_copy(chunk, reply)
                found |= reply
            else:
                found |= self._read_copy(chunk)
        self.statistics.hits += len(found)
        self.statistics.misses += len(wanted) - len(found)
        return found

    async def set(self, key: str, value: bytes, ttl: float = DEFAULT_TTL_SECONDS) -> None:
        self._copy.set(key, value, ttl)
        self._check(await self._request(encode_set(key, value, ttl)), STORED)

    async def set_many(self, values: Mapping[str, bytes], ttl: float = DEFAULT_TTL_SECONDS) -> None:
        await asyncio.gather(*(self.set(key, value, ttl) for key, value in values.items()))

    async def delete(self, key: str) -> None:
        self._copy.delete(key)
        self._check(await self._request(encode_delete(key)), *DELETED)

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._copy.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _update_copy(self, keys: list[str], found: Mapping[str, bytes]) -> None:
        for key in keys:
            value = found.get(key)
            if value is None:
                self._copy.delete(key)
            else:
                # The remaining lifetime is unknown; at most that of a new value.
                self._copy.set(key, value, DEFAULT_TTL_SECONDS)

    def _read_copy(self, keys: list[str]) -> dict[str, bytes]:
        found = {key: value for key in keys if (value := self._copy.get(key)) is not None}
        self.statistics.fallbacks += len(found)
        return found

    def _check(self, reply: Reply | None, *wanted: bytes) -> None:
        """An error reply (too large, out of memory) is a failure, but not an outage."""
        if reply is not None and reply not in wanted:
            self.statistics.failures += 1
            log.warning("memcached error reply", reply=str(reply)[:200])

    async def _request(self, request: bytes) -> Reply | None:
        """The reply; None while the server is unavailable."""
        if self._clock() < self._retry_at:
            return None
        try:
            return await (await self._connect()).request(request, self._timeout)
        except (OSError, PenstockError) as error:  # a TimeoutError is an OSError
            self.statistics.failures += 1
            self._retry_at = self._clock() + RECONNECT_SECONDS
            log.warning(
                "memcached unavailable", server=self._address, reason=str(error) or "timeout"
            )
            return None

    async def _connect(self) -> MemcachedConnection:
        async with self._connecting:
            if self._connection is None or not self._connection.open:
                host, port = self._address
                loop = asyncio.get_running_loop()
                async with asyncio.timeout(self._timeout):
                    _, self._connection = await loop.create_connection(
                        MemcachedConnection, host, port
                    )
            return self._connection


class MemcachedConnection(asyncio.Protocol):
    """A pipelined connection: requests are sent at once, replies are matched in order.

    After a timeout or a protocol error the connection is closed, and all waiting requests fail.
    """

    def __init__(self) -> None:
        self._replies = MemcachedReplyParser()
        self._waiting: deque[asyncio.Future[Reply]] = deque()
        self._transport: asyncio.Transport | None = None

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    async def request(self, request: bytes, seconds: float) -> Reply:
        if self._transport is None or not self.open:
            raise ConnectionResetError("the connection is closed")
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting.append(reply)
        self._transport.write(request)
        try:
            async with asyncio.timeout(seconds):
                return await reply
        except TimeoutError:
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
                    raise ProtocolError("not a memcached server: unexpected reply")
                waiter = self._waiting.popleft()
                if not waiter.done():
                    waiter.set_result(reply)
        except PenstockError as error:
            self._fail(error)
            self.close()

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(error or ConnectionResetError("memcached closed the connection"))

    def _fail(self, error: Exception) -> None:
        waiting, self._waiting = self._waiting, deque()
        for waiter in waiting:
            if not waiter.done():
                waiter.set_exception(error)
