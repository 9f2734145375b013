"""Who runs a batch: this process, or Spark. Both run the same `LandingTask`."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa

from penstock_spark.connector.columns import (
    ARROW_TYPES,
    PACKED_COLUMN,
    MessageColumns,
    unpack_messages,
)
from penstock_spark.connector.range_reader import RangeReader
from penstock_spark.landing.task import LandingReport, LandingTask
from penstock_spark.streams.backend import StreamRange
from penstock_spark.streams.endpoint import StreamEndpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: How long a batch waits for a broker that went away.
RETRY_SECONDS: Final = 60.0


class LandingEngine(Protocol):
    def run(self, ranges: Sequence[StreamRange], task: LandingTask) -> LandingReport: ...


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Runs batches in this process, with Arrow alone."""

    endpoint: StreamEndpoint
    fail_on_loss: bool = True

    def run(self, ranges: Sequence[StreamRange], task: LandingTask) -> LandingReport:
        return task.run(self.read(ranges))

    def read(self, ranges: Sequence[StreamRange]) -> Iterator[pa.RecordBatch]:
        reader = RangeReader(MessageColumns(tuple(ARROW_TYPES)), self.fail_on_loss, RETRY_SECONDS)
        for each in ranges:
            yield from reader.rows(self.endpoint, each)


@dataclass(frozen=True, slots=True)
class SparkEngine:
    """Runs batches as Spark jobs: the connector divides the ranges, workers write the files."""

    spark: SparkSession
    url: str
    management_url: str | None = None
    stream_port: int | None = None
    fail_on_loss: bool = True

    def run(self, ranges: Sequence[StreamRange], task: LandingTask) -> LandingReport:
        options: dict[str, str | int | float] = {
            "url": self.url,
            "streams": json.dumps([each.stream for each in ranges]),
            "startingOffsets": json.dumps({each.stream: each.start for each in ranges}),
            "endingOffsets": json.dumps({each.stream: each.stop for each in ranges}),
            "failOnDataLoss": str(self.fail_on_loss).lower(),
            "retrySeconds": RETRY_SECONDS,
        }
        if self.management_url is not None:
            options["managementUrl"] = self.management_url
        if self.stream_port is not None:
            options["streamPort"] = self.stream_port
        reader = self.spark.read.format("penstock").options(**options)
        messages = reader.schema(f"{PACKED_COLUMN} BINARY").load()
        report = LandingReport()
        for row in messages.mapInArrow(_SparkTask(task), "report BINARY").collect():
            report.add(pickle.loads(bytes(row.report)))  # noqa: S301 - our own workers
        return report


@dataclass(frozen=True, slots=True)
class _SparkTask:
    task: LandingTask

    def __call__(self, packed: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        report = self.task.run(
            messages
            for rows in packed
            for value in rows[PACKED_COLUMN]
            for messages in unpack_messages(value)
        )
        yield pa.RecordBatch.from_pydict({"report": pa.array([pickle.dumps(report)], pa.binary())})


@contextmanager
def spark_session(
    master: str, remote: str | None, settings: dict[str, str]
) -> Iterator[SparkSession]:
    from penstock.core.java import check_java
    from penstock_spark.session import flow_session

    if remote is None:
        check_java()
    with flow_session("landing", master, remote, settings) as spark:
        yield spark
