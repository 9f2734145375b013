"""The ways to read that are compared: each reads all there is, and is counted round by round.

Nothing is said about time: a figure from so few rows on a busy machine means nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from benchmarks.peers import Peer, available
from benchmarks.spark.fill import BODY_BYTES, fill, reports_a_chunk
from benchmarks.spark.peers import start_with_management
from benchmarks.spark.rates import Way, in_turns
from benchmarks.spark.ways import batch, consume, follow, take

ROWS = 2_345
ROUNDS = 2


@pytest.fixture(scope="module", params=["penstock", "rabbitmq"])
def peer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Peer]:
    if not available(request.param) and os.environ.get("CI") != "true":
        pytest.skip(f"{request.param} is not installed here")
    running = start_with_management(request.param, tmp_path_factory.mktemp(request.param))
    yield running
    running.close()


@pytest.mark.slow  # starts Spark and two brokers
@pytest.mark.peer
@pytest.mark.timeout(600)
def test_every_way_reads_all_there_is(spark: SparkSession, peer: Peer, tmp_path: Path) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{peer.port}/%2F"
    fill(url, {"reports": ROWS})
    frame = batch(spark, url, ["reports"])
    ways = [
        Way("a batch", ROWS, partial(take, frame)),
        Way("a query", ROWS, partial(follow, spark, url, ["reports"], tmp_path)),
        Way("pika", ROWS, partial(consume, url, "reports", ROWS)),
    ]

    rates = in_turns(peer, ways, ROUNDS, lambda _, steps: lambda completed: None)

    assert {len(row.body) for row in frame.select("body").collect()} == {BODY_BYTES}
    assert frame.count() == ROWS
    assert [(each.name, each.rows, len(each.rounds)) for each in rates] == [
        ("a batch", ROWS, ROUNDS),
        ("a query", ROWS, ROUNDS),
        ("pika", ROWS, ROUNDS),
    ]
    assert all(each.median > 0 for each in rates)
    if peer.stream_port:
        assert 1 <= reports_a_chunk(url, peer.stream_port, {"reports": ROWS}) <= ROWS
