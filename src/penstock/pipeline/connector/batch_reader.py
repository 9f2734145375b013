"""`spark.read`: what streams hold between two positions, as of the moment it is planned."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.core.errors import ConfigurationError
from penstock.pipeline.brokers.contract import Range, Streams
from penstock.pipeline.brokers.opening import Door
from penstock.pipeline.connector.admission import divide
from penstock.pipeline.connector.columns import Columns
from penstock.pipeline.connector.loss import LossPolicy
from penstock.pipeline.connector.options import ReadOptions
from penstock.pipeline.connector.reading import Reading


@dataclass
class Part(InputPartition):
    """A task's share: a range, and how to get at it."""

    door: Door
    wanted: Range


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, columns: Columns) -> None:
        self._options = options
        self._reading = Reading(columns, options.fail_on_loss, options.patience)

    def partitions(self) -> list[InputPartition]:
        door = self._options.find_door()
        with closing(door.open()) as streams:
            ranges = self._ranges(streams)
        return [Part(door, each) for each in divide(ranges, self._options.min_partitions)]

    def _ranges(self, streams: Streams) -> list[Range]:
        options = self._options
        names = options.selection.choose(streams)
        start = options.starting.resolve(streams, names)
        stop = options.ending.resolve(streams, names)
        firsts = streams.firsts(names)
        loss = LossPolicy(options.fail_on_loss)
        ranges = []
        for name in sorted(start.keys() & stop.keys()):
            begin = max(start[name], firsts.get(name) or 0)
            if streams.lost(name, start[name], begin):
                loss.gap(name, start[name], begin)
            if stop[name] < begin and options.ending.named:
                raise ConfigurationError(
                    f"endingOffsets: stream {name!r} begins at {begin}, behind {stop[name]}"
                )
            ranges.append(Range(name, begin, max(begin, stop[name])))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # When there is nothing to read, Spark makes up a partition of its own.
        if isinstance(partition, Part):
            yield from self._reading.rows(partition.door, partition.wanted)
