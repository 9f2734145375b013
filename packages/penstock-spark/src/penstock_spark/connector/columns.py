"""The columns a DataFrame of messages has, and how they are made of what a broker hands out.

Whole columns at a time: the content headers of a batch are walked together, one property after the
other, with NumPy, and text is gathered by its places. Only header tables are decoded one by one,
and of equal ones only the first. A query that asks for fewer columns (`.schema(...)`) pays for
those only.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.core import basic_properties
from penstock.core.errors import WireSyntaxError
from penstock.core.field_table import decode_table
from penstock_spark.streams.offsets import OFFSET_HEADER

# The headers of messages as text: a map of strings, whatever types the publisher used.
#
# A string is itself. Anything else is its JSON text: `7`, `true`, `1.5`, `[1, 2]`, `{"a": null}`;
# in there, and alone, a moment is ISO 8601 in quotes and bytes are base64 in quotes. A void is
# null. A table that cannot be read gives no headers; the message is there all the same.

HEADERS_TYPE: Final = pa.map_(pa.string(), pa.string())


def decode_headers(tables: Iterable[bytes | None]) -> pa.Array:
    """The column of these tables, each without the length before it."""
    return pa.array([_decoded_table(table) for table in tables], HEADERS_TYPE)


def _decoded_table(table: bytes | None) -> list[tuple[str, str | None]] | None:
    if not table:
        return None
    try:
        found, _ = decode_table(len(table).to_bytes(4, "big") + table)
    except WireSyntaxError:
        return None
    # The offset is the broker's to say, and in a column of its own.
    pairs = [(name, header_text(value)) for name, value in found.items() if name != OFFSET_HEADER]
    return pairs or None


def header_text(value: Any) -> str | None:
    match value:
        case None:
            return None
        case str():
            return value
        case bytes() | bytearray():
            # A long string that is no UTF-8 comes as bytes as well; neither is text.
            return json.dumps(_json_value(value))
    return json.dumps(value, default=_json_value, ensure_ascii=False)


def _json_value(value: object) -> object:
    match value:
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case Decimal():
            return float(value) if value % 1 else int(value)
    return str(value)


_TIMESTAMP_TYPE: Final = pa.timestamp("us", tz="UTC")
#: The last millisecond of the year 9999: Python and Spark have no later date.
_MAX_TIMESTAMP_MS: Final = 253_402_300_799_999

#: In Spark's words they are `schema.SCHEMA`.
ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    "stream": pa.string(),
    "offset": pa.int64(),
    "timestamp": _TIMESTAMP_TYPE,
    "exchange": pa.string(),
    "routing_key": pa.string(),
    "content_type": pa.string(),
    "message_id": pa.string(),
    "headers": HEADERS_TYPE,
    "body": pa.binary(),
}

#: What a query gets only if it asks for it: the AMQP 0-9-1 content header, types and all.
OPTIONAL_TYPES: Final[dict[str, pa.DataType]] = {"properties": pa.binary()}
_TYPES: Final = ARROW_TYPES | OPTIONAL_TYPES

Array = NDArray[Any]


class _HeaderScan:
    """The properties of a batch's messages: where each lies in its content header."""

    def __init__(self, headers: pa.Array) -> None:
        _, ends, blob = headers.buffers()
        size = len(headers)
        offsets = np.frombuffer(ends, np.int32)[headers.offset : headers.offset + size + 1]
        self.octets = np.frombuffer(blob, np.uint8) if blob else np.zeros(0, np.uint8)
        starts = offsets[:-1].astype(np.int64)
        high, low = self.octets[starts + 12], self.octets[starts + 13]
        self.flags = high.astype(np.uint16) << 8 | low
        self.any = int(np.bitwise_or.reduce(self.flags)) if size else 0
        self._starts = starts
        self.size = size

    @cached_property
    def places(self) -> dict[int, tuple[Array, Array, Array]]:
        """By flag: the rows that have the property, where its content begins, how long it is."""
        position = self._starts + 14
        found = {}
        for flag, width in _WIDTHS:
            if not self.any & flag:
                continue
            rows = np.flatnonzero(self.flags & flag)
            start = position[rows]
            if width == _SHORT:
                length = self.octets[start].astype(np.int64)
                start = start + 1
            elif width == _TABLE:
                length = self._number(start, 4)
                start = start + 4
            else:
                length = np.full(len(rows), width)
            position[rows] = start + length
            found[flag] = (rows, start, length)
        return found

    def text(self, flag: int) -> pa.Array:
        if flag not in self.places:
            return pa.nulls(self.size, pa.string())
        rows, starts, lengths = self.places[flag]
        return _as_text(self.gather(rows, starts, lengths))

    def gather(self, rows: Array, starts: Array, lengths: Array) -> pa.Array:
        """The bytes at those places, as a column that is null in all other rows."""
        sizes = np.zeros(self.size, np.int64)
        sizes[rows] = lengths
        offsets = np.zeros(self.size + 1, np.int32)
        np.cumsum(sizes, out=offsets[1:])
        where = np.repeat(starts - offsets[:-1][rows], lengths) + np.arange(offsets[-1])
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self.octets[where])]
        if len(rows) < self.size:
            present = np.zeros(self.size, bool)
            present[rows] = True
            buffers[0] = pa.py_buffer(np.packbits(present, bitorder="little"))
        return pa.Array.from_buffers(pa.binary(), self.size, buffers)

    def moments(self) -> pa.Array:
        """The publishers' timestamps, a property in seconds; null where there is no such date."""
        if basic_properties.TIMESTAMP not in self.places:
            return pa.nulls(self.size, _TIMESTAMP_TYPE)
        rows, starts, _ = self.places[basic_properties.TIMESTAMP]
        seconds = self._number(starts, 8)
        # Some publishers write milliseconds; a number of seconds is that large from the year 5138.
        millis = np.where(seconds > 99_999_999_999, seconds, seconds * 1000)
        valid = (millis >= 0) & (millis <= _MAX_TIMESTAMP_MS)
        values, absent = np.zeros(self.size, np.int64), np.ones(self.size, bool)
        values[rows[valid]], absent[rows[valid]] = millis[valid] * 1000, False
        return pa.array(values, mask=absent).cast(_TIMESTAMP_TYPE)

    def _number(self, starts: Array, width: int) -> Array:
        value = np.zeros(len(starts), np.int64)
        for index in range(width):
            value = value << 8 | self.octets[starts + index]
        return value


_SHORT: Final = -1
_TABLE: Final = -2
_WIDTHS: Final = (
    (basic_properties.CONTENT_TYPE, _SHORT),
    (basic_properties.CONTENT_ENCODING, _SHORT),
    (basic_properties.HEADERS, _TABLE),
    (basic_properties.DELIVERY_MODE, 1),
    (basic_properties.PRIORITY, 1),
    (basic_properties.CORRELATION_ID, _SHORT),
    (basic_properties.REPLY_TO, _SHORT),
    (basic_properties.EXPIRATION, _SHORT),
    (basic_properties.MESSAGE_ID, _SHORT),
    (basic_properties.TIMESTAMP, 8),
)


def _as_text(raw: pa.Array) -> pa.Array:
    try:
        return raw.cast(pa.string())
    except pa.ArrowInvalid:  # a publisher's mistake, and rare enough to look at each
        texts = [None if each is None else each.decode("utf-8", "replace") for each in _list(raw)]
        return pa.array(texts, pa.string())


def _list(raw: pa.Array) -> list[bytes | None]:
    values: list[bytes | None] = raw.to_pylist()
    return values


def _headers(walk: _HeaderScan) -> pa.Array:
    if basic_properties.HEADERS not in walk.places:
        return pa.nulls(walk.size, HEADERS_TYPE)
    tables = walk.gather(*walk.places[basic_properties.HEADERS]).dictionary_encode()
    return decode_headers(_list(tables.dictionary)).take(tables.indices)


def _timestamp(batch: pa.RecordBatch, walk: _HeaderScan) -> pa.Array:
    """When the broker took it in; where it does not tell, what the publisher wrote."""
    column = batch.column("timestamp")
    if column.null_count == 0:
        return column.cast(_TIMESTAMP_TYPE)
    told = _header_timestamps(walk)
    return (
        told
        if column.null_count == len(column)
        else pc.coalesce(column.cast(_TIMESTAMP_TYPE), told)
    )


def _header_timestamps(walk: _HeaderScan) -> pa.Array:
    """RabbitMQ can be told to stamp messages: in milliseconds among the headers."""
    seconds = walk.moments()
    if basic_properties.HEADERS not in walk.places:
        return seconds
    stamp = pc.map_lookup(_headers(walk), "timestamp_in_ms", "first")
    digits = pc.if_else(pc.match_substring_regex(stamp, r"^\d{1,15}$"), stamp, None)
    millis = digits.cast(pa.int64())
    millis = pc.if_else(pc.less_equal(millis, _MAX_TIMESTAMP_MS), millis, None)
    exact = millis.cast(pa.timestamp("ms", tz="UTC")).cast(_TIMESTAMP_TYPE)
    return pc.coalesce(exact, seconds)


_ColumnBuilder = Callable[[pa.RecordBatch, str, _HeaderScan], pa.Array]

_COLUMN_BUILDERS: Final[dict[str, _ColumnBuilder]] = {
    "stream": lambda batch, stream, walk: pa.repeat(pa.scalar(stream), batch.num_rows),
    "offset": lambda batch, stream, walk: batch.column("offset"),
    "timestamp": lambda batch, stream, walk: _timestamp(batch, walk),
    "exchange": lambda batch, stream, walk: batch.column("exchange").dictionary_decode(),
    "routing_key": lambda batch, stream, walk: batch.column("routing_key").dictionary_decode(),
    "content_type": lambda batch, stream, walk: walk.text(basic_properties.CONTENT_TYPE),
    "message_id": lambda batch, stream, walk: walk.text(basic_properties.MESSAGE_ID),
    "headers": lambda batch, stream, walk: _headers(walk),
    "body": lambda batch, stream, walk: batch.column("body"),
    "properties": lambda batch, stream, walk: batch.column("properties"),
}


@dataclass(frozen=True, slots=True)
class MessageColumns:
    """The columns a query wants, in its order; or all, many rows in a value (`PACKED_COLUMN`)."""

    names: tuple[str, ...]
    packed: bool = False

    def build(self, batch: pa.RecordBatch, stream: str) -> pa.RecordBatch:
        """A batch of `streams.backend.RECORD_SCHEMA` as Spark is to have it."""
        walk = _HeaderScan(batch.column("properties"))
        arrays = [_COLUMN_BUILDERS[name](batch, stream, walk) for name in self.names]
        schema = pa.schema([(name, _TYPES[name]) for name in self.names])
        built = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return pack_messages(built) if self.packed else built


# Many messages as one value: a record batch in the bytes of Arrow's IPC.
#
#     reader.schema("packed BINARY").load()
#
# For queries whose own workers want Arrow: Spark then hands bytes from one Python process to the
# next, and looks at no message. Exactly once is as it was, for it is a matter of offsets.

PACKED_COLUMN: Final = "packed"


def pack_messages(messages: pa.RecordBatch) -> pa.RecordBatch:
    """One row, which is the batch."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, messages.schema) as writer:
        writer.write_batch(messages)
    content = sink.getvalue()
    ends = pa.array([0, content.size], pa.int32()).buffers()[1]
    value = pa.Array.from_buffers(pa.binary(), 1, [None, ends, content])
    return pa.RecordBatch.from_arrays([value], [PACKED_COLUMN])


def unpack_messages(value: pa.BinaryScalar) -> Iterator[pa.RecordBatch]:
    """The batch again; it points into the value."""
    with pa.ipc.open_stream(value.as_buffer()) as batches:
        yield from batches
