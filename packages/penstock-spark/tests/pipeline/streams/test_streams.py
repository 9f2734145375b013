"""What every way to a stream promises (`brokers/contract.py`)."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from penstock.client.amqp091.bulk_publisher import BulkPublisher
from penstock.core.basic_properties import BasicProperties, encode_header, encode_shortstr
from penstock.core.errors import NotFound
from penstock.wire.amqp091.address import parse_amqp_url
from penstock_spark.connector.columns import MessageColumns
from penstock_spark.streams.backend import RECORD_SCHEMA, StreamEnded, StreamRange
from tests.pipeline.given import channel, declare, delete, numbered, publish, stream
from tests.pipeline.streams.conftest import Way

#: Retention works by segments: small ones show it soon.
SMALL = {"x_stream_max_segment_size_bytes": 2000, "x_max_length_bytes": 4000}


def offsets(way: Way, name: str, start: int, stop: int) -> list[int]:
    found: list[int] = []
    for batch in way.streams.read(StreamRange(name, start, stop)):
        assert batch.schema == RECORD_SCHEMA
        found += batch.column("offset").to_pylist()
    return found


def overflow(way: Way, name: str) -> int:
    """A stream that has forgotten its beginning; its first offset."""
    declare(way.url, name, **SMALL)
    for begin in range(0, 100_000, 100):
        publish(way.url, name, [b"x" * 500] * 100)
        if first := way.streams.first_offsets([name])[name]:
            return first
        assert begin < 5_000, "retention takes nothing"
    raise AssertionError


def test_the_end_is_behind_the_last_message(way: Way, name: str) -> None:
    stream(way.url, name, 7)

    assert way.streams.next_offsets([name], {}) == {name: 7}
    assert way.streams.first_offsets([name]) == {name: 0}


@pytest.mark.parametrize("count", [1, 1000, 3000])
def test_the_end_is_exact_however_messages_lie_in_chunks(way: Way, name: str, count: int) -> None:
    stream(way.url, name, count)

    for _ in range(5):
        assert way.streams.next_offsets([name], {name: count}) == {name: count}


def test_many_streams_are_asked_about_together(way: Way, name: str) -> None:
    sizes = {f"{name}-{part}": part % 4 for part in range(12)}
    for each, count in sizes.items():
        stream(way.url, each, count)

    ends = way.streams.next_offsets(list(sizes), {})
    assert {name: end or 0 for name, end in ends.items()} == sizes


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """For streams in which there is nothing to be waited for."""
    monkeypatch.setattr("penstock_spark.streams.amqp.EMPTY_SECONDS", 0.1)
    for module in ("streams.amqp", "rabbitmq.backend"):
        monkeypatch.setattr(f"penstock_spark.{module}.STALL_SECONDS", 0.5)


@pytest.mark.usefixtures("impatient")
def test_an_empty_stream_is_there_and_has_nothing(way: Way, name: str) -> None:
    declare(way.url, name)

    # Penstock tells where the first message will stand; AMQP has no words for it.
    assert way.streams.next_offsets([name], {})[name] in (0, None)
    assert way.streams.first_offsets([name])[name] in (0, None)


@pytest.mark.usefixtures("impatient")
def test_a_stream_that_falls_silent_ends_where_it_did(way: Way, name: str) -> None:
    declare(way.url, name)

    assert way.streams.next_offsets([name], {name: 7})[name] in (0, 7)


def test_a_stream_that_is_not_there_is_left_out(way: Way, name: str) -> None:
    stream(way.url, name, 2)

    assert way.streams.next_offsets([name, "nowhere"], {}) == {name: 2}
    assert way.streams.first_offsets(["nowhere", name]) == {name: 0}
    # And what was asked over the same connection before is none the worse for it.
    assert way.streams.next_offsets([name], {}) == {name: 2}


def test_a_range_is_what_it_says_and_no_more(way: Way, name: str) -> None:
    stream(way.url, name, 500)

    assert offsets(way, name, 0, 500) == list(range(500))
    assert offsets(way, name, 123, 321) == list(range(123, 321))
    assert offsets(way, name, 499, 500) == [499]


def test_a_long_range_comes_whole(way: Way, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock_spark.streams.amqp.PREFETCH", 64)
    monkeypatch.setattr("penstock_spark.streams.amqp.BLOCK_BYTES", 2000)
    stream(way.url, name, 1000)

    for start, stop in ((0, 1000), (1, 66), (1, 129), (7, 900), (0, 64), (0, 65)):
        assert offsets(way, name, start, stop) == list(range(start, stop))


def test_bodies_are_those_that_were_published(way: Way, name: str) -> None:
    bodies = [b"", b"\x00", b"x" * 200_000, *numbered(3)]
    declare(way.url, name)
    publish(way.url, name, bodies)

    batches = way.streams.read(StreamRange(name, 0, len(bodies)))

    assert [body for batch in batches for body in batch.column("body").to_pylist()] == bodies


def test_messages_of_all_shapes_come_as_they_were_published(way: Way, name: str) -> None:
    shapes = [
        ("k" * (number % 7), None if number % 3 else "text/plain", number % 4, number * 37 % 311)
        for number in range(400)
    ]
    shapes[123:123] = [("large", None, 2, 300_000), ("empty", None, 0, 0)]
    declare(way.url, name)
    with channel(way.url) as opened:
        opened.exchange_declare(name, "topic", durable=True)
        opened.queue_bind(name, name, "#")
    with BulkPublisher(parse_amqp_url(way.url), mandatory=True, retry_seconds=60.0) as publisher:
        for number, (key, kind, headers, size) in enumerate(shapes):
            route = encode_shortstr(name, "exchange") + encode_shortstr(key, "routing_key")
            named = {f"{'az'[each % 2]}{each}": "v" * each for each in range(headers)}
            publisher.publish(
                route,
                encode_header(BasicProperties(kind, named, message_id=f"{number}"), size),
                b"x" * size,
            )
        publisher.flush()

    columns = MessageColumns(
        ("exchange", "routing_key", "content_type", "headers", "message_id", "body")
    )
    batches = way.streams.read(StreamRange(name, 0, len(shapes)))
    rows = [row for batch in batches for row in columns.build(batch, name).to_pylist()]

    assert {row["exchange"] for row in rows} == {name}
    found = [
        (row["routing_key"], row["content_type"], len(row["headers"] or ()), len(row["body"]))
        for row in rows
    ]
    assert found == shapes
    assert [row["message_id"] for row in rows] == [str(number) for number in range(len(shapes))]


@pytest.mark.usefixtures("impatient")
def test_a_range_that_ends_beyond_the_stream_comes_as_far_as_it_is(way: Way, name: str) -> None:
    stream(way.url, name, 10)

    batches = way.streams.read(StreamRange(name, 5, 15))

    assert next(batches).column("offset").to_pylist() == list(range(5, 10))
    with pytest.raises(StreamEnded):
        next(batches)


def test_a_range_that_retention_has_eaten_into_begins_later(way: Way, name: str) -> None:
    first = overflow(way, name)
    publish(way.url, name, [b"one more"])
    end = way.streams.next_offsets([name], {})[name]
    assert end is not None

    found = offsets(way, name, 0, end)

    # Retention may go on meanwhile; what is left comes in order, and its end is the stream's.
    assert found[0] >= first
    assert found == sorted(set(found))
    assert found[-1] == end - 1
    assert way.streams.is_data_loss(name, 0, found[0])


@pytest.mark.usefixtures("impatient")
def test_a_range_that_retention_took_whole_is_empty(way: Way, name: str) -> None:
    first = overflow(way, name)
    publish(way.url, name, [b"one more"])

    assert offsets(way, name, 0, first // 2 or 1) == []


def test_a_range_is_limited_to_bytes(way: Way, name: str) -> None:
    declare(way.url, name)
    publish(way.url, name, [b"x" * 1000] * 300)
    whole = StreamRange(name, 0, 300)

    # About a hundred: each has a content header, and Penstock counts its log's own bytes as well.
    assert 85 <= way.streams.limit_bytes(whole, 102_400) <= 100
    assert way.streams.limit_bytes(StreamRange(name, 50, 300), 102_400) in range(135, 151)
    assert way.streams.limit_bytes(whole, 1) == 1
    assert way.streams.limit_bytes(whole, 10**9) == 300


def test_a_segment_that_begins_is_no_loss(way: Way, name: str) -> None:
    """RabbitMQ gives an offset to an entry of its own at the beginning of each."""
    declare(way.url, name, x_stream_max_segment_size_bytes=2000)
    publish(way.url, name, [b"x" * 500] * 300)
    end = way.streams.next_offsets([name], {})[name]
    assert end is not None

    found = offsets(way, name, 0, end)

    assert len(found) == 300
    assert not any(way.streams.is_data_loss(name, one + 1, next_) for one, next_ in pairwise(found))


def test_a_moment_is_an_offset(way: Way, name: str) -> None:
    stream(way.url, name, 3)
    time.sleep(1.1)  # RabbitMQ counts in seconds
    between = int(time.time()) * 1000
    publish(way.url, name, numbered(2))

    assert way.streams.offset_at(name, between) == 3
    assert way.streams.offset_at(name, 0) == 0
    assert way.streams.offset_at(name, between + 10**9) == 5


def test_reading_a_stream_that_is_not_there_says_so(way: Way, name: str) -> None:
    stream(way.url, name, 3)
    delete(way.url, name)

    with pytest.raises(NotFound):
        offsets(way, name, 0, 3)
    with pytest.raises(NotFound):
        way.streams.offset_at(name, 0)
