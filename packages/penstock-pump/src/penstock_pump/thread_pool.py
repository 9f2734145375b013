"""Blocking work in threads, waited for even when whoever wanted it is cancelled.

A thread cannot be stopped. One that still writes to a file which its owner has closed would write
to whatever has that number next, so its owner must not go on before the thread is done.

`BatchThreadPool` are for work that is short and comes by the thousand: all that is wanted in one
turn of the event loop is done by one thread, and its results return together, where a thread of
asyncio's own would be woken, and wake the loop, for each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

THREADS: Final = 4


class UncancellableFuture(asyncio.Future[T]):
    """Cannot be cancelled: whoever waits for it and is, learns so when it is done."""

    def cancel(self, msg: Any | None = None) -> bool:
        return False


async def run_to_completion(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    working = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait((working,))
        raise


@dataclass(slots=True)
class _Item:
    future: UncancellableFuture[Any]
    function: Callable[[], Any]
    found: Any = None
    error: BaseException | None = None


class BatchThreadPool:
    """A few threads of one event loop: begun with the first work, ended by `close`, when what is
    begun is done."""

    def __init__(self, count: int = THREADS) -> None:
        self._work: SimpleQueue[list[_Item] | None] = SimpleQueue()
        self._wanted: list[_Item] = []  #: in this turn
        self._count = count
        self._threads: list[Thread] = []

    def do(self, function: Callable[[], T]) -> UncancellableFuture[T]:
        """What comes of it, when it is awaited."""
        loop = asyncio.get_running_loop()
        working: UncancellableFuture[T] = UncancellableFuture(loop=loop)
        if not self._wanted:
            loop.call_soon(self._hand_out, loop)
        self._wanted.append(_Item(working, function))
        return working

    async def close(self) -> None:
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _hand_out(self, loop: asyncio.AbstractEventLoop) -> None:
        if len(self._threads) < self._count:
            self._threads.append(Thread(target=self._toil, args=(loop,), daemon=True))
            self._threads[-1].start()
        wanted, self._wanted = self._wanted, []
        self._work.put(wanted)

    def _toil(self, loop: asyncio.AbstractEventLoop) -> None:
        while (items := self._work.get()) is not None:
            for item in items:
                try:
                    item.found = item.function()
                except BaseException as raised:
                    item.error = raised
            loop.call_soon_threadsafe(_deliver, items)


def _deliver(items: list[_Item]) -> None:
    for item in items:
        if item.error is None:
            item.future.set_result(item.found)
        else:
            item.future.set_exception(item.error)
