"""Signs of life: a handshake in good time, then heartbeats both ways."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.core.logs import get_logger
from penstock.terminals.amqp091.frames import HEARTBEAT_FRAME

if TYPE_CHECKING:
    from penstock.terminals.amqp091.terminal import Amqp091Terminal

#: A client that was silent for this many half intervals is gone; RabbitMQ is as patient.
SILENT_HALVES: Final = 4

_log = get_logger("penstock.amqp091")


class Lifesigns:
    __slots__ = ("_silent", "_terminal", "_timer", "heard", "interval", "said")

    def __init__(self, terminal: Amqp091Terminal) -> None:
        self._terminal = terminal
        self._timer: asyncio.TimerHandle | None = None
        self._silent = 0
        self.interval = 0  #: seconds, as negotiated; 0 for none
        self.heard = False  #: something came since the last look
        self.said = False  #: something was written since the last look

    def expect(self, seconds: float, otherwise: Callable[[], None]) -> None:
        """Something is due within this time."""
        self.stop()
        self._timer = self._terminal.host.kernel.loop.call_later(seconds, otherwise)

    def begin(self, interval: int) -> None:
        """Heartbeats, from now on."""
        self.stop()
        self.interval = interval
        if interval:
            self._beat()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _beat(self) -> None:
        """Every half interval: speak if nothing was said, and count how long nothing was heard."""
        terminal = self._terminal
        if not self.said and not terminal.outflow.paused:
            terminal.transport.write(HEARTBEAT_FRAME)
        self.said = False
        # Who is not read from cannot be heard.
        self._silent = 0 if self.heard or not terminal.intake.reading else self._silent + 1
        self.heard = False
        if self._silent > SILENT_HALVES:
            _log.info("missed heartbeats from client", connection=terminal.name)
            terminal.transport.abort()
            return
        self._timer = terminal.host.kernel.loop.call_later(self.interval / 2, self._beat)
