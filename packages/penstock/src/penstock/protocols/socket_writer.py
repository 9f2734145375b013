"""Buffered output of one connection, shared by the writers of all protocols.

Output collects in `out` and leaves in one write at the end of the write batch. When more than
`WRITE_HIGH_WATER_BYTES` wait in the batch or in the socket, writes are *blocked*: the protocol's
writer withdraws the credit of its consumers (`request_all`) until the socket has caught up.
Buckets of large messages are released when their bytes have been handed to the socket.
"""

from __future__ import annotations

from typing import Final, Protocol

from penstock.broker.buckets import Bucket
from penstock.broker.connection_registry import SocketTerminal
from penstock.broker.write_batch import Flushable

#: Output that may collect for one socket before its consumers lose their credit.
WRITE_HIGH_WATER_BYTES: Final = 256 * 1024


class WritableTerminal(SocketTerminal, Protocol):
    closing: bool


class ProtocolWriter(Flushable, Protocol):
    """The terminal's side of the contract with drivers; its `flush` ends in the socket's."""

    def request_all(self) -> None:
        """Set the credit of every consumer: none while writes are blocked."""


class SocketWriter:
    __slots__ = (
        "_buckets",
        "_metrics",
        "_terminal",
        "_write_batch",
        "_writer",
        "bytes",
        "deferred_bytes",
        "delivered",
        "has_written",
        "holds",
        "out",
        "paused",
        "scheduled",
        "write_blocked",
    )

    def __init__(
        self, terminal: WritableTerminal, writer: ProtocolWriter, out: list[bytes] | None = None
    ) -> None:
        kernel = terminal.host.kernel
        self._terminal: WritableTerminal | None = terminal
        self._writer: ProtocolWriter | None = writer
        self._write_batch = kernel.write_batch
        self._metrics = kernel.metrics
        self._buckets: list[Bucket] | None = None  # few connections ever have any
        self.out: list[bytes] = [] if out is None else out
        self.bytes = 0  #: of deliveries in this batch
        self.delivered = 0  #: messages in this batch
        self.deferred_bytes = 0  #: of responses that wait behind a large message
        self.has_written = False  #: since the heartbeat timer last cleared it
        self.holds = 0  #: changes of topology that must be replicated before output continues
        self.scheduled = False  #: part of this write batch
        self.paused = False  #: the transport's buffer is full
        self.write_blocked = False  #: consumers have no credit until the socket has caught up

    @property
    def unread_bytes(self) -> int:
        """Output that waits for the client to read."""
        if not self.paused or self._terminal is None:
            return self.deferred_bytes
        return self.deferred_bytes + self._terminal.transport.get_write_buffer_size()

    def schedule(self) -> None:
        if not self.scheduled and self._writer is not None:
            self.scheduled = True
            self._write_batch.to_flush.append(self._writer)

    def send(self, data: bytes) -> None:
        self.schedule()
        self.out.append(data)

    def hold_bucket(self, bucket: Bucket) -> None:
        """Release the bucket after the next flush: `out` refers to its memory."""
        if self._buckets is None:
            self._buckets = []
        self._buckets.append(bucket)

    def flush(self) -> None:
        self.scheduled = False
        out, terminal = self.out, self._terminal
        if terminal is None or self.holds:
            return
        if out:
            data = b"".join(out)
            out.clear()
            self.bytes = 0
            self._metrics.bytes_out += len(data)
            self._metrics.delivered += self.delivered
            self.delivered = 0
            self.has_written = True
            terminal.transport.write(data)
        if self._buckets:
            self.release_buckets()
        if self.write_blocked and not self.paused:
            self._write_batch.loop.call_soon(self._unblock)

    def hold(self) -> None:
        self.holds += 1

    def release(self) -> None:
        self.holds -= 1
        if not self.holds and self.out:
            self.schedule()

    def release_buckets(self) -> None:
        buckets, self._buckets = self._buckets, None
        for bucket in buckets or ():
            bucket.release()

    def pause(self) -> None:
        self.paused = True
        self.block()

    def resume(self) -> None:
        self.paused = False
        self._unblock()

    def block(self) -> None:
        self.write_blocked = True
        if self._writer is not None:
            self._writer.request_all()

    def _unblock(self) -> None:
        terminal, writer = self._terminal, self._writer
        if terminal is None or writer is None or terminal.closing:
            return
        if self.write_blocked and not self.paused:
            self.write_blocked = False
            writer.request_all()
            self._write_batch.flush()

    def close(self) -> None:
        """The connection has ended: drop the output, and the references back to its owners."""
        self.out.clear()
        self.release_buckets()
        self._terminal = self._writer = None
