"""The work of a batch: messages in, data files out. Any process can do it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
import pyarrow as pa

from penstock_spark.lake.data_file import DataFile, DataFileWriter
from penstock_spark.lake.storage import StorageLocation
from penstock_spark.landing.message_column import OFFSET
from penstock_spark.landing.message_decoder import (
    DEAD_LETTER_SCHEMA,
    MessageDecoder,
    combine_batches,
)
from penstock_spark.landing.types import merge_types


@dataclass(slots=True)
class StreamReport:
    """What a task wrote of one stream."""

    files: list[DataFile] = field(default_factory=list)
    dead_files: list[DataFile] = field(default_factory=list)

    def add(self, other: StreamReport) -> None:
        self.files += other.files
        self.dead_files += other.dead_files

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def dead(self) -> int:
        return sum(file.rows for file in self.dead_files)


@dataclass(slots=True)
class LandingReport:
    streams: dict[str, StreamReport] = field(default_factory=dict)
    #: Fields that the table lacks; then the files are incomplete.
    found: pa.DataType = field(default_factory=pa.null)

    def add(self, other: LandingReport) -> None:
        self.found = merge_types(self.found, other.found)
        for stream, report in other.streams.items():
            self.streams.setdefault(stream, StreamReport()).add(report)


@dataclass(frozen=True, slots=True)
class LandingTask:
    """Picklable, and the same for all tasks of a batch."""

    decoder: MessageDecoder
    location: StorageLocation
    dead_letter_location: StorageLocation
    partition_by: tuple[str, ...]
    now: datetime  #: for messages without a time
    #: By stream: offsets that are dead letters already. An earlier attempt of the batch ended
    #: between the commits of the two tables.
    finished: Mapping[str, frozenset[int]] = field(default_factory=dict)

    def run(self, messages: Iterable[pa.RecordBatch]) -> LandingReport:
        """`messages` has the columns of the connector, and one stream per batch."""
        report = LandingReport()
        writers: dict[str, tuple[DataFileWriter, DataFileWriter]] = {}
        for some in combine_batches(messages):
            stream = str(some["stream"][0])
            decoded = self.decoder.decode(some, self.now)
            report.found = merge_types(report.found, decoded.found)
            if report.found != pa.null():
                continue  # the batch is decoded again, with more columns
            if stream not in writers:
                writers[stream] = self._open_writers()
            for writer, rows in zip(writers[stream], (decoded.rows, decoded.dead), strict=True):
                if len(rows := self._unfinished(stream, rows)):
                    writer.add(rows)
        if report.found == pa.null():
            for stream, (rows_writer, dead_writer) in writers.items():
                report.streams[stream] = StreamReport(rows_writer.close(), dead_writer.close())
        return report

    def _open_writers(self) -> tuple[DataFileWriter, DataFileWriter]:
        return (
            DataFileWriter(self.location, self.decoder.schema, self.partition_by),
            DataFileWriter(self.dead_letter_location, DEAD_LETTER_SCHEMA),
        )

    def _unfinished(self, stream: str, rows: pa.Table) -> pa.Table:
        if not (finished := self.finished.get(stream)):
            return rows
        known = np.isin(rows[OFFSET].to_numpy(), np.array(sorted(finished), np.int64))
        return rows.filter(pa.array(~known))
