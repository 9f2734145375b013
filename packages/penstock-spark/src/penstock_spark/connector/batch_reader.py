"""`spark.read`: what streams hold between two positions, as of the moment it is planned."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
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
    """A task's share: a range, and how to get at it."""

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
                    f"endingOffsets: stream {name!r} begins at {begin}, behind {stop[name]}"
                )
            ranges.append(StreamRange(name, begin, max(begin, stop[name])))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # When there is nothing to read, Spark makes up a partition of its own.
        if isinstance(partition, StreamPartition):
            yield from self._range_reader.rows(partition.endpoint, partition.wanted)


# How much of each stream a batch takes, and how that is divided among tasks. Arithmetic only.

#: Without `minPartitions`, a range is divided into parts of about so many messages: enough that a
#: task's own cost does not show, few enough to keep all cores busy.
PARTITION_MESSAGES: Final = 131_072


def limit_end_offsets(
    start: Mapping[str, int], ends: Mapping[str, int], limit: int
) -> dict[str, int]:
    """Where a batch of at most `limit` messages ends: each gives in proportion to what waits.

    Every stream that has messages gives at least one, so that none starves; only with more streams
    than `limit` does a batch exceed it.
    """
    waiting = {name: ends[name] - start[name] for name in ends if ends[name] > start[name]}
    total = sum(waiting.values())
    if total <= limit:
        return dict(ends)
    # Whole shares first; what rounding left goes to the largest remainders.
    shares = {name: max(1, count * limit // total) for name, count in waiting.items()}
    left = limit - sum(shares.values())
    for name in sorted(waiting, key=lambda name: -(waiting[name] * limit % total)):
        if left > 0 and shares[name] < waiting[name]:
            shares[name] += 1
            left -= 1
    # What was given to those whose share was less than one, the largest have to do without.
    for name in sorted(shares, key=lambda name: -shares[name]):
        if left < 0:
            less = min(shares[name] - 1, -left)
            shares[name] -= less
            left += less
    return {name: start[name] + shares[name] if name in shares else ends[name] for name in ends}


def split_ranges(ranges: Iterable[StreamRange], minimum: int | None) -> list[StreamRange]:
    """Parts of the ranges, one a task: at least `minimum`, as long as there are messages for it."""
    whole = [each for each in ranges if len(each) > 0]
    total = sum(len(each) for each in whole)
    parts: list[StreamRange] = []
    for each in whole:
        if minimum is not None:
            count = -(-len(each) * minimum // total)
        else:
            count = -(-len(each) // PARTITION_MESSAGES)
        parts += _equal_parts(each, min(count, len(each)))
    return parts


def _equal_parts(whole: StreamRange, count: int) -> list[StreamRange]:
    edges = [whole.start + len(whole) * index // count for index in range(count + 1)]
    return [StreamRange(whole.stream, *edge) for edge in pairwise(edges)]
