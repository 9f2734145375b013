"""Messages as rows of a table and as dead letters: a function from Arrow to Arrow.

A batch whose bodies are all as expected is decoded as a whole. Otherwise it is divided until the
odd ones are alone, and these are decoded one by one: each is a row, or a dead letter with a reason.
Fields that the table lacks are reported, so that the table can grow before the rows are written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.core.units import MiB
from penstock_spark.landing.formats.body_format import BodyFormat
from penstock_spark.landing.message_column import (
    DAY,
    DAY_FIELD,
    MESSAGE_FIELDS,
    OFFSET,
    STREAM,
    TIME,
    MessageColumn,
)
from penstock_spark.landing.records import InvalidBody, NewColumns, RecordFitter
from penstock_spark.landing.types import (
    MAX_COLUMNS,
    TIMESTAMP,
    add_fields,
    count_fields,
    merge_types,
)

#: A batch with an odd body is divided into parts of this size first.
_PART: Final = 256
#: A slice of this size with an odd body is decoded one by one: to read columns costs as much as
#: twenty bodies.
_SINGLY: Final = 64
_WORTHWHILE: Final = 16
_MAX_TRIES: Final = 3
_BATCH_ROWS: Final = 32_768
_BATCH_BYTES: Final = 32 * MiB

DEAD_LETTER_SCHEMA: Final = pa.schema(
    [
        *MESSAGE_FIELDS,
        ("exchange", pa.string()),
        ("routing_key", pa.string()),
        ("headers", pa.map_(pa.string(), pa.string())),
        ("reason", pa.string()),
        ("detail", pa.string()),
        ("body", pa.binary()),
        ("landed_at", TIMESTAMP),
    ]
)


@dataclass(frozen=True, slots=True)
class DecodedMessages:
    rows: pa.Table
    dead: pa.Table  #: of `DEAD_LETTER_SCHEMA`
    found: pa.DataType  #: a struct of the new fields, and perhaps others; null if there are none


@dataclass(slots=True)
class _Bodies:
    """The outcome for each body; `indices` are those of the messages."""

    indices: list[NDArray[Any]] = field(default_factory=list)
    rows: list[pa.Array] = field(default_factory=list)
    dead: list[tuple[int, str, str]] = field(default_factory=list)
    found: pa.DataType = field(default_factory=pa.null)


@dataclass(frozen=True, slots=True)
class _Slice:
    """Some bodies, and how often odd ones were taken out of them."""

    indices: NDArray[Any]
    tries: int = 0

    def take(self, bodies: pa.Array) -> pa.Array:
        return bodies if len(self.indices) == len(bodies) else bodies.take(pa.array(self.indices))

    def divide(self, odd: Sequence[int]) -> list[_Slice]:
        """The parts to try next; none if the bodies are to be decoded singly."""
        count = len(self.indices)
        if count <= _SINGLY:
            return []
        if odd and self.tries < _MAX_TRIES:
            rest = np.delete(self.indices, odd)
            alone = (_Slice(self.indices[[each]]) for each in odd)
            return [*alone, *([_Slice(rest, self.tries + 1)] if len(rest) else [])]
        size = _PART if count > _PART else count // 2
        return [_Slice(self.indices[at : at + size]) for at in range(0, count, size)]


@dataclass(frozen=True, slots=True)
class MessageDecoder:
    """Picklable, and the same on every worker."""

    format: BodyFormat
    schema: pa.Schema  #: of the table
    columns: tuple[MessageColumn, ...] = ()
    new_columns: NewColumns = NewColumns.ADD

    @property
    def body_schema(self) -> pa.Schema:
        taken = self.reserved
        return pa.schema([each for each in self.schema if each.name.lower() not in taken])

    @property
    def reserved(self) -> frozenset[str]:
        """The names of columns that bodies cannot fill, in lower case."""
        others = (each.name.lower() for each in self.columns)
        return frozenset((STREAM, OFFSET, TIME, DAY, *others))

    def decode(self, messages: pa.RecordBatch, now: datetime) -> DecodedMessages:
        """`messages` has the columns of the connector."""
        times = pc.coalesce(messages["timestamp"], pa.scalar(now, TIMESTAMP))
        bodies = self._decode_bodies(messages["body"])
        rows = self._rows(messages, times, bodies)
        return DecodedMessages(rows, _dead_letters(messages, times, bodies.dead, now), bodies.found)

    def _decode_bodies(self, bodies: pa.Array) -> _Bodies:
        schema = self.body_schema
        fitter = RecordFitter(schema, self.new_columns, self.reserved, text=self.format.is_text)
        outcome = _Bodies()
        waiting = [_Slice(np.arange(len(bodies)))]
        while waiting:
            some = waiting.pop()
            wanted = some.take(bodies)
            read: pa.StructArray | list[int] = []
            if len(wanted) >= _WORTHWHILE and self.format.is_columnar:
                read = self.format.read_columns(wanted, schema, self.new_columns)
            if isinstance(read, pa.Array):
                outcome.indices.append(some.indices)
                outcome.rows.append(read)
            elif (parts := some.divide(read)) and self.format.is_columnar:
                waiting += parts
            else:
                self._decode_singly(wanted, some.indices, fitter, outcome)
        known = pa.struct(list(schema))
        if add_fields(known, outcome.found) == known:
            outcome.found = pa.null()
        return outcome

    def _decode_singly(
        self, bodies: pa.Array, numbers: NDArray[Any], fitter: RecordFitter, outcome: _Bodies
    ) -> None:
        indices: list[int] = []
        rows: list[dict[str, Any]] = []
        for index, body in zip(numbers.tolist(), bodies, strict=True):
            fitter.has_new_fields = False
            try:
                records = self.format.records(body.as_py())
                fitted = [fitter.fit(record) for record in records]
            except InvalidBody as error:
                outcome.dead.append((index, error.reason, error.detail))
                continue
            rows += fitted
            indices += [index] * len(fitted)
            if fitter.has_new_fields and count_fields(outcome.found) <= MAX_COLUMNS:
                for record in records:
                    outcome.found = merge_types(outcome.found, self.format.infer(record))
        outcome.indices.append(np.array(indices, np.int64))
        outcome.rows.append(pa.array(rows, pa.struct(list(fitter.schema))))

    def _rows(self, messages: pa.RecordBatch, times: pa.Array, bodies: _Bodies) -> pa.Table:
        taken: dict[str, pa.Array] = {
            STREAM: messages["stream"],
            OFFSET: messages["offset"],
            TIME: times,
        }
        if DAY in self.schema.names:
            taken[DAY] = times.cast(pa.date32())
        for each in self.columns:
            taken[each.name] = each.build(messages)
        indices = np.concatenate(bodies.indices) if bodies.indices else np.zeros(0, np.int64)
        arrays = bodies.rows or [pa.array([], pa.struct(list(self.body_schema)))]
        if (np.diff(indices) < 0).any():  # odd bodies were decoded apart
            order = np.argsort(indices, kind="stable")
            indices, arrays = indices[order], [pa.concat_arrays(arrays).take(pa.array(order))]
        if len(indices) != len(messages) or (np.diff(indices) != 1).any():
            which = pa.array(indices)
            taken = {name: column.take(which) for name, column in taken.items()}
        names = self.body_schema.names
        flat = pa.chunked_array(arrays).flatten() if names else []
        columns = taken | dict(zip(names, flat, strict=True))
        absent = {
            each.name: pa.nulls(len(indices), each.type)
            for each in self.schema
            if each.name not in columns
        }
        columns |= absent
        return pa.table([columns[name] for name in self.schema.names], schema=self.schema)


def table_schema(body: pa.Schema, columns: Iterable[MessageColumn], *, with_day: bool) -> pa.Schema:
    """The columns of the message, then those of its body."""
    fields = [*MESSAGE_FIELDS, *([DAY_FIELD] if with_day else [])]
    fields += (pa.field(each.name, pa.string()) for each in columns)
    return pa.schema([*fields, *body])


def _dead_letters(
    messages: pa.RecordBatch, times: pa.Array, dead: list[tuple[int, str, str]], now: datetime
) -> pa.Table:
    dead = sorted(dead)
    which = pa.array([index for index, _, _ in dead], pa.int64())
    columns = {
        STREAM: messages["stream"],
        OFFSET: messages["offset"],
        TIME: times,
        **{name: messages[name] for name in ("exchange", "routing_key", "headers", "body")},
    }
    found = {name: column.take(which) for name, column in columns.items()}
    found["reason"] = pa.array([reason for _, reason, _ in dead], pa.string())
    details = [detail.encode(errors="replace").decode() for _, _, detail in dead]
    found["detail"] = pa.array(details, pa.string())
    found["landed_at"] = pa.repeat(pa.scalar(now, TIMESTAMP), len(dead))
    return pa.table([found[name] for name in DEAD_LETTER_SCHEMA.names], schema=DEAD_LETTER_SCHEMA)


def combine_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches of a useful size, each of one stream: brokers send a few dozen messages at a time, or
    a hundred thousand."""
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for start in range(0, len(batch), _BATCH_ROWS):
            part = batch.slice(start, _BATCH_ROWS)
            full = rows + len(part) > _BATCH_ROWS or size > _BATCH_BYTES
            if waiting and (full or waiting[0]["stream"][0] != part["stream"][0]):
                yield _combined(waiting)
                waiting, rows, size = [], 0, 0
            waiting.append(part)
            rows += len(part)
            size += part.nbytes
    if waiting:
        yield _combined(waiting)


def _combined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    (whole,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return whole
