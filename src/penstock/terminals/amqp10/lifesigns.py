"""Signs of life: a handshake in good time, then something to hear within the idle time-outs.

Each side says how long a silence it bears. A peer that was silent for twice what we said is gone;
we speak at least twice as often as the peer wants.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.core.logs import get_logger
from penstock.wire.amqp10.frames import HEARTBEAT_FRAME

if TYPE_CHECKING:
    from penstock.terminals.amqp10.terminal import Amqp10Terminal

#: Shorter time-outs would have us do little else, in seconds.
LEAST: Final = 0.1

_log = get_logger("penstock.amqp10")


class Lifesigns:
    __slots__ = ("_beats", "_terminal", "_timer", "heard", "interval", "said")

    def __init__(self, terminal: Amqp10Terminal) -> None:
        self._terminal = terminal
        self._timer: asyncio.TimerHandle | None = None
        self._beats: asyncio.TimerHandle | None = None
        self.interval = 0.0  #: seconds of silence we bear; 0 for any
        self.heard = False  #: something came since the last look
        self.said = False  #: something was written since the last look

    def expect(self, seconds: float, otherwise: Callable[[], None]) -> None:
        """Something is due within this time."""
        self.stop()
        self._timer = self._terminal.host.kernel.loop.call_later(seconds, otherwise)

    def begin(self, ours: float, theirs: float) -> None:
        """From now on: the silence we bear, and the one our peer does; 0 for any."""
        self.stop()
        self.interval = ours
        if ours:
            self._listen()
        if theirs:
            self._beat(theirs / 2)

    def stop(self) -> None:
        for timer in (self._timer, self._beats):
            if timer is not None:
                timer.cancel()
        self._timer = self._beats = None

    def _beat(self, every: float) -> None:
        terminal = self._terminal
        if not self.said and not terminal.outflow.paused:
            terminal.transport.write(HEARTBEAT_FRAME)
        self.said = False
        self._beats = terminal.host.kernel.loop.call_later(every, self._beat, every)

    def _listen(self, silent: int = 0) -> None:
        """Every half interval: count how long nothing was heard."""
        terminal = self._terminal
        # Who is not read from cannot be heard.
        silent = 0 if self.heard or not terminal.intake.reading else silent + 1
        self.heard = False
        if silent > 4:
            _log.info("nothing heard from client", connection=terminal.name)
            terminal.transport.abort()
            return
        loop = terminal.host.kernel.loop
        self._timer = loop.call_later(self.interval / 2, self._listen, silent)
