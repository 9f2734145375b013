"""The timer of a connection: one deadline at a time, then heartbeats in both directions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from penstock.broker.connection_registry import SocketTerminal
from penstock.core.logs import get_logger
from penstock.protocols.socket_writer import SocketWriter

_log = get_logger("penstock.heartbeats")


class HeartbeatTerminal(SocketTerminal, Protocol):
    output: SocketWriter


class HeartbeatTimer:
    """Sends `frame` when nothing else was sent, and aborts the connection when nothing was received
    in more than `max_missed` checks in a row."""

    __slots__ = (
        "_deadline",
        "_frame",
        "_loop",
        "_max_missed",
        "_missed",
        "_sender",
        "_terminal",
        "interval",
        "received",
    )

    def __init__(self, terminal: HeartbeatTerminal, frame: bytes, max_missed: int) -> None:
        self._terminal: HeartbeatTerminal | None = terminal
        self._loop = terminal.host.kernel.loop
        self._frame = frame
        self._max_missed = max_missed
        self._missed = 0
        self._deadline: asyncio.TimerHandle | None = None
        self._sender: asyncio.TimerHandle | None = None
        self.interval = 0.0  #: seconds, as negotiated; 0 for none
        self.received = False  #: data arrived since the last check

    def expect(self, seconds: float, on_timeout: Callable[[], None]) -> None:
        """In place of what was expected before, and of heartbeats."""
        self.stop()
        self._deadline = self._loop.call_later(seconds, on_timeout)

    def start(self, interval: float, *, send_every: float, check_every: float) -> None:
        """Send and check this often, in seconds; 0 for never."""
        self.stop()
        self.interval = interval
        if check_every:
            self._deadline = self._loop.call_later(check_every, self._check, check_every)
        if send_every:
            self._sender = self._loop.call_later(send_every, self._send, send_every)

    def stop(self) -> None:
        for timer in (self._deadline, self._sender):
            if timer is not None:
                timer.cancel()
        self._deadline = self._sender = None

    def close(self) -> None:
        """The connection has ended: stop, and drop the reference back to its terminal."""
        self.stop()
        self._terminal = None

    def _send(self, every: float) -> None:
        terminal = self._terminal
        assert terminal is not None, "a closed timer does not fire"
        output = terminal.output
        if not output.has_written and not output.paused:
            terminal.transport.write(self._frame)
        output.has_written = False
        self._sender = self._loop.call_later(every, self._send, every)

    def _check(self, every: float) -> None:
        terminal = self._terminal
        assert terminal is not None, "a closed timer does not fire"
        # While the broker does not read from the socket, it cannot receive heartbeats either.
        alive = self.received or not terminal.flow_control.reading
        self._missed = 0 if alive else self._missed + 1
        self.received = False
        if self._missed > self._max_missed:
            _log.info("heartbeat timed out", connection=terminal.name, interval=self.interval)
            terminal.transport.abort()
            return
        self._deadline = self._loop.call_later(every, self._check, every)
