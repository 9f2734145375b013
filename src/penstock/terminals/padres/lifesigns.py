"""Signs of life: who it is in good time, and then something to hear as often as was announced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.core.logs import get_logger
from penstock.wire.padres.codec import encode
from penstock.wire.padres.frames import Beat

if TYPE_CHECKING:
    from penstock.terminals.padres.terminal import PadresTerminal

#: A peer is given up after as many of its intervals without a word.
PATIENCE: Final = 3

_BEAT: Final = encode(Beat())
_log = get_logger("penstock.padres")


class Lifesigns:
    __slots__ = ("_deadline", "_silent", "_terminal", "_timer", "heard", "interval", "said")

    def __init__(self, terminal: PadresTerminal) -> None:
        self._terminal = terminal
        self._deadline: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._silent = 0  # intervals in which nothing was heard
        self.interval = 0  #: seconds, for both sides; 0 for none
        self.heard = False  #: something came since the last look
        self.said = False  #: something was written since the last look

    def expect(self, seconds: float, otherwise: Callable[[], None]) -> None:
        """Something is due within this time."""
        self.stop()
        self._deadline = self._terminal.host.kernel.loop.call_later(seconds, otherwise)

    def begin(self, interval: int) -> None:
        self.stop()
        self.interval = interval
        if interval:
            self._wait()

    def stop(self) -> None:
        for timer in (self._deadline, self._timer):
            if timer is not None:
                timer.cancel()
        self._deadline = self._timer = None

    def _wait(self) -> None:
        self._timer = self._terminal.host.kernel.loop.call_later(self.interval, self._look)

    def _look(self) -> None:
        terminal = self._terminal
        # Who is not read from cannot be heard.
        self._silent = 0 if self.heard or not terminal.intake.reading else self._silent + 1
        if self._silent >= PATIENCE:
            _log.info("nothing heard from client", connection=terminal.name)
            terminal.abort()
            return
        if not self.said and not terminal.outflow.paused:
            terminal.transport.write(_BEAT)
        self.heard = self.said = False
        self._wait()
