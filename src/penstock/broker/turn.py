"""A turn: what one read (or one timer) sets in motion, finished together.

Logs are written before sockets are flushed, so whatever a peer hears has already reached the
operating system: a broker that is killed forgets nothing it has spoken of. Each touched socket is
written once, however many messages the turn brought it.

Where many peers say little each, a turn may take in several reads: `rest` ends it at once as long
as one pass of the loop brings one read, and else when the pass is over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from penstock.broker.log.committer import Committer

#: The most reads one turn takes in: sockets must not wait long, nor their output grow large.
READS: Final = 32
#: After so many turns of one read each, see whether there would have been more.
PROBE: Final = 16


class Flushable(Protocol):
    def flush(self) -> None:
        """Write what has gathered to the socket."""


class Turn:
    __slots__ = ("_gathering", "_many", "_reads", "committer", "loop", "touched")

    def __init__(self, loop: asyncio.AbstractEventLoop, committer: Committer) -> None:
        self.loop = loop
        self.committer = committer
        #: Terminals with output waiting; a terminal adds itself at its first byte.
        self.touched: list[Flushable] = []
        self._gathering = False  #: the turn goes on until the loop's pass is over
        self._many = False  #: the last pass that was looked at brought several reads
        self._reads = 0

    def rest(self) -> None:
        """A read is done with, and there may be others in the same pass of the loop."""
        self._reads += 1
        if self._gathering:
            if not self._reads % READS:
                self.end()
        elif self._many or self._reads >= PROBE:
            self._gathering = True
            self._reads = 1
            self.loop.call_soon(self._pass_over)
        else:
            self.end()

    def _pass_over(self) -> None:
        self._gathering = False
        self._many = self._reads > 1
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
