"""What was published and is not yet known to be safe, and who waits for that.

A broker counts publishes from one, and confirms a number or all up to one. A message it could not
route comes back first, and is confirmed all the same; which of several it was is told by its route,
and by its properties where routes are equal.
"""

from __future__ import annotations

import asyncio
from collections import deque

from penstock.core.errors import NoRoute, PenstockError, QueueFull
from penstock.wire.amqp091.messages import Content


class _Published:
    __slots__ = ("future", "header", "returned", "route")

    def __init__(self, route: bytes, header: bytes, future: asyncio.Future[None] | None) -> None:
        self.route = route
        self.header = header
        self.future = future
        self.returned = False


class Confirms:
    """Of one channel."""

    __slots__ = ("_failure", "_last", "_open", "_waiting")

    def __init__(self) -> None:
        self._last = 0
        self._open: dict[int, _Published | None] = {}  # by number, in order
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._failure: PenstockError | None = None  # of what nobody waits for by itself

    @property
    def open(self) -> int:
        """How many there are."""
        return len(self._open)

    def add(self, route: bytes, header: bytes, *, mandatory: bool) -> None:
        """Published; whoever cares asks `room`."""
        self._last += 1
        self._open[self._last] = _Published(route, header, None) if mandatory else None

    def add_awaited(self, route: bytes, header: bytes) -> asyncio.Future[None]:
        """Published; the future is done when it is safe."""
        self._last += 1
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open[self._last] = _Published(route, header, future)
        return future

    async def room(self, most: int) -> None:
        """Returns when no more than so many are open; raises what became of one meanwhile."""
        if len(self._open) > most and self._failure is None:
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((most, future))
            await future
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def settle(self, tag: int, *, multiple: bool, refused: bool) -> None:
        if multiple:
            settled = []
            for each in self._open:
                if each > tag:
                    break
                settled.append(each)
            for each in settled:
                self._end(self._open.pop(each), refused)
        elif tag in self._open:
            self._end(self._open.pop(tag), refused)
        self._release()

    def came_back(self, content: Content) -> bool:
        """Whether it was one of those."""
        alike = [
            each
            for each in self._open.values()
            if each is not None and not each.returned and each.route == content.route
        ]
        if not alike:
            return False
        same = (each for each in alike if each.header == content.header)
        next(same, alike[0]).returned = True
        return True

    def fail(self, error: PenstockError) -> None:
        """No more will be heard of them."""
        published, self._open = list(self._open.values()), {}
        waiting, self._waiting = self._waiting, deque()
        for each in published:
            if each is not None and each.future is not None:
                fail(each.future, error)
        for _, future in waiting:
            fail(future, error)

    def _end(self, published: _Published | None, refused: bool) -> None:
        problem: PenstockError | None = None
        if refused:
            problem = QueueFull("the broker refused a message: its queue is full")
        elif published is not None and published.returned:
            name = published.route[1 : 1 + published.route[0]].decode("utf-8", "replace")
            problem = NoRoute(f"no queue takes what is sent to exchange {name!r}")
        future = None if published is None else published.future
        if future is None:
            self._failure = self._failure or problem
        elif problem is not None:
            fail(future, problem)
        elif not future.done():
            future.set_result(None)

    def _release(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, deque()
        for most, future in waiting:
            if len(self._open) > most and self._failure is None:
                self._waiting.append((most, future))
            elif not future.done():
                future.set_result(None)


def fail(future: asyncio.Future[None], error: PenstockError) -> None:
    """Told to whoever waits; and no word on the console if nobody does any more."""
    if not future.done():
        future.set_exception(error)
        future.exception()
