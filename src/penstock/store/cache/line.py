"""One connection to memcached: requests are sent as they come, replies matched in order.

Nobody waits for another's reply before sending. One who gives up waiting leaves a gap that the
reply falls into, so the rest stay matched; a connection that is late or breaks the protocol is
ended, and everyone who waits on it is told.
"""

from __future__ import annotations

import asyncio
from collections import deque

from penstock.core.errors import PenstockError, ProtocolError
from penstock.store.cache.replies import Replies, Reply


class Line(asyncio.Protocol):
    """The client's end."""

    def __init__(self) -> None:
        self._replies = Replies()
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
