"""A number of processes, and which of them does what.

A piece of work goes to the process that has least to do. While work is known to be short a process
is given several pieces at once; when one of them turns out to be long, what waits behind it is
asked for again. A process that dies fails the piece it was at; what waited there goes elsewhere.
After so many pieces a process is replaced by a new one: memory that leaks goes with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.core.logs import get_logger
from penstock.jobs.pool.parcels import ASK, BACK, DO, DONE, READY, TOLD
from penstock.jobs.pool.process import PoolProcess

log = get_logger(__name__)

#: How much one process is given ahead.
_AHEAD: Final = 64
#: Longer than that is long: what waits behind it is looked for another place.
_LONG_SECONDS: Final = 0.05
_AGAIN_SECONDS: Final = 1.0


@dataclass(slots=True, eq=False)
class Piece:
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


class Pool:
    def __init__(self, size: int, *, most: int | None = None, master: str = "") -> None:
        """`most` pieces a process does before another takes its place; with a `master`, processes
        have a Spark session and functions get it first."""
        self._size = size
        self._most = most
        self._master = master
        self._numbers = 0
        self._processes: dict[PoolProcess, dict[int, Piece]] = {}  # in the order they are done
        self._waiting: dict[int, Piece] = {}  # for a process, in the order they are placed
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

    def begin(self, piece: Piece) -> None:
        self._numbers += 1
        piece.number = self._numbers
        if not self._processes:
            self._fill()
        self._place(piece)
        if self._look is None:
            loop = asyncio.get_running_loop()
            self._look = loop.call_later(_LONG_SECONDS, self._look_around, {})

    def withdraw(self, piece: Piece) -> bool:
        """Do not begin it, if no process has it; whether that was so."""
        return self._waiting.pop(piece.number, None) is not None

    def underway(self, piece: Piece) -> bool:
        """Whether a process is at it, as far as has been heard."""
        process = piece.place
        return process is not None and next(iter(self._processes[process]), 0) == piece.number

    def ask(self, piece: Piece) -> None:
        """To end by itself, by an exception."""
        if piece.place is not None:
            piece.place.order(ASK, piece.number)

    def end(self, piece: Piece, reason: str) -> None:
        """At once: its process is ended, if it has begun."""
        process = piece.place
        if process is None:
            if self.withdraw(piece):
                piece.lost(reason)
            return
        if not self.underway(piece):
            self._processes[process].pop(piece.number)  # whatever comes of it
            piece.lost(reason)
            return
        self._reasons[process] = reason
        process.end()

    # Placing.

    def _place(self, piece: Piece) -> None:
        process = None if self._waiting else self._least_busy()
        if process is None:
            self._waiting[piece.number] = piece
        else:
            self._give(piece, process)

    def _give(self, piece: Piece, process: PoolProcess) -> None:
        piece.place = process
        process.begun += 1
        self._processes[process][piece.number] = piece
        work = (piece.function, piece.arguments, piece.keywords, piece.plain, piece.own)
        process.send((DO, piece.number, *work))

    def _least_busy(self) -> PoolProcess | None:
        best, least = None, _AHEAD
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

    def _next(self) -> Piece:
        return self._waiting.pop(next(iter(self._waiting)))

    def _put_back(self, pieces: list[Piece]) -> None:
        """To the front, in their order."""
        for piece in pieces:
            piece.place = None
        self._waiting = {piece.number: piece for piece in pieces} | self._waiting

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
                        process.order(BACK)
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
        elif verb == TOLD:
            if piece := pieces.get(number):
                piece.told(item[2], item[3])
            return
        elif verb == BACK:
            back = [piece for each in item[2] if (piece := pieces.pop(each, None))]
            process.begun -= len(back)
            # One that was slow to begin gives back all: there is nothing then that takes long.
            process.long = process.long and bool(pieces)
            self._put_back(back)
        else:
            process.long = False
            if piece := pieces.pop(number, None):
                piece.place = None
                if verb == DONE:
                    piece.done(item[2], item[3])
                else:
                    piece.failed(item[2], item[3], item[4])
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
            asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._fill)
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
