"""Read flow control of a connection: back-pressure by the TCP window.

Reading stops while large messages have not reached the disk, the memory budget is used up, an alarm
blocks publishers, or the client does not read its responses. It resumes when none of these holds. A
client whose input takes long yields to others (`write_batch.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, Protocol

from penstock.broker.buckets import MemoryAccount
from penstock.broker.host import Host
from penstock.core.logs import get_logger

#: Buckets of one connection that are not written to disk yet.
RECEIVE_WINDOW_BYTES: Final = 4 * 1024 * 1024

#: Read sizes. The allocator maps memory for large buffers at each read, which costs more than a
#: small message, so the large size is used only while reads fill the buffer.
READ_BYTES: Final = 64 * 1024
LARGE_READ_BYTES: Final = 256 * 1024

#: Responses that the client has not read. Deliveries stop much earlier.
MAX_UNREAD_BYTES: Final = 4 * 1024 * 1024

_log = get_logger("penstock.flow_control")


class HeldOutput(Protocol):
    def hold(self) -> None: ...

    def release(self) -> None: ...


class FlowControlledTerminal(Protocol):
    """The terminal's part in flow control."""

    host: Host

    @property
    def output(self) -> HeldOutput: ...

    transport: asyncio.Transport

    @property
    def name(self) -> str: ...

    published: int
    closing: bool

    @property
    def held(self) -> bool:
        """Received input is not processed further."""

    @held.setter
    def held(self, held: bool) -> None: ...

    @property
    def unread_bytes(self) -> int:
        """Responses that the client has not read."""

    def data_received(self, data: bytes) -> None: ...

    def blocking(self, reason: str) -> None:
        """An alarm blocks this publisher."""

    def unblocking(self) -> None: ...


class ReadFlowControl:
    __slots__ = ("_account", "_bulk", "_terminal", "blocked", "reading", "resumed_at", "wide")

    def __init__(self, terminal: FlowControlledTerminal) -> None:
        self._terminal = terminal
        self._account: MemoryAccount | None = None  # few connections need one
        self._bulk = False
        self.wide = False  #: reads are large
        self.reading = True
        self.resumed_at = 0.0  #: loop time of the last resume
        self.blocked = False  #: by an alarm

    @property
    def account(self) -> MemoryAccount:
        if self._account is None:
            pool = self._terminal.host.kernel.pool
            self._account = MemoryAccount(pool, RECEIVE_WINDOW_BYTES, self._relieved)
        return self._account

    def expect_bulk(self, expected: bool) -> None:
        """Use small reads during a large body, so that others are served sooner."""
        self._bulk = expected
        self._read_at_most(READ_BYTES)

    def adapt_read_size(self, size: int) -> None:
        """Choose the next read size by the size of the last read."""
        if size < READ_BYTES or self._bulk:
            self.wide = False
            self._read_at_most(READ_BYTES)
        elif not self.wide:
            self.wide = True
            self._read_at_most(LARGE_READ_BYTES)

    def _read_at_most(self, size: int) -> None:
        transport: Any = self._terminal.transport
        transport.max_size = size

    def start(self) -> None:
        self._read_at_most(READ_BYTES)

    def hold(self) -> None:
        """Stop processing until the received part of a large message is on disk."""
        self._terminal.held = True
        self.pause()

    def hold_output(self) -> Callable[[], None]:
        """Hold the client's output until the returned function is called."""
        output = self._terminal.output
        output.hold()
        return output.release

    def defer_rest(self) -> None:
        """Process the rest of the input after other clients."""
        if not self._terminal.held:
            self.hold()
            self._terminal.host.kernel.write_batch.defer(self.resume)

    @property
    def is_unread(self) -> bool:
        """The client does not read its responses."""
        return self._terminal.unread_bytes > MAX_UNREAD_BYTES

    @property
    def has_pending_buckets(self) -> bool:
        return self._account is not None and self._account.used > 0

    def check_limits(self) -> None:
        """After a publish: pause reading if a limit is reached."""
        host = self._terminal.host
        pool = host.kernel.pool
        if host.alarms.active:
            self.alarms_changed()
        elif pool.used >= pool.budget:
            self.pause()
            pool.when_relieved(self.resume_soon)
        elif self._account is not None and self._account.spent:
            self.pause()

    def _relieved(self) -> None:
        if self._terminal.closing:  # it is read in any case, or gone
            return
        account = self.account
        held = self._terminal.held
        if not account.used or (not held and account.used <= account.window // 2):
            self.resume_soon()

    def pause(self) -> None:
        transport = self._terminal.transport
        if self.reading and not transport.is_closing():
            self.reading = False
            transport.pause_reading()

    def resume_soon(self) -> None:
        """Resume after the current callback."""
        if not self.reading:
            self._terminal.host.kernel.loop.call_soon(self.resume)

    def resume(self) -> None:
        """Resume reading unless another limit holds."""
        terminal = self._terminal
        if self.reading or terminal.closing or terminal.transport.is_closing():
            return
        if self.blocked and terminal.host.alarms.active:
            return
        if self._account is not None and terminal.held and self._account.used:
            return
        if self.is_unread:
            return
        self.reading = True
        self.resumed_at = terminal.host.kernel.loop.time()
        terminal.transport.resume_reading()
        if terminal.held:
            terminal.held = False
            terminal.data_received(b"")

    def force_resume(self) -> None:
        """Resume reading regardless of limits."""
        if not self.reading and not self._terminal.transport.is_closing():
            self.reading = True
            self._terminal.transport.resume_reading()

    def reopen(self) -> None:
        """Read and process input: only the client's close is awaited."""
        self.force_resume()
        self._terminal.held = False

    def alarms_changed(self) -> None:
        terminal = self._terminal
        alarms = terminal.host.alarms
        metrics = terminal.host.kernel.metrics
        if alarms.active and not self.blocked and (terminal.published or self.has_pending_buckets):
            self.blocked = True
            metrics.blocked += 1
            terminal.blocking(alarms.reason)
            _log.warning("connection blocked", connection=terminal.name, reason=alarms.reason)
            self.pause()
        elif not alarms.active and self.blocked:
            self.blocked = False
            metrics.blocked -= 1
            terminal.unblocking()
            self.resume()

    def end(self) -> None:
        if self.blocked:
            self.blocked = False
            self._terminal.host.kernel.metrics.blocked -= 1
