"""Streams chosen by a pattern: those that are there, and those that come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.fixtures import missing
from tests.peers import Broker, PeerMissing, Penstock, RabbitMQ, free_port
from tests.pipeline.conftest import Reader
from tests.pipeline.given import channel, stream
from tests.pipeline.test_stream import reached, when


class ManagedRabbitMQ(RabbitMQ):
    """RabbitMQ with its management plugin, which alone can list queues."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, ("rabbitmq_management",))
        self.management_port = free_port()

    def _write_configuration(self) -> dict[str, str]:
        environment = super()._write_configuration()
        with (self.folder / "rabbitmq.conf").open("a") as configuration:
            configuration.write(f"management.tcp.port = {self.management_port}\n")
            configuration.write("management.tcp.ip = 127.0.0.1\n")
        return environment


@pytest.fixture(scope="module")
def managed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ManagedRabbitMQ]:
    try:
        server = ManagedRabbitMQ(tmp_path_factory.mktemp("managed"))
    except PeerMissing as peer:
        missing(peer)
        raise
    server.start()
    yield server
    server.stop()


def read_as_they_come(reader: Reader, name: str, **options: str) -> None:
    url = reader.broker.url
    stream(url, f"{name}-0", 5)
    stream(url, f"other-{name}", 5)
    with channel(url) as opened:
        opened.queue_declare(f"{name}-queue", durable=True)
    query = reader.start(reader.stream(f"{name}-*", startingOffsets="earliest", **options))
    when(query, reached(f"{name}-0", 5))

    stream(url, f"{name}-1", 3)
    when(query, reached(f"{name}-1", 3))
    query.stop()

    expected = [(f"{name}-0", offset) for offset in range(5)]
    assert reader.offsets() == expected + [(f"{name}-1", offset) for offset in range(3)]


def test_streams_of_penstock_are_read_as_they_come(
    penstock: Penstock, spark: SparkSession, tmp_path: Path, name: str
) -> None:
    read_as_they_come(Reader(spark, penstock, tmp_path), name)


@pytest.mark.slow
@pytest.mark.peer
def test_streams_of_rabbitmq_are_read_as_they_come(
    managed: ManagedRabbitMQ, spark: SparkSession, tmp_path: Path, name: str
) -> None:
    management = f"http://127.0.0.1:{managed.management_port}"

    read_as_they_come(Reader(spark, managed, tmp_path), name, managementUrl=management)


@pytest.mark.peer
def test_rabbitmq_without_its_management_says_what_a_pattern_needs(
    rabbitmq: RabbitMQ, spark: SparkSession, tmp_path: Path
) -> None:
    reader = Reader(spark, rabbitmq, tmp_path)
    nobody = f"http://127.0.0.1:{free_port()}"

    with pytest.raises(AnalysisException, match=r"management plugin.*or write the names out"):
        reader.batch("sensors-*", managementUrl=nobody).collect()


def test_a_pattern_that_matches_nothing_has_no_rows(
    penstock: Penstock, spark: SparkSession, tmp_path: Path, name: str
) -> None:
    server: Broker = penstock

    assert Reader(spark, server, tmp_path).batch(f"{name}-*").collect() == []
