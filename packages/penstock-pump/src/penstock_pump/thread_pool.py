"""Blocking work in threads that is waited for even when the caller is cancelled.

A thread cannot be stopped. One that still writes to a file which its owner has closed would write
to whatever file gets that descriptor next, so the owner must wait for the thread.
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
    """A task that awaits it is cancelled only when the result is there."""

    def cancel(self, msg: Any | None = None) -> bool:
        return False


async def run_to_completion(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    running = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await asyncio.wait((running,))
        raise


@dataclass(slots=True)
class _Item:
    future: UncancellableFuture[Any]
    function: Callable[[], Any]
    result: Any = None
    error: BaseException | None = None


class BatchThreadPool:
    """For short calls by the thousand: one thread runs all calls of one pass of the event loop and
    returns their results together, so neither a thread nor the loop wakes up for each. Threads
    start when needed; `close` waits for submitted calls."""

    def __init__(self, count: int = THREADS) -> None:
        self._work: SimpleQueue[list[_Item] | None] = SimpleQueue()
        self._submitted: list[_Item] = []  #: in this pass
        self._count = count
        self._threads: list[Thread] = []

    def submit(self, function: Callable[[], T]) -> UncancellableFuture[T]:
        loop = asyncio.get_running_loop()
        future: UncancellableFuture[T] = UncancellableFuture(loop=loop)
        if not self._submitted:
            loop.call_soon(self._dispatch, loop)
        self._submitted.append(_Item(future, function))
        return future

    async def close(self) -> None:
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)

    def _dispatch(self, loop: asyncio.AbstractEventLoop) -> None:
        if len(self._threads) < self._count:
            self._threads.append(Thread(target=self._run, args=(loop,), daemon=True))
            self._threads[-1].start()
        submitted, self._submitted = self._submitted, []
        self._work.put(submitted)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while (items := self._work.get()) is not None:
            for item in items:
                try:
                    item.result = item.function()
                except BaseException as raised:
                    item.error = raised
            loop.call_soon_threadsafe(_set_results, items)


def _set_results(items: list[_Item]) -> None:
    for item in items:
        if item.error is None:
            item.future.set_result(item.result)
        else:
            item.future.set_exception(item.error)
