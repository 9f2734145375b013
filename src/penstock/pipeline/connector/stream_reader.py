"""`spark.readStream`: micro-batches of streams, exactly once with Spark's checkpoint.

A batch is a pair of offsets, `{stream: next offset}` each, that Spark writes down before it reads
and reads again after a crash; a stream is a log, so the same pair is the same messages. Three rules
keep that true at the edges:

* Where a query begins is asked for again if it crashes before its first batch is done. `latest`
  would be later then. So, where the answer may change, the first batch takes nothing of a stream:
  it ends where it begins, and that is written down.
* A stream that appears while the query runs enters the offsets with its first one and gives its
  messages from the next batch on, for the same reason.
* What is planned is there: ends are of messages safely kept, and what retention takes before it is
  read is a loss, which is told (`loss.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from penstock.core.errors import PenstockError
from penstock.core.logs import get_logger
from penstock.pipeline.amqp.faults import passing
from penstock.pipeline.brokers.contract import Range, Streams
from penstock.pipeline.brokers.opening import Door, find_door
from penstock.pipeline.connector.admission import admit, divide
from penstock.pipeline.connector.batch_reader import Part
from penstock.pipeline.connector.columns import Columns
from penstock.pipeline.connector.loss import LossPolicy
from penstock.pipeline.connector.options import ReadOptions
from penstock.pipeline.connector.reading import RETRY_SECONDS, Reading

_log = get_logger(__name__)

Offsets = dict[str, int]
_T = TypeVar("_T")


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: ReadOptions, columns: Columns) -> None:
        self._options = options
        self._reading = Reading(columns, options.fail_on_loss, options.patience)
        self._loss = LossPolicy(options.fail_on_loss)
        self._door: Door | None = None
        self._streams: Streams | None = None
        self._initial: Offsets | None = None
        self._held: set[str] = set()  # streams of which the first batch takes nothing
        self._target: Offsets | None = None  # where a query that ends by itself does
        self._latest: Offsets | None = None

    # Offsets.

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:  # Spark asks twice, and shall not hear two answers
            self._initial = self._ask(self._find_initial)
        return self._initial

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ask(lambda streams: self._ends(streams, {}))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        ends = self._latest = self._ask(lambda streams: self._ends(streams, start))
        if self._target is not None:
            # What has come since is left for the next run; what was read before stays read.
            ends = {
                name: max(min(end, self._target[name]), min(end, start.get(name, 0)))
                for name, end in ends.items()
                if name in self._target
            }
        begin: Offsets = {}
        stop: Offsets = {}
        for name, position in start.items():
            if name not in ends:
                self._loss.missing(name, position)
            elif ends[name] < position:
                self._loss.ended(name, position, ends[name])
                stop[name] = ends[name]
            else:
                begin[name] = position
                stop[name] = position if name in self._held else ends[name]
        self._held.clear()
        if isinstance(limit, ReadMaxRows):
            stop |= admit(begin, {name: stop[name] for name in begin}, limit.max_rows)
        if new := [name for name in ends if name not in start]:
            stop |= self._ask(lambda streams: streams.firsts(new))
        return dict(sorted(stop.items()))

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return self._latest

    # Ranges.

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        wanted = [name for name in end if name in start and end[name] != start[name]]
        if not wanted:
            return []
        firsts = self._ask(lambda streams: streams.firsts(wanted))
        ranges = [self._range(name, start[name], end[name], firsts) for name in wanted]
        assert self._door is not None  # found by asking
        parts = divide(ranges, self._options.min_partitions)
        return [Part(self._door, each) for each in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        return self._reading.rows(partition.door, partition.wanted)

    def commit(self, end: dict[str, Any]) -> None:
        """The checkpoint knows; a stream keeps no account of its readers."""

    def stop(self) -> None:
        if self._streams is not None:
            self._streams.close()
            self._streams = None

    # Asking the broker.

    def _find_initial(self, streams: Streams) -> Offsets:
        names = self._options.selection.choose(streams)
        starting = self._options.starting
        initial = starting.resolve(streams, names)
        ends = streams.ends(names, {})
        self._held = {
            name for name in names if not starting.settled(name, initial[name], ends[name])
        }
        return initial

    def _ends(self, streams: Streams, known: Mapping[str, int]) -> Offsets:
        names = self._options.selection.choose(streams)
        return streams.ends(names, known or self._latest or {})

    def _range(self, name: str, start: int, stop: int, firsts: Mapping[str, int]) -> Range:
        first = firsts.get(name)
        if first is None:
            self._loss.missing(name, start)
            return Range(name, start, start)
        if stop < start:
            if self._initial is not None and start == self._initial.get(name):
                # The first batch is run again: it took nothing, and now would begin later.
                return Range(name, stop, stop)
            # A stream declared anew, which was told when its end was found.
            return Range(name, min(first, stop), stop)
        if start < first:
            self._loss.gap(name, start, min(first, stop))
        return Range(name, min(max(start, first), stop), stop)

    def _ask(self, question: Callable[[Streams], _T]) -> _T:
        """The answer, over a connection that is kept, or made again within the patience.

        The first connection of a query is not waited for: an address that is wrong should be told
        at once.
        """
        if self._door is None:
            self._door = find_door(self._options.address, self._options.management)
        deadline = time.monotonic() + self._options.patience
        while True:
            try:
                if self._streams is None:
                    self._streams = self._door.open()
                return question(self._streams)
            except (OSError, EOFError, PenstockError) as error:
                if not passing(error) or time.monotonic() > deadline:
                    raise
                _log.warning("asking again", broker=str(self._door.address), reason=str(error))
            self.stop()
            time.sleep(RETRY_SECONDS)
            try:
                self._door = self._door.again()
            except (OSError, EOFError, PenstockError) as error:
                if not passing(error):
                    raise
