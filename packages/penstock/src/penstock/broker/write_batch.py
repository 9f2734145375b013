"""A write batch: everything that one read (or timer) causes, written together.

Logs are written before sockets are flushed, so everything a peer receives has reached the operating
system: a killed broker never loses what it confirmed. Each socket is written once per batch. If
many peers send little each, one batch covers several reads, provided the loop calls `end_pass`.

The time of a batch is bounded. After an expensive operation, `check_time` makes the client whose
input is processed yield: the rest of its input waits for a later batch. Long work is divided into
pieces that check `is_over` and continue with `defer`. One piece runs per pass of the loop, so other
clients are served in between. While they are, the next piece waits a little: a login takes several
round trips and completes between two pieces.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from penstock.broker.log.committer import Committer

#: The most reads per batch, so that sockets wait briefly and output stays small.
MAX_READS: Final = 32

#: The time limit of a batch.
MAX_BATCH_SECONDS: Final = 0.005
#: While others are served, the next piece waits this long for their next request, …
PAUSE_SECONDS: Final = 0.001
#: … but no longer than this in total.
PAUSES_SECONDS: Final = 0.005
#: Writing this many logs takes about as long.
MAX_BATCH_LOGS: Final = 128


class Flushable(Protocol):
    def flush(self) -> None:
        """Write pending output to the socket."""


class DeferrableInput(Protocol):
    """Client input whose processing can be deferred."""

    def defer_rest(self) -> None:
        """Process the rest in a later batch."""

    def hold(self) -> None:
        """Process nothing until `resume`."""

    def resume(self) -> None: ...

    def hold_output(self) -> Callable[[], None]:
        """Hold the client's output until the returned function is called."""


class WriteBatch:
    def __init__(self, loop: asyncio.AbstractEventLoop, committer: Committer) -> None:
        self.loop = loop
        self.committer = committer
        #: Terminals with pending output; a terminal adds itself at its first byte.
        self.to_flush: list[Flushable] = []
        self.spans_reads = False  #: the loop calls `end_pass`
        #: In a cluster: whether the lease is too old. Then output waits, as another may lead.
        self.is_fenced: Callable[[], bool] | None = None
        self.after_flush: Callable[[], None] | None = None
        self._reads = 0
        self._deadline = 0.0  # set at the first check of the clock
        self._pieces: deque[Callable[[], None]] = deque()
        self._has_served_others = False  # since the last piece, or the last pause
        self._pause_until = 0.0
        #: The client whose input is processed, if it can be deferred.
        self.reader: DeferrableInput | None = None
        #: Timers wait while destinations and bindings are restored: a message that is released or
        #: expires before would find no route.
        self._held: list[Callable[[], None]] | None = None

    def begin_recovery(self) -> None:
        self._held = []

    def end_recovery(self) -> None:
        held, self._held = self._held or [], None
        for callback in held:
            self.call_soon(callback)

    def end_read(self) -> None:
        """A read is processed; more may follow in the same pass of the loop."""
        self._reads += 1
        if self.reader is not None:  # it did not yield
            self._has_served_others = True
            self.reader = None
        if self._reads >= MAX_READS or not self.spans_reads or self._pieces:
            self._reads = 0
            self.flush()

    def expect(self) -> None:
        """A client has connected and will send soon."""
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
        if self.is_fenced is not None and to_flush and self.is_fenced():
            return
        while to_flush:
            to_flush.pop().flush()
        if self.after_flush is not None:
            self.after_flush()

    def is_over(self) -> bool:
        """Whether the batch has used up its time."""
        now = self.loop.time()
        if not self._deadline:
            self._deadline = now + MAX_BATCH_SECONDS
            return False
        return now > self._deadline or self.committer.unwritten > MAX_BATCH_LOGS

    def check_time(self) -> None:
        """After an expensive operation: if the batch is over, its client yields."""
        if self.is_over() and self.reader is not None:
            reader, self.reader = self.reader, None
            reader.defer_rest()

    def defer(self, piece: Callable[[], None]) -> None:
        """Run a piece of long work in a batch of its own, after other clients."""
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
        """Run `callback` in a batch of its own at loop time `when`."""
        return self.loop.call_at(when, self._run, callback)

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.loop.call_soon(self._run, callback)

    def _run(self, callback: Callable[[], None]) -> None:
        if self._held is not None:
            self._held.append(callback)
            return
        try:
            callback()
        finally:
            self.flush()
