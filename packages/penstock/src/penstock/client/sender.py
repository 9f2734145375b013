"""Senders: one address to send to, and the window of messages that wait for a confirm."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from types import TracebackType
from typing import Final, Protocol, Self

from penstock.client.message import Body, Headers
from penstock.core.units import MiB

#: Enough to keep a connection busy, and little enough to hold in memory.
WINDOW_MESSAGES: Final = 1000
WINDOW_BYTES: Final = 64 * MiB


class PublishFunction(Protocol):
    """Waits for space in the window and sends; the future is done when the broker has confirmed."""

    async def __call__(
        self, body: Body, headers: Headers | None, ttl: float | None, message_id: str | None
    ) -> asyncio.Future[None]: ...


class MessageSender:
    """One address to send to. The end of `async with` waits for the confirms of all messages."""

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
        """Returns when the broker has confirmed the message; raises if the broker refuses it.

        The message is sent again, with the same message id, after each lost connection until it is
        confirmed: at least once.
        """
        await (await self._post(body, headers, ttl, message_id))

    async def post(
        self,
        body: Body,
        *,
        headers: Headers | None = None,
        ttl: float | None = None,
        message_id: str | None = None,
    ) -> asyncio.Future[None]:
        """Returns when there is space in the window; the future is done at the confirm."""
        confirmed = await self._post(body, headers, ttl, message_id)
        self._posted.add(confirmed)
        confirmed.add_done_callback(self._settled)
        return confirmed

    async def flush(self) -> None:
        """Returns when all posted messages are confirmed; raises the first error."""
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


class InflightWindow:
    """Limits unconfirmed messages by number and bytes, first in, first out.

    A message larger than the window passes when no other is unconfirmed.
    """

    __slots__ = ("_bytes", "_max_bytes", "_max_messages", "_messages", "_waiting")

    def __init__(self, messages: int = WINDOW_MESSAGES, size: int = WINDOW_BYTES) -> None:
        self._max_messages = messages
        self._max_bytes = size
        self._messages = 0
        self._bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def admit(self, size: int, ready: Callable[[], Awaitable[None]]) -> asyncio.Future[None]:
        """Wait for space, then for `ready`. The future is for the confirm, and frees the space."""
        await self.enter(size)
        try:
            await ready()
        except BaseException:
            self.leave(size)
            raise
        confirmed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        confirmed.add_done_callback(partial(self._settled, size))
        return confirmed

    async def enter(self, size: int) -> None:
        if not self._waiting and self._fits(size):
            self._take(size)
            return
        admitted = asyncio.get_running_loop().create_future()
        self._waiting.append((size, admitted))
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():
                self.leave(size)  # admitted and cancelled in the same iteration of the loop
            else:
                self._waiting.remove((size, admitted))
                self._admit()
            raise

    def leave(self, size: int) -> None:
        self._messages -= 1
        self._bytes -= size
        self._admit()

    def _settled(self, size: int, confirmed: asyncio.Future[None]) -> None:
        self.leave(size)
        if not confirmed.cancelled():
            confirmed.exception()  # retrieved: asyncio does not warn if nothing awaits the future

    def _admit(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size, admitted = self._waiting.popleft()
            if admitted.cancelled():
                # The cancelled task is about to remove the entry, and has to find it.
                self._waiting.appendleft((size, admitted))
                return
            self._take(size)
            admitted.set_result(None)

    def _fits(self, size: int) -> bool:
        if self._messages == 0:
            return True
        return self._messages < self._max_messages and self._bytes + size <= self._max_bytes

    def _take(self, size: int) -> None:
        self._messages += 1
        self._bytes += size


def settle(confirmed: asyncio.Future[None], error: BaseException | None = None) -> None:
    """Complete the future of a message, unless its sender has cancelled it."""
    if confirmed.done():
        return
    if error is None:
        confirmed.set_result(None)
    else:
        confirmed.set_exception(error)
