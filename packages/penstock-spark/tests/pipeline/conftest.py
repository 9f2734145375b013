"""What tests of the connector ask of Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from tests.peers import Broker, PeerMissing, Penstock
from tests.pipeline.azurite import azurite_store
from tests.pipeline.cloud_stores import CloudStore, azure_store, google_store
from tests.pipeline.object_store import ObjectStore, object_store

#: A session's first query takes half a minute on a busy machine, and all share the machine.
QUERY_SECONDS = 300
#: Spark gives the process that plans a query ten seconds to start, and nobody can give it more.
BUSY = "Python worker failed to connect back"
TRIES = 4


@dataclass
class Reader:
    """Reads streams of one broker through Spark."""

    spark: SparkSession
    broker: Broker
    folder: Path

    def batch(self, streams: str, **options: Any) -> DataFrame:
        return cast(DataFrame, self._configured(self.spark.read, streams, options).load())

    def stream(self, streams: str, **options: Any) -> DataFrame:
        return cast(DataFrame, self._configured(self.spark.readStream, streams, options).load())

    def run(self, streams: str, **options: Any) -> list[Any]:
        """A query that takes what there is and ends; again with the same name, it goes on."""
        frame = self.stream(streams, **options)
        query = ended(lambda: self.start(frame, trigger={"availableNow": True}))
        return list(query.recentProgress)

    def start(self, frame: DataFrame, trigger: dict[str, Any] | None = None) -> StreamingQuery:
        written = frame.writeStream.format("parquet").option("path", str(self.folder / "out"))
        checkpoint = str(self.folder / "checkpoint")
        return (
            written.option("checkpointLocation", checkpoint)
            .trigger(**(trigger or {"processingTime": "0 seconds"}))
            .start()
        )

    def offsets(self) -> list[tuple[str, int]]:
        """What has been written: streams and offsets, sorted."""
        out = self.spark.read.parquet(str(self.folder / "out"))
        return sorted((row.stream, row.offset) for row in out.select("stream", "offset").collect())

    def _configured(self, reader: Any, streams: str, options: dict[str, Any]) -> Any:
        given = {"url": self.broker.url, "streams": streams, "retrySeconds": 30} | options
        return reader.format("penstock").options(**given)


def ended(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """A query, once it has ended; one that Spark could not begin is started again."""
    for tries_left in reversed(range(TRIES)):
        query = start()
        try:
            assert query.awaitTermination(QUERY_SECONDS), "the query goes on"
            break
        except StreamingQueryException as error:
            if BUSY not in str(error) or not tries_left:
                raise
    return query


@pytest.fixture
def reader(spark: SparkSession, broker: Broker, tmp_path: Path) -> Iterator[Reader]:
    yield Reader(spark, broker, tmp_path)
    stop_all(spark)


@pytest.fixture
def penstock_reader(spark: SparkSession, penstock: Penstock, tmp_path: Path) -> Iterator[Reader]:
    """For what is the same whoever keeps the streams."""
    yield Reader(spark, penstock, tmp_path)
    stop_all(spark)


def stop_all(spark: SparkSession) -> None:
    for query in spark.streams.active:
        query.stop()


@pytest.fixture(scope="session")
def s3() -> Iterator[ObjectStore]:
    """An object store with the bucket `lake`."""
    with object_store() as store:
        yield store


@pytest.fixture(scope="session")
def azure() -> Iterator[CloudStore]:
    with azure_store() as store:
        yield store


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CloudStore]:
    with ExitStack() as stack:
        try:
            store = stack.enter_context(azurite_store(tmp_path_factory.mktemp("azurite")))
        except PeerMissing as peer:
            pytest.skip(str(peer))  # not every machine reaches what npm installs
        yield store


@pytest.fixture(scope="session")
def google() -> Iterator[CloudStore]:
    with google_store() as store:
        yield store
