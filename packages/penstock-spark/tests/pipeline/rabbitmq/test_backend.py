"""A range over several connections: everything once and in order, whoever is the fastest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count, pairwise
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import AccessRefused, NotFound
from penstock.wire.amqp091.address import parse_amqp_url
from penstock_spark.connector import range_reader
from penstock_spark.connector.columns import MessageColumns
from penstock_spark.connector.range_reader import RangeReader
from penstock_spark.rabbitmq import backend as module
from penstock_spark.rabbitmq.backend import (
    MAX_CONNECTIONS,
    MAX_PART_MESSAGES,
    MIN_PART_MESSAGES,
    ParallelRangeReader,
    split_range,
)
from penstock_spark.rabbitmq.chunks import chunk_offsets, decode_chunks
from penstock_spark.rabbitmq.connection import StreamConnection
from penstock_spark.streams.backend import StreamRange
from penstock_spark.streams.endpoint import find_endpoint
from tests.peers import RabbitMQ
from tests.pipeline.given import declare, publish, stream
from tests.pipeline.rabbitmq.test_chunks import chunk, plain

COUNT = 600

Connect = Callable[[StreamRange], StreamConnection]


@pytest.fixture
def opened() -> list[StreamConnection]:
    return []


@pytest.fixture
def connect(plugged_rabbitmq: RabbitMQ, opened: list[StreamConnection]) -> Connect:
    address, port = parse_amqp_url(plugged_rabbitmq.url), plugged_rabbitmq.stream_port

    def connected(part: StreamRange) -> StreamConnection:
        opened.append(StreamConnection(address, port, f"test {part}"))
        return opened[-1]

    return connected


def cut(name: str, *edges: int) -> list[StreamRange]:
    return [StreamRange(name, *each) for each in pairwise(edges)]


def offsets(readers: ParallelRangeReader, silence: float = 60.0) -> Iterator[int]:
    """Of what the strips wanted, as it is handed on."""
    for part, contents in readers.chunks(silence):
        block = decode_chunks(contents)
        assert block is not None
        for offset in block.offsets.tolist():
            if part.start <= offset < part.stop:
                yield offset


@given(st.integers(0, 2**40), st.integers(1, 2**20))
def test_strips_are_the_range(start: int, size: int) -> None:
    found = split_range(StreamRange("any", start, start + size))

    assert found[0].start == start
    assert found[-1].stop == start + size
    assert all(one.stop == next_one.start for one, next_one in pairwise(found))
    assert all(len(part) <= MAX_PART_MESSAGES for part in found)


def test_a_short_range_is_not_worth_several_connections() -> None:
    assert split_range(StreamRange("any", 7, 7)) == []
    assert len(split_range(StreamRange("any", 0, MIN_PART_MESSAGES))) == 1
    assert len(split_range(StreamRange("any", 0, MIN_PART_MESSAGES + 1))) == 2
    assert (
        len(split_range(StreamRange("any", 0, MIN_PART_MESSAGES * MAX_CONNECTIONS * 2)))
        == MAX_CONNECTIONS
    )


@pytest.mark.peer
def test_strips_are_handed_on_in_order_and_whole(
    plugged_rabbitmq: RabbitMQ, name: str, connect: Connect, opened: list[StreamConnection]
) -> None:
    stream(plugged_rabbitmq.url, name, COUNT)
    wanted = cut(name, 3, 40, 41, 300, 420, 421, 500, COUNT - 2)

    with closing(ParallelRangeReader(connect, wanted)) as readers:
        assert list(offsets(readers)) == list(range(3, COUNT - 2))

    assert len(opened) == len(wanted)
    assert all(connection.fileno() == -1 for connection in opened)


@pytest.mark.peer
def test_a_lane_that_holds_much_waits_for_its_turn(
    plugged_rabbitmq: RabbitMQ, name: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_BUFFERED_BYTES", 1)
    monkeypatch.setattr(module, "BLOCK_BYTES", 1)
    monkeypatch.setattr(module, "CREDIT", 2)
    declare(plugged_rabbitmq.url, name)
    for _ in range(10):  # chunks of their own
        publish(plugged_rabbitmq.url, name, [b"x" * 1000] * 20)

    with closing(ParallelRangeReader(connect, cut(name, 0, 50, 100, 150, 200))) as readers:
        assert list(offsets(readers)) == list(range(200))


@pytest.mark.peer
def test_a_chunk_at_an_edge_comes_to_both_sides(
    plugged_rabbitmq: RabbitMQ, name: str, connect: Connect
) -> None:
    stream(plugged_rabbitmq.url, name, COUNT)
    with closing(ParallelRangeReader(connect, [StreamRange(name, 0, COUNT)])) as readers:
        chunks = [chunk_offsets(each) for _, contents in readers.chunks(60.0) for each in contents]
    middle = next(each for each in chunks if len(each) > 1).start + 1

    with closing(ParallelRangeReader(connect, cut(name, 0, middle, COUNT))) as readers:
        holding = [
            part.start
            for part, contents in readers.chunks(60.0)
            for each in contents
            if middle in chunk_offsets(each)
        ]

    assert holding == [0, middle]


@pytest.mark.peer
def test_a_broker_that_allows_one_connection_is_read_over_that(
    plugged_rabbitmq: RabbitMQ, name: str, connect: Connect, opened: list[StreamConnection]
) -> None:
    stream(plugged_rabbitmq.url, name, COUNT)

    def reluctantly(part: StreamRange) -> StreamConnection:
        if any(connection.fileno() >= 0 for connection in opened):
            raise AccessRefused("one is enough")
        return connect(part)

    with closing(ParallelRangeReader(reluctantly, cut(name, 0, 200, 400, COUNT))) as readers:
        assert list(offsets(readers)) == list(range(COUNT))


@pytest.mark.peer
@pytest.mark.parametrize("fatal", range(1, MAX_CONNECTIONS + 1))
def test_when_a_lane_breaks_the_range_is_read_on_from_what_was_handed_on(
    plugged_rabbitmq: RabbitMQ, name: str, monkeypatch: pytest.MonkeyPatch, fatal: int
) -> None:
    monkeypatch.setattr(range_reader, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(module, "MIN_PART_MESSAGES", COUNT // MAX_CONNECTIONS)
    monkeypatch.setattr(module, "BLOCK_BYTES", 1000)
    stream(plugged_rabbitmq.url, name, COUNT)
    looks = count(1)
    look = StreamConnection.chunks

    def broken(connection: StreamConnection) -> list[bytes]:
        if next(looks) == fatal:
            raise ConnectionResetError("cut")
        return look(connection)

    monkeypatch.setattr(StreamConnection, "chunks", broken)
    endpoint = find_endpoint(
        parse_amqp_url(plugged_rabbitmq.url), None, plugged_rabbitmq.stream_port
    )
    rows = RangeReader(MessageColumns(("offset",)), fail_on_loss=True, retry_seconds=60.0).rows(
        endpoint, StreamRange(name, 0, COUNT)
    )

    assert [row for batch in rows for row in batch.column(0).to_pylist()] == list(range(COUNT))
    assert next(looks) > fatal


@pytest.mark.peer
def test_silence_is_told(plugged_rabbitmq: RabbitMQ, name: str, connect: Connect) -> None:
    stream(plugged_rabbitmq.url, name, 10)

    with (
        closing(ParallelRangeReader(connect, [StreamRange(name, 10, 20)])) as readers,
        pytest.raises(TimeoutError),
    ):
        next(readers.chunks(0.1))


class Trickle:
    """A connection over which a chunk comes bit by bit."""

    def __init__(self, content: bytes, bits: int) -> None:
        self.received = 0
        self.ready = True
        self._content = content
        self._bits = bits

    def chunks(self) -> list[bytes]:
        self.received += 1
        return [self._content] if self.received == self._bits else []

    def subscribe(self, stream: str, offset: int, credit: int) -> None: ...

    def close(self) -> None: ...


def test_a_part_of_a_chunk_is_no_silence() -> None:
    connection = cast("StreamConnection", Trickle(chunk([plain(b"large")], 1), 5))

    with closing(ParallelRangeReader(lambda _: connection, [StreamRange("any", 0, 1)])) as readers:
        assert list(offsets(readers, 0.0)) == [0]


class Thrifty(Trickle):
    """A connection as to RabbitMQ 4, which sends when the credit is more than half of the first."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__(b"", 0)
        self._sizes = sizes
        self._first = self._credit = self._next = 0
        self._sent: list[bytes] = []

    def subscribe(self, stream: str, offset: int, credit: int) -> None:
        self._first = credit
        self.add_credit(credit)

    def add_credit(self, credit: int) -> None:
        self._credit += credit
        while self._sizes and self._credit and (self._credit > self._first // 2 or self._sent):
            size = self._sizes.pop(0)
            self._sent.append(chunk([plain(b"any")] * size, size, self._next))
            self._next += size
            self._credit -= 1

    def chunks(self) -> list[bytes]:
        sent, self._sent = self._sent, []
        self.received += len(sent)
        return sent

    def wait_for(self, size: int) -> None: ...


@pytest.mark.parametrize("sizes", [[100] * 16 + [1] * 50, [1] * 40 + [100] * 3, [7] * 300])
def test_credit_is_given_in_amounts_that_the_broker_answers(sizes: list[int]) -> None:
    connection = cast("StreamConnection", Thrifty(list(sizes)))
    part = StreamRange("any", 0, sum(sizes))

    with closing(ParallelRangeReader(lambda _: connection, [part])) as readers:
        assert list(offsets(readers, 0.0)) == list(range(sum(sizes)))


@pytest.mark.peer
def test_nothing_stays_open_when_a_strip_cannot_be_read(
    connect: Connect, opened: list[StreamConnection]
) -> None:
    with (
        closing(ParallelRangeReader(connect, cut("nowhere", 0, 1, 2))) as readers,
        pytest.raises(NotFound),
    ):
        next(readers.chunks(60.0))

    assert all(connection.fileno() == -1 for connection in opened)
