"""Where received publications wait to be read; and how many have been.

A broker sends so many and waits to hear that they were read, so nothing piles up in a program that
is slow: what it does not read waits at the broker. A publication was read when its reader asks for
the next one, or leaves; one that went to several inboxes, when each of their readers has. `Reading`
counts for one connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from penstock.client.errors import FabricClosed
from penstock.core.errors import PenstockError

T = TypeVar("T")

#: The broker is told at the latest after so many; and when nothing is left to read.
OFTEN: Final = 100


class Reading:
    """What one connection brought and how far it has been read."""

    __slots__ = ("_confirm", "_done", "_entries", "_told")

    def __init__(self, confirm: Callable[[int], None]) -> None:
        self._confirm = confirm
        self._entries: deque[Entry] = deque()
        self._done = 0  # read, and all before it
        self._told = 0

    def begin(self, receipt: int, readers: int) -> Entry:
        entry = Entry(self, receipt, readers)
        self._entries.append(entry)
        return entry

    def advance(self) -> None:
        entries = self._entries
        while entries and not entries[0].left:
            self._done = entries.popleft().receipt
        if not entries or self._done - self._told >= OFTEN:
            self.tell()

    def tell(self) -> None:
        if self._done > self._told:
            self._told = self._done
            self._confirm(self._done)


class Entry:
    __slots__ = ("_reading", "left", "receipt")

    def __init__(self, reading: Reading, receipt: int, readers: int) -> None:
        self._reading = reading
        self.receipt = receipt
        self.left = readers  #: inboxes that still hold it

    def read(self) -> None:
        self.left -= 1
        if not self.left:
            self._reading.advance()


class Inbox(Generic[T]):
    """Loop over it, or `receive()` one at a time."""

    def __init__(self, left: Callable[[Inbox[T]], None] | None = None) -> None:
        self._left = left
        self._waiting: deque[tuple[T, Entry]] = deque()
        self._in_hand: Entry | None = None
        self._news = asyncio.Event()
        self._failure: PenstockError | None = None

    def put(self, received: T, entry: Entry) -> None:
        self._waiting.append((received, entry))
        self._news.set()

    def fail(self, error: PenstockError) -> None:
        """There will be no more; what waits can still be read."""
        self._failure = error
        self._news.set()

    def __len__(self) -> int:
        return len(self._waiting)

    def drop(self) -> None:
        """What was given out last has not been read."""
        self._in_hand = None

    def finish(self) -> None:
        """What was given out last has been read."""
        entry, self._in_hand = self._in_hand, None
        if entry is not None:
            entry.read()

    async def receive(self) -> T:
        self.finish()
        while not self._waiting:
            if self._failure is not None:
                raise self._failure
            self._news.clear()
            await self._news.wait()
        received, self._in_hand = self._waiting.popleft()
        return received

    def close(self) -> None:
        """What it would have got goes where it went before; what waits here is let go."""
        self.finish()
        if self._left is not None:
            self._left(self)
        while self._waiting:
            self._waiting.popleft()[1].read()
        self.fail(FabricClosed("the inbox is closed"))

    def __aiter__(self) -> Inbox[T]:
        return self

    async def __anext__(self) -> T:
        try:
            return await self.receive()
        except FabricClosed:
            raise StopAsyncIteration from None
