"""The sending end that programs hold: one address, whichever protocol leads there."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Protocol, Self

from penstock.client.fabric import Headers
from penstock.client.message import Body


class PublishFunction(Protocol):
    """Takes a message when there is room for it; the future tells when it is safe."""

    async def __call__(
        self, body: Body, headers: Headers | None, ttl: float | None, message_id: str | None
    ) -> asyncio.Future[None]: ...


class ConfirmedSender:
    """Where to send; keeps `penstock.client.fabric.MessageSender`."""

    def __init__(self, post: PublishFunction) -> None:
        self._post = post
        self._posted: set[asyncio.Future[None]] = set()
        self._failure: BaseException | None = None

    async def send(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        ttl: float | None = None,
        message_id: str | None = None,
    ) -> None:
        await (await self._post(body, headers, ttl, message_id))

    async def post(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        ttl: float | None = None,
        message_id: str | None = None,
    ) -> asyncio.Future[None]:
        confirmed = await self._post(body, headers, ttl, message_id)
        self._posted.add(confirmed)
        confirmed.add_done_callback(self._settled)
        return confirmed

    async def flush(self) -> None:
        while self._posted:
            await asyncio.wait(self._posted)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.flush()

    def _settled(self, confirmed: asyncio.Future[None]) -> None:
        self._posted.discard(confirmed)
        if self._failure is None and not confirmed.cancelled():
            self._failure = confirmed.exception()


# How much may be under way at a time: so many messages, so many bytes, first come first served.


class InflightWindow:
    """A message larger than the window may pass when nothing else is under way."""

    __slots__ = ("_bytes", "_max_bytes", "_max_messages", "_messages", "_waiting")

    def __init__(self, messages: int, size: int) -> None:
        self._max_messages = messages
        self._max_bytes = size
        self._messages = 0
        self._bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def enter(self, size: int) -> None:
        if not self._waiting and self._fits(size):
            self._take(size)
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(size)  # our turn came, and we are not there to take it
            else:
                self._waiting.remove((size, turn))
                self._admit()
            raise

    def leave(self, size: int) -> None:
        self._messages -= 1
        self._bytes -= size
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size, turn = self._waiting.popleft()
            if turn.cancelled():
                # Whoever waited is about to remove the entry: leave it for them to find.
                self._waiting.appendleft((size, turn))
                return
            self._take(size)
            turn.set_result(None)

    def _fits(self, size: int) -> bool:
        if self._messages == 0:
            return True
        return self._messages < self._max_messages and self._bytes + size <= self._max_bytes

    def _take(self, size: int) -> None:
        self._messages += 1
        self._bytes += size
