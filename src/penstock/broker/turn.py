"""A turn: what one read (or one timer) sets in motion, finished together.

Logs are written before sockets are flushed, so whatever a peer hears has already reached the
operating system: a broker that is killed forgets nothing it has spoken of. Each touched socket is
written once, however many messages the turn brought it.

Where many peers say little each, a turn may take in several reads, if the loop says when a pass of
it is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from penstock.broker.log.committer import Committer

#: The most reads one turn takes in: sockets must not wait long, nor their output grow large.
READS: Final = 32


class Flushable(Protocol):
    def flush(self) -> None:
        """Write what has gathered to the socket."""


class Turn:
    __slots__ = ("_reads", "committer", "gathers", "loop", "touched")

    def __init__(self, loop: asyncio.AbstractEventLoop, committer: Committer) -> None:
        self.loop = loop
        self.committer = committer
        #: Terminals with output waiting; a terminal adds itself at its first byte.
        self.touched: list[Flushable] = []
        self.gathers = False  #: somebody calls `pass_over`
        self._reads = 0

    def rest(self) -> None:
        """A read is done with, and there may be others in the same pass of the loop."""
        self._reads += 1
        if self._reads >= READS or not self.gathers:
            self._reads = 0
            self.end()

    def pass_over(self) -> None:
        if self._reads:
            self._reads = 0
            self.end()

    def end(self) -> None:
        committer = self.committer
        if committer.pending:
            committer.write()
        touched = self.touched
        while touched:
            touched.pop().flush()

    def at(self, when: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Run `callback` as a turn of its own at the loop's time `when`."""
        return self.loop.call_at(when, self._run, callback)

    def soon(self, callback: Callable[[], None]) -> None:
        self.loop.call_soon(self._run, callback)

    def _run(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        finally:
            self.end()
