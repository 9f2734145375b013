"""`spark.readStream`, on Penstock and on RabbitMQ."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, cast

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from tests.pipeline.conftest import QUERY_SECONDS, Reader
from tests.pipeline.given import declare, delete, numbered, publish, stream


def rows(batches: list[Any]) -> list[int]:
    return [batch["numInputRows"] for batch in batches]


def when(query: StreamingQuery, holds: Callable[[Any], bool]) -> None:
    """Returns when a batch of the query was such."""
    seen = 0
    while True:
        # Ends the wait, with the query's own error, should it fail.
        assert not query.awaitTermination(cast(int, 0.05))
        batches = query.recentProgress
        if any(holds(batch) for batch in batches[seen:]):
            return
        seen = len(batches)


def reached(name: str, offset: int) -> Callable[[Any], bool]:
    return lambda batch: json.loads(batch["sources"][0]["endOffset"]).get(name) == offset


def full(offsets: dict[str, int]) -> dict[str, int]:
    """Without streams that are empty, which only Penstock has an offset for."""
    return {name: offset for name, offset in offsets.items() if offset}


def test_a_query_goes_on_where_it_ended(reader: Reader, name: str) -> None:
    stream(reader.broker.url, name, 20)
    reader.run(name, startingOffsets="earliest")
    publish(reader.broker.url, name, numbered(15, 20))

    batches = reader.run(name, startingOffsets="earliest")

    assert sum(rows(batches)) == 15
    assert reader.offsets() == [(name, offset) for offset in range(35)]


def test_the_checkpoint_wins_over_the_starting_offsets(reader: Reader, name: str) -> None:
    stream(reader.broker.url, name, 10)
    reader.run(name, startingOffsets="earliest")
    publish(reader.broker.url, name, numbered(5, 10))

    reader.run(name, startingOffsets="latest")

    assert reader.offsets() == [(name, offset) for offset in range(15)]


def test_a_batch_takes_no_more_than_it_may(reader: Reader, name: str) -> None:
    for part, count in enumerate((60, 20, 0)):
        stream(reader.broker.url, f"{name}-{part}", count)
    names = ",".join(f"{name}-{part}" for part in range(3))

    batches = reader.run(names, startingOffsets="earliest", maxOffsetsPerTrigger=40)

    assert rows(batches) == [40, 40]
    first = json.loads(batches[0]["sources"][0]["endOffset"])
    assert full(first) == {f"{name}-0": 30, f"{name}-1": 10}
    latest = json.loads(batches[0]["sources"][0]["latestOffset"])
    assert full(latest) == {f"{name}-0": 60, f"{name}-1": 20}


def test_latest_is_what_comes_after_the_query_began(reader: Reader, name: str) -> None:
    stream(reader.broker.url, name, 10)
    query = reader.start(reader.stream(name, startingOffsets="latest"))
    when(query, reached(name, 10))

    publish(reader.broker.url, name, numbered(5, 10))
    when(query, reached(name, 15))
    query.stop()

    assert reader.offsets() == [(name, offset) for offset in range(10, 15)]


@pytest.mark.slow
def test_where_a_query_began_is_remembered_before_it_has_read_anything(
    reader: Reader, name: str
) -> None:
    """Otherwise what came between a crash in the first batch and the restart would be lost."""
    stream(reader.broker.url, name, 10)
    assert rows(reader.run(name, startingOffsets="latest")) == [0]
    publish(reader.broker.url, name, numbered(5, 10))

    reader.run(name, startingOffsets="latest")

    assert reader.offsets() == [(name, offset) for offset in range(10, 15)]


def test_a_first_batch_that_is_run_again_begins_where_it_began(reader: Reader, name: str) -> None:
    stream(reader.broker.url, name, 10)
    reader.run(name, startingOffsets="latest")
    (reader.folder / "checkpoint" / "commits" / "0").unlink()
    (reader.folder / "checkpoint" / "commits" / ".0.crc").unlink(missing_ok=True)
    publish(reader.broker.url, name, numbered(5, 10))

    reader.run(name, startingOffsets="latest")

    assert reader.offsets() == [(name, offset) for offset in range(10, 15)]


@pytest.mark.slow
def test_a_batch_that_is_run_again_is_the_same(reader: Reader, name: str) -> None:
    stream(reader.broker.url, name, 10)
    reader.run(name, startingOffsets="earliest")
    commits = reader.folder / "checkpoint" / "commits"
    for leftover in (commits / "0", commits / ".0.crc"):
        leftover.unlink(missing_ok=True)
    # The sink remembers a batch it has written: take that away as well.
    for leftover in (reader.folder / "out").rglob("*"):
        if leftover.is_file():
            leftover.unlink()
    publish(reader.broker.url, name, numbered(5, 10))

    reader.run(name, startingOffsets="earliest")

    assert reader.offsets() == [(name, offset) for offset in range(15)]


@pytest.mark.slow
def test_streams_may_be_empty_and_fill_later(reader: Reader, name: str) -> None:
    declare(reader.broker.url, name)
    query = reader.start(reader.stream(name, startingOffsets="earliest"))
    when(query, lambda batch: batch["batchId"] == 0)

    publish(reader.broker.url, name, numbered(3))
    when(query, reached(name, 3))
    query.stop()

    assert reader.offsets() == [(name, offset) for offset in range(3)]


def test_a_stream_that_is_deleted_ends_the_query_and_says_what_to_do(
    reader: Reader, name: str
) -> None:
    stream(reader.broker.url, name, 5)
    reader.run(name, startingOffsets="earliest")
    delete(reader.broker.url, name)

    with pytest.raises(StreamingQueryException, match=r"no longer there.*failOnDataLoss=false"):
        reader.run(name)


def test_a_stream_declared_anew_ends_the_query_and_says_what_to_do(
    reader: Reader, name: str
) -> None:
    stream(reader.broker.url, name, 20)
    reader.run(name, startingOffsets="earliest")
    delete(reader.broker.url, name)
    stream(reader.broker.url, name, 5)

    with pytest.raises(StreamingQueryException, match=r"declared anew.*failOnDataLoss=false"):
        reader.run(name)


@pytest.mark.slow
def test_a_stream_declared_anew_is_read_from_its_beginning_when_told_so(
    reader: Reader, name: str
) -> None:
    stream(reader.broker.url, name, 20)
    reader.run(name, startingOffsets="earliest")
    delete(reader.broker.url, name)
    stream(reader.broker.url, name, 5)

    batches = reader.run(name, failOnDataLoss=False)

    assert sum(rows(batches)) == 5
    assert len(reader.offsets()) == 25


def test_a_broker_that_is_not_there_is_told_at_once(reader: Reader, name: str) -> None:
    query = reader.start(reader.stream(name, url="amqp://ada:pa55word@127.0.0.1:9"))

    with pytest.raises(StreamingQueryException, match=r"no broker at 127\.0\.0\.1:9") as refused:
        query.awaitTermination(QUERY_SECONDS)
    assert "pa55word" not in str(refused.value)
