"""A turn: what one read (or one timer) sets in motion, finished together.

Logs are written before sockets are flushed, so whatever a peer hears has already reached the
operating system: a broker that is killed forgets nothing it has spoken of. Each to_flush socket is
written once, however many messages the turn brought it.

Where many peers say little each, a turn may take in several reads, if the loop says when a pass of
it is over.

The time of a turn is bounded. Whoever has done something expensive says so (`spend`); when the time
is used up, the client whose input is being processed has to give way: the rest of what it sent is
processed in later turns. Work that is long by itself is cut into pieces that ask `over` and go on
`later`. One such piece runs in a pass of the loop, so whoever has little to ask for is served
between any two of them. While others are being served, the next piece waits: a login takes several
questions and answers, and has them all between two pieces instead of one.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from penstock.broker.log.committer import Committer

#: The most reads one turn takes in: sockets must not wait long, nor their output grow large.
MAX_READS: Final = 32

#: How long a turn may take before it gives way to others.
MAX_BATCH_SECONDS: Final = 0.005
#: While others are being served, the next piece waits so long for what they ask next, ...
PAUSE_SECONDS: Final = 0.001
#: ... but not longer than this altogether.
PAUSES_SECONDS: Final = 0.005
#: To write so many logs takes about as long.
MAX_BATCH_LOGS: Final = 128


class Flushable(Protocol):
    def flush(self) -> None:
        """Write what has gathered to the socket."""


class DeferrableInput(Protocol):
    """The input of a client, of which the rest can wait."""

    def defer_rest(self) -> None:
        """Process the rest in a later turn."""

    def hold(self) -> None:
        """Process nothing further until told to `resume`."""

    def resume(self) -> None: ...


class WriteBatch:
    __slots__ = (
        "_deadline",
        "_has_served_others",
        "_pause_until",
        "_pieces",
        "_reads",
        "committer",
        "loop",
        "reader",
        "spans_reads",
        "to_flush",
    )

    def __init__(self, loop: asyncio.AbstractEventLoop, committer: Committer) -> None:
        self.loop = loop
        self.committer = committer
        #: Terminals with output waiting; a terminal adds itself at its first byte.
        self.to_flush: list[Flushable] = []
        self.spans_reads = False  #: somebody calls `end_pass`
        self._reads = 0
        self._deadline = 0.0  # none yet: it begins with the first look at the clock
        self._pieces: deque[Callable[[], None]] = deque()
        self._has_served_others = False  # since the last piece, or the last pause
        self._pause_until = 0.0
        #: The client whose input is being processed, unless nothing of it may be put off.
        self.reader: DeferrableInput | None = None

    def end_read(self) -> None:
        """A read is done with, and there may be others in the same pass of the loop."""
        self._reads += 1
        if self.reader is not None:  # it did not have to give way
            self._has_served_others = True
            self.reader = None
        if self._reads >= MAX_READS or not self.spans_reads or self._pieces:
            self._reads = 0
            self.flush()

    def expect(self) -> None:
        """Somebody has connected, and is about to say something."""
        self._has_served_others = True

    def end_pass(self) -> None:
        if self._reads:
            self._reads = 0
            self.flush()

    def flush(self) -> None:
        self.reader = None
        self._deadline = 0.0
        committer = self.committer
        if committer.pending:
            committer.write()
        to_flush = self.to_flush
        while to_flush:
            to_flush.pop().flush()

    # The time of a turn.

    def is_over(self) -> bool:
        """Whether this turn has used up its time."""
        now = self.loop.time()
        if not self._deadline:
            self._deadline = now + MAX_BATCH_SECONDS
            return False
        return now > self._deadline or self.committer.unwritten > MAX_BATCH_LOGS

    def check_time(self) -> None:
        """Something expensive was done: if the turn is over, its client gives way."""
        if self.is_over() and self.reader is not None:
            reader, self.reader = self.reader, None
            reader.defer_rest()

    def defer(self, piece: Callable[[], None]) -> None:
        """Run a piece of long work as a turn of its own, after others had theirs."""
        self._pieces.append(piece)
        if len(self._pieces) == 1:
            self._begin_pause()

    def _begin_pause(self) -> None:
        self._has_served_others = False
        self._pause_until = self.loop.time() + PAUSES_SECONDS
        self.loop.call_soon(self._next_piece)

    def _next_piece(self) -> None:
        if self._has_served_others and self.loop.time() < self._pause_until:
            self._has_served_others = False
            self.loop.call_later(PAUSE_SECONDS, self._next_piece)
            return
        try:
            self._run(self._pieces[0])
        finally:
            self._pieces.popleft()
            if self._pieces:
                self._begin_pause()

    def call_at(self, when: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        """Run `callback` as a turn of its own at the loop's time `when`."""
        return self.loop.call_at(when, self._run, callback)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.loop.call_soon(self._run, callback)

    def _run(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        finally:
            self.flush()
