"""Lands the messages of streams in a table, exactly once.

The table itself holds the position: each commit has the rows of a range of one stream and, as the
transaction of application `penstock/land/VHOST/STREAM`, the next offset. There is no checkpoint to
lose, and a lander that is killed anywhere continues where the table ends.

The order of a batch:

1. The table is created, or grows by the fields that messages have and it lacks.
2. Workers write data files: rows, and dead letters.
3. Dead letters are committed to their table, then rows to theirs. If this process dies in between,
   the next one finds the dead letters beyond the table's position, and does not add them again.

A commit happens only if the position is still what the batch began with. So two processes that land
the same stream in the same table duplicate nothing: one of them begins its batch again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import PenstockError, PreconditionFailed
from penstock.core.logs import get_logger
from penstock_spark.batch_spans import MAX_SAMPLE, batch_span
from penstock_spark.connector.batch_reader import limit_end_offsets
from penstock_spark.errors import DataLost
from penstock_spark.lake.data_file import DataFile
from penstock_spark.lake.delta import LakeTable
from penstock_spark.landing.engines import LandingEngine, LocalEngine
from penstock_spark.landing.message_column import DAY, OFFSET, STREAM
from penstock_spark.landing.message_decoder import (
    DEAD_LETTER_SCHEMA,
    MessageDecoder,
    combine_batches,
    table_schema,
)
from penstock_spark.landing.records import NewColumns
from penstock_spark.landing.settings import LandingSettings
from penstock_spark.landing.source import StreamSource
from penstock_spark.landing.task import LandingReport, LandingTask, StreamReport
from penstock_spark.landing.types import (
    MAX_COLUMNS,
    add_fields,
    count_fields,
    merge_types,
    plain_schema,
    sql_columns,
)
from penstock_spark.streams.backend import Offsets, StreamRange

log = get_logger(__name__)

#: How far back `penstock lake restore` can go.
_CONFIGURATION: Final = {"delta.logRetentionDuration": "interval 7 days"}
_MAX_OFFSET: Final = 2**63 - 1
#: A batch is begun again so often when another process lands the same stream.
_MAX_CONFLICTS: Final = 5


class PositionMoved(PenstockError):
    """Another process has committed messages of the stream since the batch began."""


@dataclass(frozen=True, slots=True)
class StreamPosition:
    """Where the tables end. `last` and `dead` are the transactions of the two tables."""

    last: int | None
    dead: int | None
    start: int  #: the next offset to land


@dataclass(slots=True)
class LandingTotals:
    rows: int = 0
    dead: int = 0
    batches: int = 0
    lag: int | None = None  #: messages that are not landed yet
    seconds: float = 0.0
    reason: str = ""  #: why it waits or has failed
    ends: dict[str, int] = field(default_factory=dict)  #: the next offsets


class TableLander:
    """One table and its dead letters."""

    def __init__(
        self,
        settings: LandingSettings,
        source: StreamSource,
        engine: Callable[[StreamSource], LandingEngine],
        *,
        max_batch: int = 100_000,
        fail_on_loss: bool = True,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.settings = settings
        self.source = source
        self.table = LakeTable(settings.location)
        self.dead_letters = LakeTable(settings.dead_letter_location)
        self.totals = LandingTotals()
        self._engine = engine
        self._max_batch = max_batch
        self._fail_on_loss = fail_on_loss
        self._now = now
        self._format = settings.open_format()
        self._columns = settings.message_columns
        self._known: Offsets = {}
        self._empty: set[str] = set()  # streams that had no messages when they were first seen
        self._is_prepared = False
        self._conflicts = 0

    @property
    def name(self) -> str:
        return self.table.name

    def application(self, stream: str) -> str:
        return f"penstock/land/{self.source.address.vhost}/{stream}"

    def ends(self) -> dict[str, int]:
        """The next offsets of the streams now: where `--once` stops."""
        self._known = self.source.ends(self._known)
        return {name: end for name, end in self._known.items() if end is not None}

    def land_batch(self, until: Mapping[str, int] | None = None) -> bool:
        """Land one batch; False if there was nothing to land.

        `until` limits it to earlier offsets.
        """
        began = time.monotonic()
        ends = self.ends()
        self._prepare_table()
        positions = self._positions(ends)
        if until is not None:
            ends = {name: min(end, until.get(name, 0)) for name, end in ends.items()}
        ranges = self._plan(positions, ends)
        if ranges:
            try:
                with batch_span(
                    ",".join(each.stream for each in ranges),
                    sum(map(len, ranges)),
                    partial(self._first_messages, ranges),
                    **{"penstock.table": self.name},
                ):
                    report = self._decode(ranges, positions)
                    for each in ranges:
                        self._commit_range(each, positions[each.stream], report)
            except PositionMoved as error:
                self._conflicts += 1
                if self._conflicts >= _MAX_CONFLICTS:
                    raise PreconditionFailed(f"{error}; stop one of the processes") from error
                log.warning("batch repeated", table=self.name, reason=str(error))
                return True
            self._conflicts = 0
            self._count(ranges, report, time.monotonic() - began)
        stops = {each.stream: each.stop for each in ranges}
        self.totals.lag = sum(
            max(0, end - stops.get(name, positions[name].start))
            for name, end in ends.items()
            if name in positions
        )
        return bool(ranges)

    def _count(self, ranges: Sequence[StreamRange], report: LandingReport, seconds: float) -> None:
        reports = report.streams.values()
        rows, dead = sum(each.rows for each in reports), sum(each.dead for each in reports)
        self.totals.rows += rows
        self.totals.dead += dead
        self.totals.batches += 1
        self.totals.seconds += seconds
        self.totals.ends |= {each.stream: each.stop for each in ranges}
        log.info(
            "batch landed",
            table=self.name,
            rows=rows,
            dead_letters=dead,
            seconds=round(seconds, 3),
            offsets={each.stream: [each.start, each.stop] for each in ranges},
        )

    # The table

    def _prepare_table(self) -> None:
        """Create a table with a given schema, or add what a table lacks, before the first batch."""
        if not self._is_prepared:
            if self._format.schema is not None or self.table.exists():
                self._create(self._format.schema or pa.schema([]))
            self._is_prepared = True

    def _create(self, body: pa.Schema) -> None:
        partition_by = self.settings.partition_by
        schema = table_schema(body, self._columns, with_day=DAY in partition_by)
        self._check_columns(schema)
        exists = self.table.exists()
        known = self.table.schema.names if exists else schema.names
        if missing := [name for name in partition_by if name not in known]:
            if self._format.schema is not None or exists:
                raise PreconditionFailed(
                    f"table {self.name} has no column {missing[0]!r} to partition by; it has "
                    f"{', '.join(known)}"
                )
            # No message of the sample has it.
            schema = pa.schema([*schema, *((name, pa.string()) for name in missing)])
        self.table.create(schema, partition_by, _CONFIGURATION)
        if not exists:
            log.info("table created", table=str(self.table.location), schema=sql_columns(schema))

    def _check_columns(self, schema: pa.Schema) -> None:
        names = [each.lower() for each in schema.names]
        for name in schema.names:
            if names.count(name.lower()) > 1:
                raise PreconditionFailed(
                    f"table {self.name}: column {name!r} is in the schema and comes from the "
                    "message; give it another name with --column"
                )

    def _infer(self, ranges: Sequence[StreamRange]) -> pa.Schema:
        """The columns of the first messages."""
        left = self.settings.sample
        found: pa.DataType = pa.struct([])
        decoder = self._decoder(table_schema(pa.schema([]), self._columns, with_day=True))
        for each in ranges:
            some = StreamRange(each.stream, each.start, min(each.stop, each.start + left))
            if not len(some):
                break
            left -= len(some)
            reader = LocalEngine(self.source.endpoint, self._fail_on_loss)
            for messages in combine_batches(reader.read([some])):
                decoded = decoder.decode(messages, self._now())
                found = merge_types(found, decoded.found)
        found = add_fields(pa.struct([]), found)
        if count_fields(found) > MAX_COLUMNS:
            log.warning("too many columns", table=self.name, columns=count_fields(found))
            found = pa.struct([])
        return pa.schema(list(found))

    def _first_messages(self, ranges: Sequence[StreamRange]) -> Iterator[pa.RecordBatch]:
        some = [
            StreamRange(each.stream, each.start, min(each.stop, each.start + MAX_SAMPLE))
            for each in ranges
        ]
        return LocalEngine(self.source.endpoint, fail_on_loss=False).read(some)

    # Planning

    def _positions(self, ends: Mapping[str, int]) -> dict[str, StreamPosition]:
        """Where the tables end, of each stream that has a position or messages."""
        found: dict[str, StreamPosition] = {}
        has_table, has_dead = self.table.exists(), self.dead_letters.exists()
        for name in self._known:
            application = self.application(name)
            last = self.table.last_transaction(application) if has_table else None
            dead = self.dead_letters.last_transaction(application) if has_dead else None
            found[name] = StreamPosition(last, dead, last or 0)
        new = [name for name, position in found.items() if position.last is None]
        starts = self._starts(new, ends)
        if self._record_starts(starts, ends):
            return self._positions(ends)
        return {
            name: replace(position, start=starts[name]) if name in starts else position
            for name, position in found.items()
            if position.last is not None or name in starts
        }

    def _starts(self, new: Sequence[str], ends: Mapping[str, int]) -> dict[str, int]:
        """Where streams without a position begin."""
        appeared = [name for name in new if name in self._empty]
        starts = dict.fromkeys(appeared, 0)
        if asked := [name for name in new if name not in self._empty]:
            starts |= self.source.starts(asked)
            # A stream that is empty now begins with its first message, whatever `start` says.
            self._empty |= {name for name in asked if name not in ends}
        return {name: start for name, start in starts.items() if name in ends}

    def _record_starts(self, starts: Mapping[str, int], ends: Mapping[str, int]) -> bool:
        """Store positions, such as `latest`, that a later run would not find again."""
        starting = self.source.starting
        unsettled = {
            name: start
            for name, start in starts.items()
            if name not in self._empty and not starting.settled(name, start, ends[name])
        }
        for name, start in unsettled.items():
            if not self.table.exists():
                self._create(pa.schema([]))
            self._commit(self.table, StreamRange(name, start, start), None, start, [])
        return bool(unsettled)

    def _plan(
        self, positions: Mapping[str, StreamPosition], ends: Mapping[str, int]
    ) -> list[StreamRange]:
        """The ranges of the next batch, one per stream."""
        starts = {name: positions[name].start for name in ends if name in positions}
        for name, start in starts.items():
            if (end := self._known[name]) is not None and end < start:
                raise DataLost(
                    f"stream {name!r} ends at offset {end}, and table {self.name} has it up to "
                    f"{start}: it was deleted and declared again, or it is another broker's. Land "
                    "it in another table, or give the new stream another name"
                )
        waiting = {name: ends[name] for name, start in starts.items() if ends[name] > start}
        stops = limit_end_offsets(starts, waiting, self._max_batch)
        return [StreamRange(name, starts[name], stops[name]) for name in sorted(waiting)]

    # Batches

    def _decode(
        self, ranges: Sequence[StreamRange], positions: Mapping[str, StreamPosition]
    ) -> LandingReport:
        """Have the files of a batch written; the table grows as needed."""
        if not self.table.exists():
            self._create(self._infer(ranges))
        engine = self._engine(self.source)
        task = LandingTask(
            self._decoder(plain_schema(self.table.schema)),
            self.table.location,
            self.dead_letters.location,
            self.table.partition_by,
            self._now(),
            self._finished(ranges, positions),
        )
        report = engine.run(ranges, task)
        while report.found != pa.null():
            task = replace(task, decoder=self._grow(task.decoder, report.found))
            report = engine.run(ranges, task)
        return report

    def _decoder(self, schema: pa.Schema) -> MessageDecoder:
        new_columns = NewColumns(self.settings.new_columns)
        return MessageDecoder(self._format, schema, self._columns, new_columns)

    def _grow(self, decoder: MessageDecoder, found: pa.DataType) -> MessageDecoder:
        """Add the fields that messages have and the table lacks."""
        body = pa.struct(list(decoder.body_schema))
        grown = add_fields(body, found)
        if count_fields(grown) > MAX_COLUMNS:
            log.warning("too many columns", table=self.name, columns=count_fields(grown))
            return replace(decoder, new_columns=NewColumns.REJECT)
        known = {each.name: each.type for each in body}
        changed = pa.schema([each for each in grown if known.get(each.name) != each.type])
        self.table.add_columns(changed)
        log.info("columns added", table=self.name, columns=sql_columns(changed))
        return replace(decoder, schema=plain_schema(self.table.schema))

    def _finished(
        self, ranges: Sequence[StreamRange], positions: Mapping[str, StreamPosition]
    ) -> dict[str, frozenset[int]]:
        """The dead letters of an attempt that ended before it committed its rows."""
        found = {}
        for each in ranges:
            if (dead := positions[each.stream].dead) is None or dead <= each.start:
                continue
            offsets: set[int] = set()
            for file in self.dead_letters.files(**{OFFSET: (each.start, _MAX_OFFSET)}):
                rows = self.dead_letters.read_file(file, [STREAM, OFFSET])
                mine = rows.filter(pc.equal(rows[STREAM], each.stream))
                offsets.update(mine[OFFSET].to_pylist())
            found[each.stream] = frozenset(offset for offset in offsets if offset >= each.start)
        return found

    def _commit_range(
        self, wanted: StreamRange, position: StreamPosition, report: LandingReport
    ) -> None:
        written = report.streams.get(wanted.stream, StreamReport())
        if written.dead_files:
            self.dead_letters.create(DEAD_LETTER_SCHEMA, (), _CONFIGURATION)
            version = max(wanted.stop, (position.dead or 0) + 1)
            self._commit(self.dead_letters, wanted, position.dead, version, written.dead_files)
        self._commit(self.table, wanted, position.last, wanted.stop, written.files)

    def _commit(
        self,
        table: LakeTable,
        wanted: StreamRange,
        expected: int | None,
        version: int,
        files: Sequence[DataFile],
    ) -> None:
        """Commit files if the position is still what it was."""
        application = self.application(wanted.stream)
        facts = {"stream": wanted.stream, "offsets": f"{wanted.start} to {wanted.stop - 1}"}
        expect = (application, expected)
        try:
            done = table.commit(application, version, files, metadata=facts, expect=expect)
        except PreconditionFailed as error:
            raise PositionMoved(
                f"another process lands stream {wanted.stream!r} in {table.location}: its "
                f"position is {table.last_transaction(application)}, not {expected}"
            ) from error
        if not done:
            raise PositionMoved(f"stream {wanted.stream!r} is in {table.location} already")
