"""`spark.readStream`: micro-batches of streams, exactly once with Spark's checkpoint.

A batch is a pair of offsets, `{stream: next offset}`, that Spark stores before it reads, and reads
again after a crash; a stream is a log, so the same pair is the same messages. Three rules keep that
true:

* If a query crashes before its first batch is complete, Spark asks for the initial offset again,
  and `latest` would be later. So, where the answer may change, the first batch takes no messages of
  a stream: it ends where it begins, and that is stored.
* A stream that appears while the query runs enters the offsets with its first offset and
  contributes messages from the next batch on, for the same reason.
* Planned messages exist: end offsets are of durable messages, and what retention removes before it
  is read is reported as a loss (`range_reader.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.core.retry import RetryPolicy, retry
from penstock.core.units import MiB
from penstock.wire.amqp091.errors import is_transient_amqp_error
from penstock_spark.connector.batch_reader import StreamPartition, limit_end_offsets, split_ranges
from penstock_spark.connector.columns import MessageColumns
from penstock_spark.connector.options import ReadOptions
from penstock_spark.connector.range_reader import RETRY_SECONDS, DataLossPolicy, RangeReader
from penstock_spark.streams.backend import Offsets, StreamBackend, StreamRange
from penstock_spark.streams.endpoint import StreamEndpoint

_T = TypeVar("_T")
#: Sizes are asked for if messages of this size would exceed the limit: on RabbitMQ it takes a
#: connection, more than reading a few messages.
_LARGE_MESSAGE: Final = 1 * MiB


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, columns: MessageColumns) -> None:
        self._options = options
        self._range_reader = RangeReader(columns, options.fail_on_loss, options.retry_seconds)
        self._loss = DataLossPolicy(options.fail_on_loss)
        self._endpoint: StreamEndpoint | None = None
        self._streams: StreamBackend | None = None
        self._answered = False  # the broker was reached
        self._initial: dict[str, int] | None = None
        self._empty_first: dict[str, int] = {}  # streams of which the first batch takes nothing
        self._target: Offsets | None = None  # the end of an `availableNow` query
        self._latest: Offsets | None = None

    # Offsets.

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:  # Spark asks twice and must get the same answer
            self._initial = self._ask(self._find_initial)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        # Spark knows one limit; `latestOffset` observes both.
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.max_bytes is not None:
            return ReadMaxBytes(self._options.max_bytes)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ask(lambda streams: self._ends(streams, {}))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        ends = self._latest = self._ask(lambda streams: self._ends(streams, start))
        begin: dict[str, int] = {}
        stop: dict[str, int] = {}
        for name, position in start.items():
            if name not in ends:
                self._loss.missing(name, position)
                continue
            end = ends[name]
            if end is None or position == self._empty_first.get(name):
                stop[name] = position
            elif end < position:
                self._loss.ended(name, position, end)
                stop[name] = end
            else:
                begin[name], stop[name] = position, self._bounded(name, position, end)
        self._empty_first.clear()
        if not isinstance(limit, ReadAllAvailable):
            stop |= self._limited(begin, {name: stop[name] for name in begin})
        stop |= self._first_offsets_of_new([name for name in ends if name not in start])
        return dict(sorted(stop.items()))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        if self._latest is None:
            return None
        return {name: end for name, end in self._latest.items() if end is not None}

    # Ranges.

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        wanted = [name for name in end if name in start and end[name] != start[name]]
        if not wanted:
            return []
        firsts = self._ask(lambda streams: streams.first_offsets(wanted))
        ranges = [self._range(name, start[name], end[name], firsts) for name in wanted]
        assert self._endpoint is not None  # found by asking
        parts = split_ranges(ranges, self._options.min_partitions)
        return [StreamPartition(self._endpoint, each) for each in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, StreamPartition)
        return self._range_reader.rows(partition.endpoint, partition.wanted)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: positions are in the checkpoint."""

    def stop(self) -> None:
        if self._streams is not None:
            self._streams.close()
            self._streams = None

    # Queries to the broker.

    def _find_initial(self, streams: StreamBackend) -> dict[str, int]:
        names = self._options.selection.choose(streams)
        starting = self._options.starting
        initial = starting.resolve(streams, names)
        ends = streams.next_offsets(initial, initial)
        self._empty_first = {
            name: offset
            for name, offset in initial.items()
            if not starting.settled(name, offset, ends.get(name) or 0)
        }
        return initial

    def _ends(self, streams: StreamBackend, known: Mapping[str, int]) -> Offsets:
        names = self._options.selection.choose(streams)
        return streams.next_offsets(names, {**(self._latest or {}), **known})

    def _bounded(self, name: str, position: int, end: int) -> int:
        """The end, limited to the messages that existed when an `availableNow` query began."""
        if self._target is None:
            return end
        return max(position, min(end, self._target.get(name) or 0))

    def _limited(self, begin: Mapping[str, int], stop: dict[str, int]) -> dict[str, int]:
        """The ends of a batch within `maxOffsetsPerTrigger` and `maxBytesPerTrigger`."""
        if self._options.max_offsets is not None:
            stop = limit_end_offsets(begin, stop, self._options.max_offsets)
        most = self._options.max_bytes
        if most is None:
            return stop
        ranges = [StreamRange(name, begin[name], stop[name]) for name in begin]
        ranges = [each for each in ranges if len(each) > 0]
        total = sum(map(len, ranges))
        if total * _LARGE_MESSAGE <= most:
            return stop
        return stop | self._ask(
            lambda streams: {
                each.stream: streams.limit_bytes(each, most * len(each) // total) for each in ranges
            }
        )

    def _first_offsets_of_new(self, names: list[str]) -> dict[str, int]:
        """The first offsets of streams that were missing or empty until now."""
        wanted = [name for name in names if self._target is None or name in self._target]
        firsts = self._ask(lambda streams: streams.first_offsets(wanted)) if wanted else {}
        return {name: first for name, first in firsts.items() if first is not None}

    def _range(self, name: str, start: int, stop: int, firsts: Offsets) -> StreamRange:
        if name not in firsts:
            self._loss.missing(name, start)
            return StreamRange(name, start, start)
        first = firsts[name]
        if first is None:  # unknown: the reader will find out
            return StreamRange(name, start, max(start, stop))
        if stop < start:
            if self._initial is not None and start == self._initial.get(name):
                # The first batch is repeated: it took nothing and would begin later now.
                return StreamRange(name, stop, stop)
            # A stream that was declared again, which was reported with its end.
            return StreamRange(name, min(first, stop), stop)
        if start < first and self._ask(lambda streams: streams.is_data_loss(name, start, first)):
            self._loss.gap(name, start, min(first, stop))
        return StreamRange(name, min(max(start, first), stop), stop)

    def _ask(self, question: Callable[[StreamBackend], _T]) -> _T:
        """Ask over a cached connection, with retries.

        The first question of a query is not retried: a wrong address should fail at once.
        """

        def ask() -> _T:
            try:
                if self._streams is None:
                    self._endpoint = self._options.find_endpoint()
                    self._streams = self._endpoint.open()
                return question(self._streams)
            except Exception:
                self.stop()
                raise

        seconds = self._options.retry_seconds if self._answered else 0.0
        answer = retry(ask, RetryPolicy.fixed(RETRY_SECONDS, seconds), is_transient_amqp_error)
        self._answered = True
        return answer
