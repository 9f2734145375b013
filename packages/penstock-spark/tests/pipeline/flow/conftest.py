"""What tests of the engine begin with: streams, a flow, and the engine on one Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.functions import current_timestamp

from penstock.client.amqp091.bulk_publisher import BulkPublisher
from penstock.core.basic_properties import BasicProperties, encode_header, encode_shortstr
from penstock.wire.amqp091.address import parse_amqp_url
from penstock_spark.batch_processor import BatchProcessor, open_checkpoint
from penstock_spark.connector.columns import ARROW_TYPES, PACKED_COLUMN, pack_messages
from penstock_spark.directory import FlowDirectory
from penstock_spark.runner import FlowRunner, SourceOptions
from tests.peers import Penstock
from tests.pipeline.flow.tally import Tally
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
        with BulkPublisher(
            parse_amqp_url(self.url), mandatory=True, retry_seconds=60.0
        ) as publisher:
            for number in range(first, first + count):
                key = f"{self.name}.{KEYS[number % len(KEYS)]}"
                stream = self.streams[number % len(self.streams)]
                route = encode_shortstr(stream, "exchange") + encode_shortstr(key, "routing_key")
                header = encode_header(BasicProperties(message_id=f"{number}"), 6)
                publisher.publish(route, header, f"{number:06}".encode())
                self.sent[key] += 1
            publisher.flush()


@dataclass
class Live:
    """Batches as the engine's query hands them on, of messages made up here: nobody is asked."""

    spark: SparkSession
    tally: Tally
    directory: FlowDirectory
    sent: Counter[str] = field(default_factory=Counter)
    batches: int = 0
    writer: int | None = None
    _last: bytearray = field(default_factory=bytearray)

    def apply(self, count: int) -> None:
        """So many messages, in batches of a hundred."""
        for size in (100,) * (count // 100) + (count % 100,) * (count % 100 > 0):
            self._last = bytearray(pack_messages(self._messages(size)).column(0)[0].as_py())
            self._apply()
            self.batches += 1

    def apply_again(self) -> None:
        """The last batch, as after a crash before Spark knew that it is done."""
        self.batches -= 1
        self._apply()

    def _apply(self) -> None:
        checkpoint = open_checkpoint(self.directory.checkpoint, self.directory.lake)
        arrived = self.spark.createDataFrame([(self._last,)], f"{PACKED_COLUMN} BINARY")
        applying = BatchProcessor(self.tally, self.directory, checkpoint, writer=self.writer)
        applying(arrived.withColumn("now", current_timestamp()), self.batches)

    def _messages(self, count: int) -> pa.RecordBatch:
        first = sum(self.sent.values())
        keys = [KEYS[number % len(KEYS)] for number in range(first, first + count)]
        self.sent.update(keys)
        columns = {name: pa.nulls(count, kind) for name, kind in ARROW_TYPES.items()}
        columns |= {
            "stream": pa.repeat("colours", count),
            "offset": pa.array(range(first, first + count), pa.int64()),
            "timestamp": pa.array([datetime.now(UTC)] * count, ARROW_TYPES["timestamp"]),
            "routing_key": pa.array(keys),
            "body": pa.array([b"body"] * count),
        }
        return pa.RecordBatch.from_pydict(columns, pa.schema(list(ARROW_TYPES.items())))


@pytest.fixture
def town(penstock: Penstock, name: str) -> Town:
    return Town(penstock.url, name)


@pytest.fixture
def tally(tmp_path: Path, name: str) -> Tally:
    return Tally(tmp_path, f"{name}-*")


@pytest.fixture
def directory(tmp_path: Path, tally: Tally) -> FlowDirectory:
    return FlowDirectory(tmp_path, tally.name)


@pytest.fixture
def engine(
    spark: SparkSession, tally: Tally, directory: FlowDirectory, town: Town
) -> Iterator[FlowRunner]:
    yield FlowRunner(spark, tally, directory, SourceOptions(town.url, max_offsets=100))
    for query in spark.streams.active:
        query.stop()


@pytest.fixture
def live(spark: SparkSession, tally: Tally, directory: FlowDirectory) -> Live:
    return Live(spark, tally, directory)


def in_lake(directory: FlowDirectory, table: str) -> Counter[str]:
    """How often each key is in a table, by the files that are the table."""
    held = directory.lake.table(table)
    found: Counter[str] = Counter()
    for file in held.files():
        for row in held.read_file(file).to_pylist():
            found[row["routing_key"]] += row.get("count", 1)
    return found
