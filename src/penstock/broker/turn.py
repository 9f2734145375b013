"""A turn: what one read (or one timer) sets in motion, finished together.

Logs are written before sockets are flushed, so whatever a peer hears has already reached the
operating system: a broker that is killed forgets nothing it has spoken of. Each touched socket is
written once, however many messages the turn brought it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from penstock.broker.log.committer import Committer


class Flushable(Protocol):
    def flush(self) -> None:
        """Write what has gathered to the socket."""


class Turn:
    __slots__ = ("committer", "loop", "touched")

    def __init__(self, loop: asyncio.AbstractEventLoop, committer: Committer) -> None:
        self.loop = loop
        self.committer = committer
        #: Terminals with output waiting; a terminal adds itself at its first byte.
        self.touched: list[Flushable] = []

    def end(self) -> None:
        if self.committer.pending:
            self.committer.write()
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
