"""`spark.readStream`, on Penstock and on RabbitMQ.

What a query reads in which batch is `connector/test_stream_reader.py`; here Spark asks, and keeps
the checkpoint.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from penstock_spark import QueryMetrics, stream_offsets
from tests.pipeline.conftest import Reader
from tests.pipeline.given import delete, numbered, publish, stream


def rows(batches: list[Any]) -> list[int]:
    return [batch["numInputRows"] for batch in batches]


def when(query: StreamingQuery, holds: Callable[[Any], bool]) -> None:
    """Returns when a batch of the query was such."""
    while not any(holds(batch) for batch in query.recentProgress):
        # Ends the wait, with the query's own error, should it fail.
        assert not query.awaitTermination(cast(int, 0.05))


def reached(name: str, offset: int) -> Callable[[Any], bool]:
    return lambda batch: json.loads(batch["sources"][0]["endOffset"]).get(name) == offset


def test_a_query_goes_on_where_it_ended_whatever_the_starting_offsets(
    reader: Reader, name: str
) -> None:
    stream(reader.broker.url, name, 20)
    reader.run(name, startingOffsets="earliest")
    publish(reader.broker.url, name, numbered(15, 20))

    batches = reader.run(name, startingOffsets="latest")

    assert sum(rows(batches)) == 15
    assert reader.offsets() == [(name, offset) for offset in range(35)]


def test_a_batch_takes_no_more_than_it_may_and_tells_what_waits(
    penstock_reader: Reader, name: str
) -> None:
    reader = penstock_reader
    for part, count in enumerate((60, 20, 0)):
        stream(reader.broker.url, f"{name}-{part}", count)
    names = ",".join(f"{name}-{part}" for part in range(3))

    batches = reader.run(names, startingOffsets="earliest", maxOffsetsPerTrigger=40)

    assert rows(batches) == [40, 40]
    first = json.loads(batches[0]["sources"][0]["endOffset"])
    assert first == {f"{name}-0": 30, f"{name}-1": 10, f"{name}-2": 0}
    latest = json.loads(batches[0]["sources"][0]["latestOffset"])
    assert latest == {f"{name}-0": 60, f"{name}-1": 20, f"{name}-2": 0}


def test_progress_and_metrics_tell_offsets_and_lag(penstock_reader: Reader, name: str) -> None:
    reader = penstock_reader
    stream(reader.broker.url, name, 60)
    registry = CollectorRegistry()
    metrics = QueryMetrics(registry)
    reader.spark.streams.addListener(metrics)
    seen: list[dict[str, float | None]] = []
    metrics.onQueryTerminated = lambda event: seen.append(  # type: ignore[method-assign]
        {
            each: registry.get_sample_value(
                f"penstock_spark_{each}", {"query": str(event.id)} | labels
            )
            for each, labels in (
                ("rows_total", {}),
                ("next_offset", {"stream": name}),
                ("latest_offset", {"stream": name}),
                ("lag_messages", {"stream": name}),
            )
        }
    )
    try:
        # The limit in bytes is Spark's as well: it hands it back for each batch.
        batches = reader.run(name, startingOffsets="earliest", maxBytesPerTrigger=1500)
        while not seen:  # Spark tells its listeners later
            time.sleep(0.05)
    finally:
        reader.spark.streams.removeListener(metrics)

    first, *_, last = (stream_offsets(batch)[name] for batch in batches)
    assert (first.start, first.latest) == (None, 60)  # Spark notes where a batch ends
    assert 0 < first.end < 60
    assert 0 < (last.start or 0) < 60
    assert first.lag == 60 - first.end
    assert (last.end, last.lag) == (60, 0)
    assert seen == [{"rows_total": 60, "next_offset": 60, "latest_offset": 60, "lag_messages": 0}]


def test_a_first_batch_that_is_run_again_begins_where_it_began(
    penstock_reader: Reader, name: str
) -> None:
    reader = penstock_reader
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
def test_a_query_that_runs_gets_what_comes(reader: Reader, name: str) -> None:
    stream(reader.broker.url, name, 10)
    query = reader.start(reader.stream(name, startingOffsets="latest"))
    when(query, reached(name, 10))

    publish(reader.broker.url, name, numbered(5, 10))
    when(query, reached(name, 15))
    query.stop()

    assert reader.offsets() == [(name, offset) for offset in range(10, 15)]


def test_lost_messages_end_the_query_and_it_says_what_to_do(
    penstock_reader: Reader, name: str
) -> None:
    reader = penstock_reader
    stream(reader.broker.url, name, 20)
    reader.run(name, startingOffsets="earliest")
    delete(reader.broker.url, name)
    stream(reader.broker.url, name, 5)

    with pytest.raises(StreamingQueryException, match=r"declared again.*failOnDataLoss=false"):
        reader.run(name)


def test_a_broker_that_is_not_there_is_told_at_once(penstock_reader: Reader, name: str) -> None:
    with pytest.raises(StreamingQueryException, match=r"no broker at 127\.0\.0\.1:9") as refused:
        penstock_reader.run(name, url="amqp://ada:pa55word@127.0.0.1:9")
    assert "pa55word" not in str(refused.value)
