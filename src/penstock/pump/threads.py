"""Blocking work in threads, waited for even when whoever wanted it is cancelled.

A thread cannot be stopped. One that still writes to a file which its owner has closed would write
to whatever has that number next, so its owner must not go on before the thread is done.

`Hands` are for work that is short and comes by the thousand: results return to the event loop many
at a time, where a thread of asyncio's own would wake it for each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

HANDS: Final = 4


async def to_the_end(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    working = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    return await _waited(working)


class Hands:
    """A few threads of one event loop: begun with the first work, ended by `close`, when what is
    begun is done."""

    def __init__(self, count: int = HANDS) -> None:
        self._work: SimpleQueue[tuple[asyncio.Future[Any], Callable[[], Any]] | None] = (
            SimpleQueue()
        )
        self._done: list[tuple[asyncio.Future[Any], Any, BaseException | None]] = []
        self._lock = Lock()  #: of what is done: whoever finds it empty wakes the loop
        self._count = count
        self._threads: list[Thread] = []

    async def do(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        while len(self._threads) < self._count:
            self._threads.append(Thread(target=self._toil, args=(loop,), daemon=True))
            self._threads[-1].start()
        working: asyncio.Future[T] = loop.create_future()
        self._work.put((working, lambda: function(*args, **kwargs)))
        return await _waited(working)

    async def close(self) -> None:
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _toil(self, loop: asyncio.AbstractEventLoop) -> None:
        while (item := self._work.get()) is not None:
            working, function = item
            try:
                found, error = function(), None
            except BaseException as raised:
                found, error = None, raised
            with self._lock:
                waking = not self._done
                self._done.append((working, found, error))
            if waking:
                loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            done, self._done = self._done, []
        for working, found, error in done:
            if error is None:
                working.set_result(found)
            else:
                working.set_exception(error)


async def _waited(working: asyncio.Future[T]) -> T:
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait((working,))
        raise
