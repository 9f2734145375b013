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
from penstock.pipeline.brokers.contract import Range
from penstock.pipeline.brokers.opening import find_door
from penstock.pipeline.connector import reading
from penstock.pipeline.connector.columns import Columns
from penstock.pipeline.connector.reading import Reading
from penstock.pipeline.rabbitmq import lanes as module
from penstock.pipeline.rabbitmq.chunks import extent, read_chunks
from penstock.pipeline.rabbitmq.connection import StreamConnection
from penstock.pipeline.rabbitmq.lanes import LANES, STRIP_LEAST, STRIP_MOST, Lanes, strips
from penstock.wire.amqp091.address import parse_address
from tests.peers import RabbitMQ
from tests.pipeline.given import declare, publish, stream
from tests.pipeline.rabbitmq.test_chunks import chunk, plain

COUNT = 600

Connect = Callable[[Range], StreamConnection]


@pytest.fixture
def opened() -> list[StreamConnection]:
    return []


@pytest.fixture
def connect(plugged_rabbitmq: RabbitMQ, opened: list[StreamConnection]) -> Connect:
    address, port = parse_address(plugged_rabbitmq.url), plugged_rabbitmq.stream_port

    def connected(strip: Range) -> StreamConnection:
        opened.append(StreamConnection(address, port, f"test {strip}"))
        return opened[-1]

    return connected


def cut(name: str, *edges: int) -> list[Range]:
    return [Range(name, *each) for each in pairwise(edges)]


def offsets(lanes: Lanes, silence: float = 60.0) -> Iterator[int]:
    """Of what the strips wanted, as it is handed on."""
    for strip, contents in lanes.chunks(silence):
        block = read_chunks(contents)
        assert block is not None
        for offset in block.offsets.tolist():
            if strip.start <= offset < strip.stop:
                yield offset


@given(st.integers(0, 2**40), st.integers(1, 2**20))
def test_strips_are_the_range(start: int, size: int) -> None:
    found = strips(Range("any", start, start + size))

    assert found[0].start == start
    assert found[-1].stop == start + size
    assert all(one.stop == next_one.start for one, next_one in pairwise(found))
    assert all(len(strip) <= STRIP_MOST for strip in found)


def test_a_short_range_is_not_worth_several_connections() -> None:
    assert strips(Range("any", 7, 7)) == []
    assert len(strips(Range("any", 0, STRIP_LEAST))) == 1
    assert len(strips(Range("any", 0, STRIP_LEAST + 1))) == 2
    assert len(strips(Range("any", 0, STRIP_LEAST * LANES * 2))) == LANES


@pytest.mark.peer
def test_strips_are_handed_on_in_order_and_whole(
    plugged_rabbitmq: RabbitMQ, name: str, connect: Connect, opened: list[StreamConnection]
) -> None:
    stream(plugged_rabbitmq.url, name, COUNT)
    wanted = cut(name, 3, 40, 41, 300, 420, 421, 500, COUNT - 2)

    with closing(Lanes(connect, wanted)) as lanes:
        assert list(offsets(lanes)) == list(range(3, COUNT - 2))

    assert len(opened) == len(wanted)
    assert all(connection.fileno() == -1 for connection in opened)


@pytest.mark.peer
def test_a_lane_that_holds_much_waits_for_its_turn(
    plugged_rabbitmq: RabbitMQ, name: str, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LANE_BYTES", 1)
    monkeypatch.setattr(module, "BLOCK_BYTES", 1)
    monkeypatch.setattr(module, "CREDIT", 2)
    declare(plugged_rabbitmq.url, name)
    for _ in range(10):  # chunks of their own
        publish(plugged_rabbitmq.url, name, [b"x" * 1000] * 20)

    with closing(Lanes(connect, cut(name, 0, 50, 100, 150, 200))) as lanes:
        assert list(offsets(lanes)) == list(range(200))


@pytest.mark.peer
def test_a_chunk_at_an_edge_comes_to_both_sides(
    plugged_rabbitmq: RabbitMQ, name: str, connect: Connect
) -> None:
    stream(plugged_rabbitmq.url, name, COUNT)
    with closing(Lanes(connect, [Range(name, 0, COUNT)])) as lanes:
        chunks = [extent(each) for _, contents in lanes.chunks(60.0) for each in contents]
    middle = next(each for each in chunks if len(each) > 1).start + 1

    with closing(Lanes(connect, cut(name, 0, middle, COUNT))) as lanes:
        holding = [
            strip.start
            for strip, contents in lanes.chunks(60.0)
            for each in contents
            if middle in extent(each)
        ]

    assert holding == [0, middle]


@pytest.mark.peer
def test_a_broker_that_allows_one_connection_is_read_over_that(
    plugged_rabbitmq: RabbitMQ, name: str, connect: Connect, opened: list[StreamConnection]
) -> None:
    stream(plugged_rabbitmq.url, name, COUNT)

    def reluctantly(strip: Range) -> StreamConnection:
        if any(connection.fileno() >= 0 for connection in opened):
            raise AccessRefused("one is enough")
        return connect(strip)

    with closing(Lanes(reluctantly, cut(name, 0, 200, 400, COUNT))) as lanes:
        assert list(offsets(lanes)) == list(range(COUNT))


@pytest.mark.peer
@pytest.mark.parametrize("fatal", range(1, LANES + 1))
def test_when_a_lane_breaks_the_range_is_read_on_from_what_was_handed_on(
    plugged_rabbitmq: RabbitMQ, name: str, monkeypatch: pytest.MonkeyPatch, fatal: int
) -> None:
    monkeypatch.setattr(reading, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(module, "STRIP_LEAST", COUNT // LANES)
    monkeypatch.setattr(module, "BLOCK_BYTES", 1000)
    stream(plugged_rabbitmq.url, name, COUNT)
    looks = count(1)
    look = StreamConnection.chunks

    def broken(connection: StreamConnection) -> list[bytes]:
        if next(looks) == fatal:
            raise ConnectionResetError("cut")
        return look(connection)

    monkeypatch.setattr(StreamConnection, "chunks", broken)
    door = find_door(parse_address(plugged_rabbitmq.url), None, plugged_rabbitmq.stream_port)
    rows = Reading(Columns(("offset",)), fail_on_loss=True, patience=60.0).rows(
        door, Range(name, 0, COUNT)
    )

    assert [row for batch in rows for row in batch.column(0).to_pylist()] == list(range(COUNT))
    assert next(looks) > fatal


@pytest.mark.peer
def test_silence_is_told(plugged_rabbitmq: RabbitMQ, name: str, connect: Connect) -> None:
    stream(plugged_rabbitmq.url, name, 10)

    with closing(Lanes(connect, [Range(name, 10, 20)])) as lanes, pytest.raises(TimeoutError):
        next(lanes.chunks(0.1))


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

    with closing(Lanes(lambda _: connection, [Range("any", 0, 1)])) as lanes:
        assert list(offsets(lanes, 0.0)) == [0]


@pytest.mark.peer
def test_nothing_stays_open_when_a_strip_cannot_be_read(
    connect: Connect, opened: list[StreamConnection]
) -> None:
    with closing(Lanes(connect, cut("nowhere", 0, 1, 2))) as lanes, pytest.raises(NotFound):
        next(lanes.chunks(60.0))

    assert all(connection.fileno() == -1 for connection in opened)
