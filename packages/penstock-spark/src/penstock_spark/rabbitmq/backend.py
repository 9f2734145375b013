"""Streams of a RabbitMQ that has its stream plugin: ranges come as the chunks it keeps.

Only reading takes this way, for it is what costs; where streams begin and end is still asked over
AMQP (`streams/amqp.py`). So is everything in a stream that only AMQP shows as it should be:
messages which were not published over AMQP 0-9-1 and are unlike those that were.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from itertools import pairwise
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
from penstock_spark.streams.backend import Offsets, StreamEnded, StreamRange


class RabbitmqStreamBackend:
    """Implements `StreamBackend`."""

    def __init__(self, address: AmqpAddress, port: int, replays: AmqpStreamBackend) -> None:
        self._address = address
        self._port = port
        self._replays = replays

    def names(self) -> set[str]:
        return self._replays.names()

    def first_offsets(self, names: Collection[str]) -> Offsets:
        return self._replays.first_offsets(names)

    def next_offsets(self, names: Collection[str], known: Mapping[str, int | None]) -> Offsets:
        return self._replays.next_offsets(names, known)

    def offset_at(self, name: str, moment_ms: int) -> int:
        return self._replays.offset_at(name, moment_ms)

    def is_data_loss(self, name: str, expected: int, found: int) -> bool:
        return self._replays.is_data_loss(name, expected, found)

    def close(self) -> None:
        self._replays.close()

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
                raise StreamEnded(f"{wanted} ends early") from None
            raise
        except (UnsupportedChunk, ConnectionForced):
            # The latter is a stream without a copy on this node, which AMQP passes on.
            yield from self._replays.read(StreamRange(wanted.stream, at, wanted.stop))

    def _blocks(self, wanted: StreamRange) -> Iterator[tuple[StreamRange, MessageBlock]]:
        """Messages, and the part of the range they are read for; some may lie outside of it."""
        with closing(ParallelRangeReader(self._connect, split_range(wanted))) as readers:
            for part, contents in readers.chunks(STALL_SECONDS):
                block = decode_chunks(contents)
                if block is not None:
                    yield part, block

    def _connect(self, part: StreamRange) -> StreamConnection:
        return StreamConnection(self._address, self._port, f"spark {part}")


# A range of a stream over several connections at once, in order.
#
# What a chunk costs RabbitMQ is hardly its bytes: for each it goes to a file and comes back, from
# one thread to another and a few times, and sleeps in between. With several connections its threads
# find something to do when they come back: a lone reader gets its chunks three times as fast, for
# half the processor time; where others keep the broker busy it is a tenth or two less. So a range
# is cut into strips; each is read over a connection of its own, and handed on when its turn comes.
#
# Two more things save much where chunks are small. The system wakes us for what is worth looking
# at, and not for each chunk. And there is credit for no more chunks than a strip seems to have
# left, so that few are sent in vain.

#: More gain little; brokers have other clients, and there are other tasks.
MAX_CONNECTIONS: Final = 4
#: To find an offset costs the broker some milliseconds, as much as a hundred chunks.
MIN_PART_MESSAGES: Final = 4096
MAX_PART_MESSAGES: Final = 32_768
#: Chunks under way. Many hold a few dozen messages; how many bytes there may be, TCP says.
CREDIT: Final = 256
_FIRST_CREDIT: Final = 16  # as long as nothing is known about the chunks
#: So many bytes are handed on together, and so is what came before a pause.
BLOCK_BYTES: Final = 1 << 20
PAUSE_SECONDS: Final = 0.02
#: What a lane may hold until its turn comes; then TCP makes the broker wait.
MAX_BUFFERED_BYTES: Final = 8 << 20
#: So many are worth being woken for.
_WAKE_BYTES: Final = 1 << 16


def split_range(wanted: StreamRange) -> list[StreamRange]:
    """Parts of the range, one behind the other: one for each lane, or more if they are long."""
    size = len(wanted)
    if not size:
        return []
    count = max(min(MAX_CONNECTIONS, -(-size // MIN_PART_MESSAGES)), -(-size // MAX_PART_MESSAGES))
    edges = [wanted.start + size * index // count for index in range(count + 1)]
    return [StreamRange(wanted.stream, *edge) for edge in pairwise(edges)]


class ParallelRangeReader:
    """Reads strips side by side; closed by `close`, with the connections it has open."""

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
        """The chunks of one strip after the other; at its edges they hold more than the strip.

        Raises `TimeoutError` when none comes for so many seconds.
        """
        last = time.monotonic()
        while self._open():
            head = self._readers[0]
            came = head.complete or self._receive()
            if head.held >= BLOCK_BYTES or (head.held and (head.complete or not came)):
                yield head.part, head.take()
                came = True
            if head.complete and not head.held:
                self._readers.popleft()
            if came:
                last = time.monotonic()
            elif time.monotonic() - last > silence:
                raise TimeoutError(f"nothing comes of {head.part}")

    def _open(self) -> bool:
        """Have as many lanes as there may be; whether there are any."""
        while self._waiting and len(self._readers) < self._most:
            part = self._waiting[0]
            try:
                reader = _PartReader(self._connect(part), part)
            except (OSError, PenstockError):
                if not self._readers:
                    raise
                self._most = len(self._readers)  # a broker may not let us have more
                break
            self._waiting.popleft()
            self._readers.append(reader)
            reader.begin()
        return bool(self._readers)

    def _receive(self) -> bool:
        """Take what has come, or comes in a moment; whether anything did."""
        range_reader = [
            reader for reader in self._readers if reader.wants_more or reader is self._readers[0]
        ]
        found = [reader for reader in range_reader if reader.connection.ready]
        if not found:
            woken = wait([reader.connection.fileno() for reader in range_reader], PAUSE_SECONDS)
            found = [reader for reader in range_reader if reader.connection.fileno() in woken]
        # After a pause whatever there is is worth looking at.
        return sum(reader.receive() for reader in found or range_reader) > 0


class _PartReader:
    """A strip, and the chunks of it that have come."""

    __slots__ = (
        *("_bytes", "_count", "_due", "_found", "_messages", "_next"),
        *("complete", "connection", "held", "part"),
    )

    def __init__(self, connection: StreamConnection, part: StreamRange) -> None:
        self.connection = connection
        self.part = part
        self.held = 0  #: bytes that are to be taken
        self.complete = False  #: the last of the strip, or one behind it, has come
        self._found: deque[bytes] = deque()
        self._next = part.start
        self._due = min(_FIRST_CREDIT, len(part))  # chunks there is credit for
        # What has come so far:
        self._count = self._messages = self._bytes = 0

    @property
    def wants_more(self) -> bool:
        """There is more to come, and room for it."""
        return not self.complete and self.held < MAX_BUFFERED_BYTES

    def begin(self) -> None:
        self.connection.subscribe(self.part.stream, self.part.start, self._due)

    def receive(self) -> bool:
        """Take what has come, and see to it that more does; whether anything did, if but a part."""
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
        self._due -= len(chunks)
        if chunks:
            self._ask()
        return self.connection.received > before

    def take(self) -> list[bytes]:
        """Some of the chunks that have come."""
        taken, size = [], 0
        while self._found and size < BLOCK_BYTES:
            taken.append(self._found.popleft())
            size += len(taken[-1])
        self.held -= size
        return taken

    def _ask(self) -> None:
        """Credit for what seems to be left, in time; and not to be woken before half of it came."""
        left = (self.part.stop - self._next) * self._count // max(self._messages, 1) + 1
        useful = min(left, CREDIT)
        if self._due <= useful // 2:
            self.connection.add_credit(useful - self._due)
            self._due = useful
        awaited = min(self._due, useful) * (self._bytes // self._count) // 2
        self.connection.wait_for(min(awaited, _WAKE_BYTES))
