"""Whether a connection is read from, and why it is not: back-pressure by the TCP window.

Four things stop the reading: large messages that have not reached the disk yet, a memory budget
that is spent, an alarm that asks publishers to wait, and answers the client does not read, be they
in the socket's buffer or behind a large message. It goes on when none of them holds. A client whose
input takes long to process gives way to others, and goes on after them (`write_batch.py`).
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Protocol

from penstock.broker.buckets import MemoryAccount
from penstock.broker.host import Host
from penstock.core.logs import get_logger

#: What one connection may have in buckets on their way to the disk.
RECEIVE_WINDOW_BYTES: Final = 4 * 1024 * 1024

#: What is read from a socket at a time. Room for more is worth having only where it is used: for
#: so large a piece of memory the allocator asks the system, each time anew, which costs several
#: times as much as to read a small message. In the middle of bulk others shall have their turn.
READ_BYTES: Final = 64 * 1024
LARGE_READ_BYTES: Final = 256 * 1024

#: Answers (not deliveries, which stop much earlier) that may wait for a client to read them.
MAX_UNREAD_BYTES: Final = 4 * 1024 * 1024

_log = get_logger("penstock.flow_control")


class FlowControlledTerminal(Protocol):
    """A terminal, as far as reading from its socket goes."""

    host: Host
    transport: asyncio.Transport
    name: str
    published: int
    closing: bool

    @property
    def held(self) -> bool:
        """What was read is not looked at further."""

    @held.setter
    def held(self, held: bool) -> None: ...

    @property
    def unread_bytes(self) -> int:
        """Answers that wait for the client to read them."""

    def data_received(self, data: bytes) -> None: ...

    def blocking(self, reason: str) -> None:
        """Publishers are to wait, and this is one."""

    def unblocking(self) -> None: ...


class ReadFlowControl:
    __slots__ = ("_account", "_bulk", "_terminal", "blocked", "reading", "resumed_at", "wide")

    def __init__(self, terminal: FlowControlledTerminal) -> None:
        self._terminal = terminal
        self._account: MemoryAccount | None = None  # few connections ever need one
        self._bulk = False
        self.wide = False  #: it has much to say: read much at a time
        self.reading = True
        self.resumed_at = 0.0  #: since when the client can be heard again
        self.blocked = False  #: an alarm has stopped it

    @property
    def account(self) -> MemoryAccount:
        if self._account is None:
            pool = self._terminal.host.kernel.pool
            self._account = MemoryAccount(pool, RECEIVE_WINDOW_BYTES, self._relieved)
        return self._account

    def expect_bulk(self, expected: bool) -> None:
        """While a large body comes, read less at a time: others have their turn sooner."""
        self._bulk = expected
        self._read_at_most(READ_BYTES)

    def adapt_read_size(self, size: int) -> None:
        """So much was read at once: is there more where it came from?"""
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
        """There is a socket."""
        self._read_at_most(READ_BYTES)

    def hold(self) -> None:
        """Look at nothing further until what was received of a large message is on disk."""
        self._terminal.held = True
        self.pause()

    def defer_rest(self) -> None:
        """Look at the rest of what was received after others had their turn."""
        if not self._terminal.held:
            self.hold()
            self._terminal.host.kernel.write_batch.defer(self.resume)

    @property
    def is_unread(self) -> bool:
        """The client asks and asks, and does not read what it is told."""
        return self._terminal.unread_bytes > MAX_UNREAD_BYTES

    @property
    def has_pending_buckets(self) -> bool:
        """Buckets are on their way to the disk."""
        return self._account is not None and self._account.used > 0

    def check_limits(self) -> None:
        """The client has published: may it go on?"""
        host = self._terminal.host
        if host.alarms.active:
            self.alarms_changed()
        elif host.kernel.pool.spent:
            self.pause()
            host.kernel.pool.when_relieved(self.resume_soon)
        elif self._account is not None and self._account.spent:
            self.pause()

    def _relieved(self) -> None:
        if self._terminal.closing:  # it is read from in any case, or gone
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
        """A reason may be gone; who noticed it is in the middle of something."""
        if not self.reading:
            self._terminal.host.kernel.loop.call_soon(self.resume)

    def resume(self) -> None:
        """Go on, unless there is another reason not to."""
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
        """Read again, whatever the reason was not to."""
        if not self.reading and not self._terminal.transport.is_closing():
            self.reading = True
            self._terminal.transport.resume_reading()

    def reopen(self) -> None:
        """Read and look at what is read: only the client's goodbye is still awaited."""
        self.force_resume()
        self._terminal.held = False

    def alarms_changed(self) -> None:
        """Publishers are to wait, or may go on."""
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
