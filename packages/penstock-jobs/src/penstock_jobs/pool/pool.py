"""A number of processes, and which of them does what.

A piece of work goes to the process that has least to do. While work is known to be short a process
is given several pieces at once; when one of them turns out to be long, what waits behind it is
asked for again. A process that dies fails the piece it was at; what waited there goes elsewhere.
After so many pieces a process is replaced by a new one: memory that leaks goes with it.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from penstock.core.logs import get_logger
from penstock_jobs.pool.messages import (
    DO,
    DONE,
    GIVE_BACK,
    INTERRUPT,
    PROGRESS,
    READY,
    PoolMessageReader,
    pack_messages,
)
from penstock_jobs.shells.reaper import reaper_command

log = get_logger(__name__)

#: How much one process is given ahead.
_MAX_QUEUED: Final = 64
#: Longer than that is long: what waits behind it is looked for another place.
_LONG_SECONDS: Final = 0.05
_RESTART_SECONDS: Final = 1.0


@dataclass(slots=True, eq=False)
class PoolTask:
    """Work, and whom to tell of it."""

    function: str
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]
    plain: bool  #: what it returns is to be JSON
    told: Callable[[float, float | None], None]
    done: Callable[[Any, float], None]  #: what it returned, and the seconds that took
    failed: Callable[[str, str, bool], None]  #: type, text, whether to try again
    lost: Callable[[str], None]  #: its process went, for this reason
    own: bool = True  #: it has to be its module's own, and not what that has from others
    number: int = 0
    place: PoolProcess | None = None


class ProcessPool:
    def __init__(self, size: int, *, most: int | None = None, master: str = "") -> None:
        """`most` pieces a process does before another takes its place; with a `master`, processes
        have a Spark session and functions get it first."""
        self._size = size
        self._most = most
        self._master = master
        self._numbers = 0
        self._processes: dict[PoolProcess, dict[int, PoolTask]] = {}  # in the order they are done
        self._waiting: dict[int, PoolTask] = {}  # for a process, in the order they are placed
        self._reasons: dict[PoolProcess, str] = {}  # why we ended it
        self._closing = False
        self._starting: set[asyncio.Task[None]] = set()
        self._first = asyncio.Event()
        self._look: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Returns when one process is ready. One that is not opened begins with the first piece."""
        self._fill()
        await self._first.wait()

    async def close(self) -> None:
        self._closing = True
        if self._look is not None:
            self._look.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        processes = list(self._processes)
        for process in processes:
            process.end()
        for process in processes:
            await process.ended()

    def begin(self, pool_task: PoolTask) -> None:
        self._numbers += 1
        pool_task.number = self._numbers
        if not self._processes:
            self._fill()
        self._place(pool_task)
        if self._look is None:
            loop = asyncio.get_running_loop()
            self._look = loop.call_later(_LONG_SECONDS, self._look_around, {})

    def withdraw(self, pool_task: PoolTask) -> bool:
        """Do not begin it, if no process has it; whether that was so."""
        return self._waiting.pop(pool_task.number, None) is not None

    def underway(self, pool_task: PoolTask) -> bool:
        """Whether a process is at it, as far as has been heard."""
        process = pool_task.place
        return process is not None and next(iter(self._processes[process]), 0) == pool_task.number

    def ask(self, pool_task: PoolTask) -> None:
        """To end by itself, by an exception."""
        if pool_task.place is not None:
            pool_task.place.order(INTERRUPT, pool_task.number)

    def end(self, pool_task: PoolTask, reason: str) -> None:
        """At once: its process is ended, if it has begun."""
        process = pool_task.place
        if process is None:
            if self.withdraw(pool_task):
                pool_task.lost(reason)
            return
        if not self.underway(pool_task):
            self._processes[process].pop(pool_task.number)  # whatever comes of it
            pool_task.lost(reason)
            return
        self._reasons[process] = reason
        process.end()

    # Placing.

    def _place(self, pool_task: PoolTask) -> None:
        process = None if self._waiting else self._least_busy()
        if process is None:
            self._waiting[pool_task.number] = pool_task
        else:
            self._give(pool_task, process)

    def _give(self, pool_task: PoolTask, process: PoolProcess) -> None:
        pool_task.place = process
        process.begun += 1
        self._processes[process][pool_task.number] = pool_task
        work = (
            pool_task.function,
            pool_task.arguments,
            pool_task.keywords,
            pool_task.plain,
            pool_task.own,
        )
        process.send((DO, pool_task.number, *work))

    def _least_busy(self) -> PoolProcess | None:
        best, least = None, _MAX_QUEUED
        for process, pieces in self._processes.items():
            if len(pieces) < least and self._takes(process):
                best, least = process, len(pieces)
        return best

    def _takes(self, process: PoolProcess) -> bool:
        return process.ready and not process.long and not self._worn(process)

    def _worn(self, process: PoolProcess) -> bool:
        return self._most is not None and process.begun >= self._most

    def _place_waiting(self) -> None:
        while self._waiting and (process := self._least_busy()) is not None:
            self._give(self._next(), process)

    def _next(self) -> PoolTask:
        return self._waiting.pop(next(iter(self._waiting)))

    def _put_back(self, pieces: list[PoolTask]) -> None:
        """To the front, in their order."""
        for pool_task in pieces:
            pool_task.place = None
        self._waiting = {pool_task.number: pool_task for pool_task in pieces} | self._waiting

    def _look_around(self, firsts: dict[PoolProcess, int]) -> None:
        """Every now and then: is one at the same piece as the last time, with others behind it?"""
        now: dict[PoolProcess, int] = {}
        busy = False
        for process, pieces in self._processes.items():
            if pieces:
                busy = True
                now[process] = first = next(iter(pieces))
                if firsts.get(process) == first:
                    process.long = True
                    if len(pieces) > 1:
                        process.order(GIVE_BACK)
        self._look = None
        if busy or self._waiting:
            loop = asyncio.get_running_loop()
            self._look = loop.call_later(_LONG_SECONDS, self._look_around, now)

    # What processes say.

    def _heard(self, process: PoolProcess, item: tuple[Any, ...]) -> None:
        verb, number = item[0], item[1]
        pieces = self._processes[process]
        if verb == READY:
            process.ready = True
            self._first.set()
        elif verb == PROGRESS:
            if pool_task := pieces.get(number):
                pool_task.told(item[2], item[3])
            return
        elif verb == GIVE_BACK:
            back = [pool_task for each in item[2] if (pool_task := pieces.pop(each, None))]
            process.begun -= len(back)
            # One that was slow to begin gives back all: there is nothing then that takes long.
            process.long = process.long and bool(pieces)
            self._put_back(back)
        else:
            process.long = False
            if pool_task := pieces.pop(number, None):
                pool_task.place = None
                if verb == DONE:
                    pool_task.done(item[2], item[3])
                else:
                    pool_task.failed(item[2], item[3], item[4])
        if self._worn(process) and not pieces:
            self._reasons[process] = "its process had done its share"
            process.end()
        self._place_waiting()

    def _gone(self, process: PoolProcess) -> None:
        pieces = list(self._processes.pop(process).values())
        reason = self._reasons.pop(process, "its process ended")
        self._start_task(process.ended())
        if self._closing:
            return
        if pieces:
            log.warning("a process of the pool ended", pid=process.pid, reason=reason)
            first, *rest = pieces
            self._put_back(rest)
            first.place = None
            first.lost(reason)
        if process.ready:
            self._fill()
        else:  # it could not even start, and the next may not either
            asyncio.get_running_loop().call_later(_RESTART_SECONDS, self._fill)
        self._place_waiting()

    def _fill(self) -> None:
        while len(self._processes) < self._size and not self._closing:
            process = PoolProcess(self._heard, self._gone)
            self._processes[process] = {}
            self._start_task(self._start(process))

    async def _start(self, process: PoolProcess) -> None:
        try:
            await process.start(self._master)
        except OSError as error:
            log.warning("a process of the pool cannot be started", reason=str(error))
            self._gone(process)

    def _start_task(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._starting.add(task)
        task.add_done_callback(self._starting.discard)


# One process of the pool as the worker sees it.


class PoolProcess(asyncio.Protocol):
    """Started by `start`, below a reaper: all it has started ends with it."""

    def __init__(
        self,
        heard: Callable[[PoolProcess, tuple[Any, ...]], None],
        gone: Callable[[PoolProcess], None],
    ) -> None:
        self.ready = False
        self.long = False  #: it is at something that takes long
        self.begun = 0  #: how many pieces of work it was given in its life
        self._heard = heard
        self._gone = gone
        self._message_reader = PoolMessageReader()
        self._transport: asyncio.Transport | None = None
        self._orders: asyncio.Transport | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._reaper: socket.socket | None = None  # closed, it ends the process
        self._out: list[tuple[Any, ...]] = []
        self._gathering = False  # something was written in this turn of the loop

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self, master: str = "") -> None:
        """Raises OSError where the system has no room for another process."""
        line, their_line = socket.socketpair()
        orders, their_orders = socket.socketpair()
        self._reaper, their_reaper = socket.socketpair()
        theirs = their_line.fileno(), their_orders.fileno()
        command = [sys.executable, "-m", "penstock_jobs.pool.child", *map(str, theirs), master]
        try:
            with their_line, their_orders, their_reaper:
                # Not asyncio's, which waits for processes in ways of its own: ours end with their
                # line.
                self._process = subprocess.Popen(  # noqa: ASYNC220
                    reaper_command(command, their_reaper.fileno(), *theirs),
                    stdin=subprocess.DEVNULL,
                    pass_fds=(their_reaper.fileno(), *theirs),
                    start_new_session=True,
                )
        except OSError:
            for ours in (line, orders, self._reaper):
                ours.close()
            raise
        loop = asyncio.get_running_loop()
        self._orders, _ = await loop.create_unix_connection(asyncio.Protocol, sock=orders)
        await loop.create_unix_connection(lambda: self, sock=line)

    def order(self, verb: str, number: int = 0) -> None:
        """Heard although it is at work."""
        if self._orders is not None and not self._orders.is_closing():
            self._orders.write(pack_messages([(verb, number)]))

    def send(self, item: tuple[Any, ...]) -> None:
        """Work: the first at once, for the process may have nothing else to do; what follows in
        this turn of the loop together."""
        if self._gathering:
            self._out.append(item)
            return
        self._gathering = True
        self._write([item])
        asyncio.get_running_loop().call_soon(self._flush)

    def end(self) -> None:
        """At once, with everything it has started."""
        if self._reaper is not None:
            self._reaper.close()

    async def ended(self) -> None:
        """Returns when there is nothing left of it."""
        for line in (self._transport, self._orders):
            if line is not None:
                line.close()
        if self._process is not None:
            await asyncio.to_thread(self._process.wait)

    def _flush(self) -> None:
        self._gathering = False
        if self._out:
            out, self._out = self._out, []
            self._write(out)

    def _write(self, items: list[tuple[Any, ...]]) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(pack_messages(items))

    # The line.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        for item in self._message_reader.feed(data):
            self._heard(self, item)

    def connection_lost(self, error: Exception | None) -> None:
        self.end()  # what it has left behind
        self._gone(self)
