"""The columns of a DataFrame of messages, built from record batches of a backend.

The content headers of a batch are parsed together with NumPy, one property after the other. Only
header tables are decoded one by one, and equal ones once. A query that selects fewer columns
(`.schema(...)`) builds only those.

Headers are a map of strings. A string is unchanged; any other value is its JSON text: `7`, `true`,
`1.5`, `[1, 2]`, `{"a": null}`. A timestamp is ISO 8601 in quotes, bytes are base64 in quotes. A
void is null. An invalid table gives no headers.

With `reader.schema("packed BINARY").load()` a row is a record batch in Arrow's IPC format, for
queries whose Python workers need Arrow: Spark then passes bytes on without decoding messages.
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

HEADERS_TYPE: Final = pa.map_(pa.string(), pa.string())


def decode_headers(tables: Iterable[bytes | None]) -> pa.Array:
    """The column of encoded tables without their lengths."""
    return pa.array([_decoded_table(table) for table in tables], HEADERS_TYPE)


def _decoded_table(table: bytes | None) -> list[tuple[str, str | None]] | None:
    if not table:
        return None
    try:
        found, _ = decode_table(len(table).to_bytes(4, "big") + table)
    except WireSyntaxError:
        return None
    # The offset has its own column.
    pairs = [(name, header_text(value)) for name, value in found.items() if name != OFFSET_HEADER]
    return pairs or None


def header_text(value: Any) -> str | None:
    match value:
        case None:
            return None
        case str():
            return value
        case bytes() | bytearray():
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

#: As `source.SPARK_SCHEMA`.
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

#: Only if a query selects it: the AMQP 0-9-1 content header.
OPTIONAL_TYPES: Final[dict[str, pa.DataType]] = {"properties": pa.binary()}
_TYPES: Final = ARROW_TYPES | OPTIONAL_TYPES

Array = NDArray[Any]


class _HeaderScan:
    """The positions of the properties in the content headers of a batch."""

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
    def positions(self) -> dict[int, tuple[Array, Array, Array]]:
        """By flag: the rows with the property, and where it begins and how long it is in each."""
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
        if not self.any & flag:
            return pa.nulls(self.size, pa.string())
        rows, starts, lengths = self.positions[flag]
        return _as_text(self.gather(rows, starts, lengths))

    def gather(self, rows: Array, starts: Array, lengths: Array) -> pa.Array:
        """The bytes at these positions, as a column that is null in all other rows."""
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

    def timestamps(self) -> pa.Array:
        """The publishers' timestamps, a property in seconds; null where there is no such date."""
        if not self.any & basic_properties.TIMESTAMP:
            return pa.nulls(self.size, _TIMESTAMP_TYPE)
        rows, starts, _ = self.positions[basic_properties.TIMESTAMP]
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
    except pa.ArrowInvalid:  # rare: a publisher's mistake
        texts = [None if each is None else each.decode("utf-8", "replace") for each in _list(raw)]
        return pa.array(texts, pa.string())


def _list(raw: pa.Array) -> list[bytes | None]:
    values: list[bytes | None] = raw.to_pylist()
    return values


def _headers(scan: _HeaderScan) -> pa.Array:
    if not scan.any & basic_properties.HEADERS:
        return pa.nulls(scan.size, HEADERS_TYPE)
    tables = scan.gather(*scan.positions[basic_properties.HEADERS]).dictionary_encode()
    return decode_headers(_list(tables.dictionary)).take(tables.indices)


def _timestamp(batch: pa.RecordBatch, scan: _HeaderScan) -> pa.Array:
    """The time of the broker, or else of the publisher."""
    column = batch.column("timestamp")
    if column.null_count == 0:
        return column.cast(_TIMESTAMP_TYPE)
    published = _header_timestamps(scan)
    return (
        published
        if column.null_count == len(column)
        else pc.coalesce(column.cast(_TIMESTAMP_TYPE), published)
    )


def _header_timestamps(scan: _HeaderScan) -> pa.Array:
    """RabbitMQ can be configured to add a timestamp in milliseconds to the headers."""
    seconds = scan.timestamps()
    if not scan.any & basic_properties.HEADERS:
        return seconds
    stamp = pc.map_lookup(_headers(scan), "timestamp_in_ms", "first")
    digits = pc.if_else(pc.match_substring_regex(stamp, r"^\d{1,15}$"), stamp, None)
    millis = digits.cast(pa.int64())
    millis = pc.if_else(pc.less_equal(millis, _MAX_TIMESTAMP_MS), millis, None)
    exact = millis.cast(pa.timestamp("ms", tz="UTC")).cast(_TIMESTAMP_TYPE)
    return pc.coalesce(exact, seconds)


_ColumnBuilder = Callable[[pa.RecordBatch, str, _HeaderScan], pa.Array]

_COLUMN_BUILDERS: Final[dict[str, _ColumnBuilder]] = {
    "stream": lambda batch, stream, scan: pa.repeat(pa.scalar(stream), batch.num_rows),
    "offset": lambda batch, stream, scan: batch.column("offset"),
    "timestamp": lambda batch, stream, scan: _timestamp(batch, scan),
    "exchange": lambda batch, stream, scan: batch.column("exchange").dictionary_decode(),
    "routing_key": lambda batch, stream, scan: batch.column("routing_key").dictionary_decode(),
    "content_type": lambda batch, stream, scan: scan.text(basic_properties.CONTENT_TYPE),
    "message_id": lambda batch, stream, scan: scan.text(basic_properties.MESSAGE_ID),
    "headers": lambda batch, stream, scan: _headers(scan),
    "body": lambda batch, stream, scan: batch.column("body"),
    "properties": lambda batch, stream, scan: batch.column("properties"),
}


@dataclass(frozen=True, slots=True)
class MessageColumns:
    """The columns of a query in its order; or all, packed (`PACKED_COLUMN`)."""

    names: tuple[str, ...]
    packed: bool = False

    def build(self, batch: pa.RecordBatch, stream: str) -> pa.RecordBatch:
        """Convert a batch of `streams.backend.RECORD_SCHEMA`."""
        scan = _HeaderScan(batch.column("properties"))
        arrays = [_COLUMN_BUILDERS[name](batch, stream, scan) for name in self.names]
        schema = pa.schema([(name, _TYPES[name]) for name in self.names])
        built = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return pack_messages(built) if self.packed else built


PACKED_COLUMN: Final = "packed"


def pack_messages(messages: pa.RecordBatch) -> pa.RecordBatch:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, messages.schema) as writer:
        writer.write_batch(messages)
    content = sink.getvalue()
    ends = pa.array([0, content.size], pa.int32()).buffers()[1]
    value = pa.Array.from_buffers(pa.binary(), 1, [None, ends, content])
    return pa.RecordBatch.from_arrays([value], [PACKED_COLUMN])


def unpack_messages(value: pa.BinaryScalar) -> Iterator[pa.RecordBatch]:
    """The batches of a value, without copying."""
    with pa.ipc.open_stream(value.as_buffer()) as batches:
        yield from batches
