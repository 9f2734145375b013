"""What a streaming query reads, batch by batch, on Penstock and on RabbitMQ; without Spark."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import pytest

from penstock_spark.errors import DataLost
from penstock_spark.streams.arrow import ArrowStreamBackend
from penstock_spark.streams.backend import StreamRange
from tests.peers import Broker, Penstock
from tests.pipeline.connector.querying import Checkpoint, Query, Rows
from tests.pipeline.given import SMALL, declare, delete, numbered, overflow, publish, stream

NewQuery = Callable[..., Query]


@pytest.fixture
def query(broker: Broker, name: str) -> NewQuery:
    """A query that goes on where the one before, which it takes the place of, has ended."""
    checkpoint = Checkpoint()

    def start(streams: str = name, **options: Any) -> Query:
        return Query(broker.url, streams, checkpoint, **options)

    return start


@pytest.fixture
def checkpoint(query: NewQuery) -> Checkpoint:
    return query()._checkpoint


def rows(name: str, start: int, stop: int) -> Rows:
    return [(name, offset) for offset in range(start, stop)]


def test_a_query_goes_on_where_it_ended(broker: Broker, query: NewQuery, name: str) -> None:
    stream(broker.url, name, 20)
    assert query(startingOffsets="earliest").run() == [rows(name, 0, 20)]
    publish(broker.url, name, numbered(15, 20))

    assert query(startingOffsets="earliest").run() == [rows(name, 20, 35)]
    assert query(startingOffsets="earliest").run() == []


def test_the_checkpoint_wins_over_the_starting_offsets(
    broker: Broker, query: NewQuery, name: str
) -> None:
    stream(broker.url, name, 10)
    query(startingOffsets="earliest").run()
    publish(broker.url, name, numbered(5, 10))

    assert query(startingOffsets="latest").run() == [rows(name, 10, 15)]


def test_a_batch_takes_no_more_than_it_may_of_each_in_proportion(
    broker: Broker, query: NewQuery, name: str
) -> None:
    for part, count in enumerate((60, 20)):
        stream(broker.url, f"{name}-{part}", count)

    first, second = query(
        f"{name}-0,{name}-1", startingOffsets="earliest", maxOffsetsPerTrigger=40
    ).run()

    assert sorted(first) == rows(f"{name}-0", 0, 30) + rows(f"{name}-1", 0, 10)
    assert sorted(second) == rows(f"{name}-0", 30, 60) + rows(f"{name}-1", 10, 20)


def test_a_batch_takes_no_more_bytes_than_it_may(
    broker: Broker, query: NewQuery, name: str
) -> None:
    for part in range(2):
        declare(broker.url, f"{name}-{part}")
        publish(broker.url, f"{name}-{part}", [b"x" * 1000] * 100)

    batches = query(
        f"{name}-0,{name}-1",
        startingOffsets="earliest",
        maxBytesPerTrigger="50KiB",
        maxOffsetsPerTrigger=1000,
    ).run()

    assert all(40 <= len(batch) <= 50 for batch in batches[:-1])
    assert sorted(chain(*batches)) == rows(f"{name}-0", 0, 100) + rows(f"{name}-1", 0, 100)


def test_offsets_limit_a_batch_where_bytes_do_not(
    broker: Broker, query: NewQuery, name: str
) -> None:
    stream(broker.url, name, 50)

    batches = query(
        startingOffsets="earliest", maxBytesPerTrigger="1GB", maxOffsetsPerTrigger=20
    ).run()

    assert [len(batch) for batch in batches] == [20, 20, 10]


def test_the_size_of_a_few_messages_is_not_asked_for(
    penstock: Penstock, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[StreamRange] = []

    def limit(backend: ArrowStreamBackend, wanted: StreamRange, most: int) -> int:
        asked.append(wanted)
        return 10

    monkeypatch.setattr(ArrowStreamBackend, "limit_bytes", limit)
    stream(penstock.url, name, 20)

    def run(limit: str) -> list[Rows]:
        options = {"startingOffsets": "earliest", "maxBytesPerTrigger": limit}
        return Query(penstock.url, name, Checkpoint(), **options).run()

    assert run("20MiB") == [rows(name, 0, 20)]
    assert asked == []
    assert run("19MiB") == [rows(name, 0, 10), rows(name, 10, 20)]
    assert asked == [StreamRange(name, 0, 20)]


def test_the_end_of_an_available_now_query_is_fixed_when_it_starts(
    broker: Broker, query: NewQuery, name: str
) -> None:
    stream(broker.url, name, 30)
    running = query(startingOffsets="earliest", maxOffsetsPerTrigger=20)
    running.reader.prepareForTriggerAvailableNow()
    found = [running.batch()]
    publish(broker.url, name, numbered(25, 30))

    found += [running.batch(), running.batch()]

    assert found == [rows(name, 0, 20), rows(name, 20, 30), None]


def test_latest_is_what_comes_after_the_query_began(
    broker: Broker, query: NewQuery, name: str
) -> None:
    stream(broker.url, name, 10)
    following = query(startingOffsets="latest")
    assert following.batch() == []

    publish(broker.url, name, numbered(5, 10))

    assert following.batch() == rows(name, 10, 15)


def test_where_a_query_began_is_remembered_before_it_has_read_anything(
    broker: Broker, query: NewQuery, name: str
) -> None:
    """Otherwise what came between a crash in the first batch and the restart would be lost."""
    stream(broker.url, name, 10)
    assert query(startingOffsets="latest").run() == [[]]
    publish(broker.url, name, numbered(5, 10))

    assert query(startingOffsets="latest").run() == [rows(name, 10, 15)]


def test_a_first_batch_that_is_run_again_begins_where_it_began(
    broker: Broker, query: NewQuery, checkpoint: Checkpoint, name: str
) -> None:
    stream(broker.url, name, 10)
    query(startingOffsets="latest").run()
    checkpoint.forget_the_last()
    publish(broker.url, name, numbered(5, 10))

    assert query(startingOffsets="latest").run() == [[], rows(name, 10, 15)]


def test_a_batch_that_is_run_again_is_the_same(
    broker: Broker, query: NewQuery, checkpoint: Checkpoint, name: str
) -> None:
    stream(broker.url, name, 10)
    query(startingOffsets="earliest").run()
    checkpoint.forget_the_last()
    publish(broker.url, name, numbered(5, 10))

    assert query(startingOffsets="earliest").run() == [rows(name, 0, 10), rows(name, 10, 15)]


def test_streams_may_be_empty_and_fill_later(broker: Broker, query: NewQuery, name: str) -> None:
    declare(broker.url, name)
    following = query(startingOffsets="earliest")
    following.batch()

    publish(broker.url, name, numbered(3))

    found = [following.batch() or [] for _ in range(2)]  # one with where it begins, one to read
    assert list(chain(*found)) == rows(name, 0, 3)


def test_a_stream_that_is_deleted_ends_the_query_and_says_what_to_do(
    broker: Broker, query: NewQuery, name: str
) -> None:
    stream(broker.url, name, 5)
    query(startingOffsets="earliest").run()
    delete(broker.url, name)

    with pytest.raises(DataLost, match=r"does not exist any more.*failOnDataLoss=false"):
        query().run()


def test_a_stream_declared_anew_ends_the_query_and_says_what_to_do(
    broker: Broker, query: NewQuery, name: str
) -> None:
    stream(broker.url, name, 20)
    query(startingOffsets="earliest").run()
    delete(broker.url, name)
    stream(broker.url, name, 5)

    with pytest.raises(DataLost, match=r"declared again.*failOnDataLoss=false"):
        query().run()


def test_a_stream_declared_anew_is_read_from_its_beginning_when_told_so(
    broker: Broker, query: NewQuery, name: str
) -> None:
    stream(broker.url, name, 20)
    query(startingOffsets="earliest").run()
    delete(broker.url, name)
    stream(broker.url, name, 5)

    assert query(failOnDataLoss=False).run() == [rows(name, 0, 5)]


def test_what_retention_took_before_it_was_read_ends_the_query(
    broker: Broker, query: NewQuery, name: str
) -> None:
    declare(broker.url, name, **SMALL)
    publish(broker.url, name, [b"read"] * 10)
    query(startingOffsets="earliest").run()
    overflow(broker.url, name, beyond=10)

    words = r"from offset 10 to \d+ do not exist any more: retention.*failOnDataLoss=false"
    with pytest.raises(DataLost, match=words):
        query().run()


def test_or_is_passed_over_when_told_so(broker: Broker, query: NewQuery, name: str) -> None:
    declare(broker.url, name, **SMALL)
    publish(broker.url, name, [b"read"] * 10)
    query(startingOffsets="earliest").run()
    overflow(broker.url, name, beyond=10)

    offsets = [offset for _, offset in chain(*query(failOnDataLoss=False).run())]

    assert offsets[0] > 10
    assert offsets == sorted(set(offsets))


def test_a_deleted_stream_is_left_behind_when_told_so(
    broker: Broker, query: NewQuery, name: str
) -> None:
    both = f"{name}-a,{name}-b"
    stream(broker.url, f"{name}-a", 3)
    stream(broker.url, f"{name}-b", 3)
    query(both, startingOffsets="earliest").run()
    delete(broker.url, f"{name}-b")
    publish(broker.url, f"{name}-a", [b"more"] * 2)

    assert list(chain(*query(both, failOnDataLoss=False).run())) == rows(f"{name}-a", 3, 5)
