"""The timer of a connection: one deadline at a time, then heartbeats in both directions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from penstock.broker.connection_registry import SocketTerminal
from penstock.core.logs import get_logger
from penstock.core.timer_wheel import TimerBucket
from penstock.protocols.socket_writer import SocketWriter

_log = get_logger("penstock.heartbeats")


class HeartbeatTerminal(SocketTerminal, Protocol):
    output: SocketWriter


class HeartbeatTimer:
    """Sends `frame` when nothing else was sent, and aborts the connection when nothing was received
    in more than `max_missed` checks in a row."""

    __slots__ = (
        "_bucket",
        "_check_at",
        "_check_every",
        "_frame",
        "_max_missed",
        "_missed",
        "_on_timeout",
        "_send_at",
        "_send_every",
        "_terminal",
        "interval",
        "received",
    )

    def __init__(self, terminal: HeartbeatTerminal, frame: bytes, max_missed: int) -> None:
        self._terminal: HeartbeatTerminal | None = terminal
        self._frame = frame
        self._max_missed = max_missed
        self._missed = 0
        self._bucket: TimerBucket | None = None
        self._on_timeout: Callable[[], None] | None = None
        self._check_at = self._check_every = 0.0
        self._send_at = self._send_every = 0.0
        self.interval = 0.0  #: seconds, as negotiated; 0 for none
        self.received = False  #: data arrived since the last check

    def expect(self, seconds: float, on_timeout: Callable[[], None]) -> None:
        """In place of what was expected before, and of heartbeats."""
        self.stop()
        if self._terminal is not None:
            self._on_timeout = on_timeout
            self._bucket = self._terminal.host.kernel.timers.start(self, seconds)

    def start(self, interval: float, *, send_every: float, check_every: float) -> None:
        """Send and check this often, in seconds; 0 for never."""
        self.stop()
        self.interval = interval
        self._check_every, self._send_every = check_every, send_every
        assert self._terminal is not None, "a closed timer does not start"
        now = self._terminal.host.kernel.loop.time()
        self._check_at = now + check_every
        self._send_at = self._check_at if send_every == check_every else now + send_every
        self._wait(now)

    def _wait(self, now: float) -> None:
        """Until the next check or heartbeat."""
        due = [
            at
            for at, every in (
                (self._check_at, self._check_every),
                (self._send_at, self._send_every),
            )
            if every
        ]
        if due and self._terminal is not None:
            self._bucket = self._terminal.host.kernel.timers.start(self, min(due) - now)

    def stop(self) -> None:
        if self._bucket is not None:
            self._bucket.pop(self, None)
            self._bucket = None
        self._on_timeout = None

    def close(self) -> None:
        """The connection has ended: stop, and drop the reference back to its terminal."""
        self.stop()
        self._terminal = None

    def on_timer(self) -> None:
        self._bucket = None
        terminal = self._terminal
        assert terminal is not None, "a closed timer does not fire"
        if self._on_timeout is not None:
            on_timeout, self._on_timeout = self._on_timeout, None
            on_timeout()
            return
        now = terminal.host.kernel.loop.time()
        if self._check_every and self._check_at <= now:
            if not self._is_alive(terminal):
                _log.info("heartbeat timed out", connection=terminal.name, interval=self.interval)
                terminal.transport.abort()
                return
            self._check_at = now + self._check_every
        if self._send_every and self._send_at <= now:
            self._send(terminal)
            self._send_at = now + self._send_every
        self._wait(now)

    def _send(self, terminal: HeartbeatTerminal) -> None:
        output = terminal.output
        if not output.has_written and not output.paused:
            terminal.transport.write(self._frame)
        output.has_written = False

    def _is_alive(self, terminal: HeartbeatTerminal) -> bool:
        # While the broker does not read from the socket, it cannot receive heartbeats either.
        alive = self.received or not terminal.flow_control.reading
        self._missed = 0 if alive else self._missed + 1
        self.received = False
        return self._missed <= self._max_missed
