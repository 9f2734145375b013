"""Reads streams of a RabbitMQ with the stream plugin: ranges as the chunks of its log.

Offsets are still queried over AMQP (`streams/amqp.py`), and so are messages that were not published
over AMQP 0-9-1 and cannot be translated.

The cost of a chunk at RabbitMQ is mostly waiting: for each it passes from thread to thread and to a
file. Over several connections a single reader gets its chunks three times as fast, for half the CPU
time; with a busy broker it is a tenth or two less. So a range is split into parts, each is read
over its own connection, and passed on in order. Where chunks are small, two more things help: the
system wakes the reader only for a worthwhile number of bytes, and credit is given only for the
chunks that a part seems to have left.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from multiprocessing.connection import wait
from typing import Final

import pyarrow as pa

from penstock.core.errors import ConnectionForced, PenstockError
from penstock.wire.amqp091.address import AmqpAddress
from penstock_spark.rabbitmq.chunks import (
    MessageBlock,
    UnsupportedChunk,
    chunk_offsets,
    decode_chunks,
    record_batch,
)
from penstock_spark.rabbitmq.connection import StreamConnection
from penstock_spark.streams.amqp import STALL_SECONDS, AmqpStreamBackend
from penstock_spark.streams.backend import Offsets, StreamEnded, StreamRange, estimate_limit


class RabbitmqStreamBackend:
    """Implements `StreamBackend`."""

    def __init__(self, address: AmqpAddress, port: int, amqp: AmqpStreamBackend) -> None:
        self._address = address
        self._port = port
        self._amqp = amqp

    def names(self) -> set[str]:
        return self._amqp.names()

    def first_offsets(self, names: Collection[str]) -> Offsets:
        return self._amqp.first_offsets(names)

    def next_offsets(self, names: Collection[str], known: Mapping[str, int | None]) -> Offsets:
        return self._amqp.next_offsets(names, known)

    def offset_at(self, name: str, moment_ms: int) -> int:
        return self._amqp.offset_at(name, moment_ms)

    def limit_bytes(self, wanted: StreamRange, most: int) -> int:
        return estimate_limit(self, wanted, most)

    def is_data_loss(self, name: str, expected: int, found: int) -> bool:
        return self._amqp.is_data_loss(name, expected, found)

    def close(self) -> None:
        self._amqp.close()

    def read(self, wanted: StreamRange) -> Iterator[pa.RecordBatch]:
        at = wanted.start
        try:
            for part, block in self._blocks(wanted):
                batch = record_batch(block, part)
                at = min(int(block.offsets[-1]) + 1, part.stop)
                if batch is not None:
                    yield batch
        except TimeoutError:
            if (self.next_offsets([wanted.stream], {})[wanted.stream] or 0) < wanted.stop:
                raise StreamEnded(f"the stream ends before {wanted} does") from None
            raise
        except (UnsupportedChunk, ConnectionForced):
            # The latter is a stream without a replica on this node; AMQP is forwarded.
            yield from self._amqp.read(StreamRange(wanted.stream, at, wanted.stop))

    def _blocks(self, wanted: StreamRange) -> Iterator[tuple[StreamRange, MessageBlock]]:
        """Messages, with the part of the range; some may be outside of it."""
        with closing(ParallelRangeReader(self._connect, split_range(wanted))) as readers:
            for part, contents in readers.chunks(STALL_SECONDS):
                block = decode_chunks(contents)
                if block is not None:
                    yield part, block

    def _connect(self, part: StreamRange) -> StreamConnection:
        return StreamConnection(self._address, self._port, f"spark {part}")


#: More gain little.
MAX_CONNECTIONS: Final = 4
#: Finding an offset costs the broker as much as a hundred chunks.
MIN_PART_MESSAGES: Final = 4096
MAX_PART_MESSAGES: Final = 32_768
#: The most chunks in flight. TCP limits their bytes.
CREDIT: Final = 256
_FIRST_CREDIT: Final = 16  # while the size of chunks is unknown
#: Bytes are passed on in blocks of this size, or after a pause.
BLOCK_BYTES: Final = 1 << 20
PAUSE_SECONDS: Final = 0.02
#: The buffer limit of a part that is read ahead.
MAX_BUFFERED_BYTES: Final = 8 << 20
_WAKE_BYTES: Final = 1 << 16


def split_range(wanted: StreamRange) -> list[StreamRange]:
    """Consecutive parts of the range: one per connection, or more if they are long."""
    size = len(wanted)
    if not size:
        return []
    count = max(min(MAX_CONNECTIONS, -(-size // MIN_PART_MESSAGES)), -(-size // MAX_PART_MESSAGES))
    return wanted.split(count)


class ParallelRangeReader:
    """Reads parts in parallel; `close` closes its connections."""

    def __init__(
        self, connect: Callable[[StreamRange], StreamConnection], wanted: Iterable[StreamRange]
    ) -> None:
        self._connect = connect
        self._waiting = deque(wanted)
        self._readers: deque[_PartReader] = deque()
        self._most = MAX_CONNECTIONS

    def close(self) -> None:
        for reader in self._readers:
            reader.connection.close()

    def chunks(self, silence: float) -> Iterator[tuple[StreamRange, list[bytes]]]:
        """The chunks of one part after the other; the outer ones extend beyond the part.

        Raises `TimeoutError` after `silence` seconds without bytes.
        """
        last = time.monotonic()
        while self._open():
            head = self._readers[0]
            progressed = head.complete or self._receive()
            if head.held >= BLOCK_BYTES or (head.held and (head.complete or not progressed)):
                yield head.part, head.take()
                progressed = True
            if head.complete and not head.held:
                self._readers.popleft()
            if progressed:
                last = time.monotonic()
            elif time.monotonic() - last > silence:
                raise TimeoutError(f"no chunks of {head.part}")

    def _open(self) -> bool:
        """Open connections up to the maximum; returns whether there are any."""
        while self._waiting and len(self._readers) < self._most:
            part = self._waiting[0]
            try:
                reader = _PartReader(self._connect(part), part)
            except (OSError, PenstockError):
                if not self._readers:
                    raise
                self._most = len(self._readers)  # the broker may limit connections
                break
            self._waiting.popleft()
            self._readers.append(reader)
            reader.begin()
        return bool(self._readers)

    def _receive(self) -> bool:
        """Receive from the connections that are ready; returns whether there were bytes."""
        readers = [
            reader for reader in self._readers if reader.wants_more or reader is self._readers[0]
        ]
        found = [reader for reader in readers if reader.connection.ready]
        if not found:
            woken = wait([reader.connection.fileno() for reader in readers], PAUSE_SECONDS)
            found = [reader for reader in readers if reader.connection.fileno() in woken]
        # After a pause, any number of bytes counts.
        return sum(reader.receive() for reader in found or readers) > 0


class _PartReader:
    __slots__ = (
        *("_bytes", "_count", "_credit", "_found", "_messages", "_next"),
        *("complete", "connection", "held", "part"),
    )

    def __init__(self, connection: StreamConnection, part: StreamRange) -> None:
        self.connection = connection
        self.part = part
        self.held = 0  #: buffered bytes
        self.complete = False  #: its last message, or a later one, was received
        self._found: deque[bytes] = deque()
        self._next = part.start
        self._credit = min(_FIRST_CREDIT, len(part))  # chunks with credit
        # Totals of received chunks:
        self._count = self._messages = self._bytes = 0

    @property
    def wants_more(self) -> bool:
        """Whether the part is incomplete and its buffer not full."""
        return not self.complete and self.held < MAX_BUFFERED_BYTES

    def begin(self) -> None:
        self.connection.subscribe(self.part.stream, self.part.start, self._credit)

    def receive(self) -> bool:
        """Receive chunks and renew the credit; returns whether there were bytes."""
        before = self.connection.received
        chunks = self.connection.chunks()
        for content in chunks:
            offsets = chunk_offsets(content)
            self._count += 1
            self._messages += len(offsets)
            self._bytes += len(content)
            self._next = offsets.stop
            if offsets.start < self.part.stop:
                self._found.append(content)
                self.held += len(content)
            if offsets.stop >= self.part.stop:
                self.complete = True
                self.connection.close()
                return True
        self._credit -= len(chunks)
        if chunks:
            self._renew_credit()
        return self.connection.received > before

    def take(self) -> list[bytes]:
        """Remove and return a block of chunks."""
        taken, size = [], 0
        while self._found and size < BLOCK_BYTES:
            taken.append(self._found.popleft())
            size += len(taken[-1])
        self.held -= size
        return taken

    def _renew_credit(self) -> None:
        """Give credit for the estimated rest, and wake up when half of it has arrived.

        RabbitMQ 4 sends nothing before the credit is more than half of the first.
        """
        left = (self.part.stop - self._next) * self._count // max(self._messages, 1) + 1
        useful = max(min(left, CREDIT), _FIRST_CREDIT)
        if self._credit <= useful // 2:
            self.connection.add_credit(useful - self._credit)
            self._credit = useful
        awaited = min(self._credit, left) * (self._bytes // self._count) // 2
        self.connection.wait_for(min(awaited, _WAKE_BYTES))
