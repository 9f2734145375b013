"""What tests of the engine begin with: streams, a flow, and the engine on one Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.pipeline.amqp.address import parse_url
from penstock.pipeline.amqp.contents import content_header, short_string
from penstock.pipeline.amqp.publisher import Publisher
from penstock.pipeline.place import Place
from penstock.pipeline.runner import Engine, Source
from tests.peers import Penstock
from tests.pipeline.engine.tally import Tally
from tests.pipeline.given import channel, declare

KEYS = ("red", "green", "blue")


@dataclass
class Town:
    """Streams that have come from one exchange, and how often each key was published."""

    url: str
    name: str
    sent: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.streams = [f"{self.name}-{part}" for part in range(2)]
        with channel(self.url) as opened:
            for stream in self.streams:
                declare(self.url, stream)
                opened.exchange_declare(stream, "fanout", durable=True)
                opened.queue_bind(stream, stream)

    def publish(self, count: int) -> None:
        """Returns when the broker has them all safe."""
        first = sum(self.sent.values())
        with Publisher(parse_url(self.url), mandatory=True, patience=60.0) as publisher:
            for number in range(first, first + count):
                key = f"{self.name}.{KEYS[number % len(KEYS)]}"
                stream = self.streams[number % len(self.streams)]
                route = short_string(stream, "exchange") + short_string(key, "routing_key")
                header = content_header(6, None, None, f"{number}")
                publisher.publish(route, header, f"{number:06}".encode())
                self.sent[key] += 1
            publisher.flush()


@pytest.fixture
def town(penstock: Penstock, name: str) -> Town:
    return Town(penstock.url, name)


@pytest.fixture
def tally(tmp_path: Path, town: Town) -> Tally:
    return Tally(tmp_path, f"{town.name}-*")


@pytest.fixture
def place(tmp_path: Path, tally: Tally) -> Place:
    return Place(tmp_path, tally.name)


@pytest.fixture
def engine(spark: SparkSession, tally: Tally, place: Place, town: Town) -> Iterator[Engine]:
    yield Engine(spark, tally, place, Source(town.url, max_offsets=100))
    for query in spark.streams.active:
        query.stop()


def in_lake(spark: SparkSession, place: Place, table: str) -> Counter[str]:
    """How often each key is in a table."""
    frame = place.lake.read(spark, table)
    column = "count" if "count" in frame.columns else None
    found: Counter[str] = Counter()
    for row in frame.collect():
        found[row.routing_key] += row[column] if column else 1
    return found
