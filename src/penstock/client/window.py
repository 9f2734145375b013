"""How much may be under way at a time: so many messages, so many bytes, first come first served."""

from __future__ import annotations

import asyncio
from collections import deque


class Window:
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
