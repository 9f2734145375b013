"""`spark.read`: the messages of streams between two positions, and their division into tasks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.core.errors import ConfigurationError
from penstock_spark.connector.columns import MessageColumns
from penstock_spark.connector.options import ReadOptions
from penstock_spark.connector.range_reader import DataLossPolicy, RangeReader
from penstock_spark.streams.backend import StreamBackend, StreamRange
from penstock_spark.streams.endpoint import StreamEndpoint


@dataclass
class StreamPartition(InputPartition):
    endpoint: StreamEndpoint
    wanted: StreamRange


class BatchReader(DataSourceReader):
    def __init__(self, options: ReadOptions, columns: MessageColumns) -> None:
        self._options = options
        self._range_reader = RangeReader(columns, options.fail_on_loss, options.retry_seconds)

    def partitions(self) -> list[InputPartition]:
        endpoint = self._options.find_endpoint()
        with closing(endpoint.open()) as streams:
            ranges = self._ranges(streams)
        return [
            StreamPartition(endpoint, each)
            for each in split_ranges(ranges, self._options.min_partitions)
        ]

    def _ranges(self, streams: StreamBackend) -> list[StreamRange]:
        options = self._options
        names = options.selection.choose(streams)
        start = options.starting.resolve(streams, names)
        stop = options.ending.resolve(streams, names)
        firsts = streams.first_offsets(names)
        loss = DataLossPolicy(options.fail_on_loss)
        ranges = []
        for name in sorted(start.keys() & stop.keys()):
            begin = max(start[name], firsts.get(name) or 0)
            if streams.is_data_loss(name, start[name], begin):
                loss.gap(name, start[name], begin)
            if stop[name] < begin and options.ending.named:
                raise ConfigurationError(
                    f"endingOffsets: stream {name!r} begins at {begin}, after {stop[name]}"
                )
            ranges.append(StreamRange(name, begin, max(begin, stop[name])))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Without partitions, Spark passes one of its own.
        if isinstance(partition, StreamPartition):
            yield from self._range_reader.rows(partition.endpoint, partition.wanted)


#: The size of a partition without `minPartitions`: large enough to hide the cost of a task, small
#: enough to keep all cores busy.
PARTITION_MESSAGES: Final = 131_072
#: Of a range that has enough partitions of that size; each task costs the driver milliseconds.
MAX_PARTITION_MESSAGES: Final = 262_144
_ENOUGH_PARTITIONS: Final = 8


def limit_end_offsets(
    start: Mapping[str, int], ends: Mapping[str, int], limit: int
) -> dict[str, int]:
    """The end of a batch of at most `limit` messages, shared in proportion to the backlogs.

    Every stream with messages contributes at least one; only with more streams than `limit` does a
    batch exceed it.
    """
    waiting = {name: ends[name] - start[name] for name in ends if ends[name] > start[name]}
    total = sum(waiting.values())
    if total <= limit:
        return dict(ends)
    # The rest from rounding goes to the largest remainders.
    shares = {name: max(1, count * limit // total) for name, count in waiting.items()}
    left = limit - sum(shares.values())
    for name in sorted(waiting, key=lambda name: -(waiting[name] * limit % total)):
        if left > 0 and shares[name] < waiting[name]:
            shares[name] += 1
            left -= 1
    # Shares that were raised to one are taken from the largest.
    for name in sorted(shares, key=lambda name: -shares[name]):
        if left < 0:
            less = min(shares[name] - 1, -left)
            shares[name] -= less
            left += less
    return {name: start[name] + shares[name] if name in shares else ends[name] for name in ends}


def split_ranges(ranges: Iterable[StreamRange], minimum: int | None) -> list[StreamRange]:
    """Partitions of the ranges: at least `minimum`, if there are as many messages."""
    whole = [each for each in ranges if len(each) > 0]
    total = sum(len(each) for each in whole)
    size = min(max(PARTITION_MESSAGES, total // _ENOUGH_PARTITIONS), MAX_PARTITION_MESSAGES)
    parts: list[StreamRange] = []
    for each in whole:
        if minimum is not None:
            count = -(-len(each) * minimum // total)
        else:
            count = -(-len(each) // size)
        parts += each.split(min(count, len(each)))
    return parts
