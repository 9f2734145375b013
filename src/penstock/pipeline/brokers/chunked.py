"""Streams of a RabbitMQ that has its stream plugin: ranges come as the chunks it keeps.

Only reading takes this way, for it is what costs; where streams begin and end is still asked over
AMQP (`replays.py`). So is everything in a stream that only AMQP shows as it should be: messages
which were not published over AMQP 0-9-1 and are unlike those that were.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import closing

import pyarrow as pa

from penstock.core.errors import ConnectionForced
from penstock.pipeline.brokers.contract import Ended, Offsets, Range
from penstock.pipeline.brokers.replays import STALL_SECONDS, Replays
from penstock.pipeline.rabbitmq.chunks import Block, Unusual, read_chunks
from penstock.pipeline.rabbitmq.connection import StreamConnection
from penstock.pipeline.rabbitmq.lanes import Lanes, strips
from penstock.pipeline.rabbitmq.messages import batch_of
from penstock.wire.amqp091.address import Address


class Chunked:
    """Keeps `contract.Streams`."""

    def __init__(self, address: Address, port: int, replays: Replays) -> None:
        self._address = address
        self._port = port
        self._replays = replays

    def names(self) -> set[str]:
        return self._replays.names()

    def firsts(self, names: Collection[str]) -> Offsets:
        return self._replays.firsts(names)

    def ends(self, names: Collection[str], known: Mapping[str, int | None]) -> Offsets:
        return self._replays.ends(names, known)

    def at(self, name: str, moment_ms: int) -> int:
        return self._replays.at(name, moment_ms)

    def lost(self, name: str, expected: int, found: int) -> bool:
        return self._replays.lost(name, expected, found)

    def close(self) -> None:
        self._replays.close()

    def read(self, wanted: Range) -> Iterator[pa.RecordBatch]:
        at = wanted.start
        try:
            for strip, block in self._blocks(wanted):
                batch = batch_of(block, strip)
                at = min(int(block.offsets[-1]) + 1, strip.stop)
                if batch is not None:
                    yield batch
        except TimeoutError:
            if (self.ends([wanted.stream], {})[wanted.stream] or 0) < wanted.stop:
                raise Ended(f"{wanted} ends early") from None
            raise
        except (Unusual, ConnectionForced):
            # The latter is a stream without a copy on this node, which AMQP passes on.
            yield from self._replays.read(Range(wanted.stream, at, wanted.stop))

    def _blocks(self, wanted: Range) -> Iterator[tuple[Range, Block]]:
        """Messages, and the part of the range they are read for; some may lie outside of it."""
        with closing(Lanes(self._connect, strips(wanted))) as lanes:
            for strip, contents in lanes.chunks(STALL_SECONDS):
                block = read_chunks(contents)
                if block is not None:
                    yield strip, block

    def _connect(self, strip: Range) -> StreamConnection:
        return StreamConnection(self._address, self._port, f"spark {strip}")
