"""PostgreSQL's binary COPY format from Arrow columns; no connection.

A column is cast to the type of its PostgreSQL column; values that do not fit raise
`ColumnTypeMismatch`. A row is the number of fields, then for each field its length and bytes, or -1
for null. Rows of fixed-width columns without nulls are written as one matrix; others field by field
at precomputed positions.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import PenstockError

__all__ = ["ENCODERS", "HEADER", "TRAILER", "ColumnTypeMismatch", "encode_rows"]


ByteMatrix = npt.NDArray[np.uint8]

#: PostgreSQL's epoch is 2000-01-01.
_EPOCH_DAYS: Final = 10_957
_EPOCH_MICROSECONDS: Final = _EPOCH_DAYS * 86_400_000_000
_TEXT_OID: Final = 25


class ColumnTypeMismatch(PenstockError):
    """Values of a column do not fit its PostgreSQL type."""


@dataclass(frozen=True, slots=True)
class FixedWidthColumn:
    """A row of the matrix for each value; `valid` is None without nulls."""

    matrix: ByteMatrix
    valid: npt.NDArray[np.bool_] | None


@dataclass(frozen=True, slots=True)
class VariableWidthColumn:
    """Lengths (0 for nulls) and concatenated bytes."""

    lengths: npt.NDArray[np.int64]
    data: ByteMatrix
    valid: npt.NDArray[np.bool_] | None


EncodedColumn = FixedWidthColumn | VariableWidthColumn


def _fixed(arrow: Any, wire: str, shift: int = 0) -> Callable[[Any], EncodedColumn]:
    """Numbers in network byte order, shifted by the difference of epochs."""
    number = {"i2": pa.int16(), "i4": pa.int32(), "i8": pa.int64(), "f4": pa.float32()}
    plain = number.get(wire, pa.float64())
    width = int(wire[1:])

    def convert(array: Any) -> EncodedColumn:
        numbers = array.cast(arrow).view(plain)
        values = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)
        ordered = (values - shift).astype(f">{wire}") if shift else values.astype(f">{wire}")
        return FixedWidthColumn(ordered.view(np.uint8).reshape(len(array), width), _valid(array))

    return convert


def _boolean(array: Any) -> EncodedColumn:
    values = pc.fill_null(array.cast(pa.bool_()), False).to_numpy(zero_copy_only=False)
    return FixedWidthColumn(values.astype(np.uint8).reshape(len(array), 1), _valid(array))


def _text(array: Any) -> EncodedColumn:
    texts = array.cast(pa.large_string())
    if pc.any(pc.match_substring(texts, "\0")).as_py():
        # PostgreSQL cannot store U+0000; a message with it must not stop a batch.
        texts = pc.replace_substring(texts, "\0", "\ufffd")
    return _varying(texts.view(pa.large_binary()))


def _binary(array: Any) -> EncodedColumn:
    return _varying(array.cast(pa.large_binary()))


def _json(array: Any) -> EncodedColumn:
    """`jsonb` is text after a version byte."""
    version, nothing = (pa.scalar(text, pa.large_string()) for text in ("\x01", ""))
    texts = pc.binary_join_element_wise(version, array.cast(pa.large_string()), nothing)
    return _varying(texts.view(pa.large_binary()))


def _texts(array: Any) -> EncodedColumn:
    """Text arrays, which are rare and short: encoded one by one."""
    lists = array.cast(pa.large_list(pa.large_string())).to_pylist()
    packed = [None if texts is None else _packed_texts(texts) for texts in lists]
    return _varying(pa.array(packed, pa.large_binary()))


def _packed_texts(texts: list[str | None]) -> bytes:
    if not texts:
        return struct.pack(">iii", 0, 0, _TEXT_OID)
    parts = [struct.pack(">iiiii", 1, None in texts, _TEXT_OID, len(texts), 1)]
    for text in texts:
        data = None if text is None else text.replace("\0", "\ufffd").encode()
        parts.append(struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data)
    return b"".join(parts)


def _varying(array: Any) -> EncodedColumn:
    whole = pc.fill_null(array, b"")  # nulls may have bytes
    _, offsets, data = whole.buffers()
    ends = np.frombuffer(offsets, np.int64)[whole.offset : whole.offset + len(whole) + 1]
    buffer = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return VariableWidthColumn(np.diff(ends), buffer[ends[0] : ends[-1]], _valid(array))


def _valid(array: Any) -> npt.NDArray[np.bool_] | None:
    if not array.null_count:
        return None
    valid: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


#: By the type names of PostgreSQL's catalogue.
ENCODERS: Final[dict[str, Callable[[Any], EncodedColumn]]] = {
    "bool": _boolean,
    "int2": _fixed(pa.int16(), "i2"),
    "int4": _fixed(pa.int32(), "i4"),
    "int8": _fixed(pa.int64(), "i8"),
    "float4": _fixed(pa.float32(), "f4"),
    "float8": _fixed(pa.float64(), "f8"),
    "date": _fixed(pa.date32(), "i4", _EPOCH_DAYS),
    "time": _fixed(pa.time64("us"), "i8"),
    "timestamp": _fixed(pa.timestamp("us"), "i8", _EPOCH_MICROSECONDS),
    "timestamptz": _fixed(pa.timestamp("us", "UTC"), "i8", _EPOCH_MICROSECONDS),
    "text": _text,
    "varchar": _text,
    "bytea": _binary,
    "jsonb": _json,
    "_text": _texts,
}


def encode_column(array: Any, name: str, kind: str) -> EncodedColumn:
    convert = ENCODERS.get(kind)
    if convert is None:
        raise ColumnTypeMismatch(
            f"column {name}: type {kind} is not supported; supported are {', '.join(ENCODERS)}"
        )
    try:
        return convert(array)
    except pa.ArrowException as error:
        raise ColumnTypeMismatch(
            f"column {name}: {array.type} does not fit {kind}: {error}"
        ) from error


HEADER: Final = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
TRAILER: Final = struct.pack(">h", -1)

_Indices = npt.NDArray[np.int64]


def encode_rows(batch: Any, kinds: Sequence[str]) -> bytes:
    """The rows of an Arrow record batch in these PostgreSQL types."""
    if batch.num_rows == 0:
        return b""
    columns = [
        encode_column(array, name, kind)
        for array, name, kind in zip(batch.columns, batch.schema.names, kinds, strict=True)
    ]
    if all(isinstance(one, FixedWidthColumn) and one.valid is None for one in columns):
        return _uniform(
            [one for one in columns if isinstance(one, FixedWidthColumn)], batch.num_rows
        )
    return _variable(columns, batch.num_rows)


def _uniform(columns: list[FixedWidthColumn], count: int) -> bytes:
    width = 2 + sum(4 + one.matrix.shape[1] for one in columns)
    rows = np.empty((count, width), np.uint8)
    rows[:, :2] = _number(len(columns), 2)
    at = 2
    for one in columns:
        size = one.matrix.shape[1]
        rows[:, at : at + 4] = _number(size, 4)
        rows[:, at + 4 : at + 4 + size] = one.matrix
        at += 4 + size
    return rows.tobytes()


def _variable(columns: list[EncodedColumn], count: int) -> bytes:
    lengths = [_lengths(one, count) for one in columns]
    sizes = np.full(count, 2, np.int64)
    for length in lengths:
        sizes += 4 + np.maximum(length, 0)
    ends = np.cumsum(sizes)
    out = np.empty(int(ends[-1]), np.uint8)
    at = ends - sizes
    _write_at(out, at, np.broadcast_to(_number(len(columns), 2), (count, 2)))
    at = at + 2
    for one, length in zip(columns, lengths, strict=True):
        _write_at(out, at, length.astype(">i4").view(np.uint8).reshape(count, 4))
        at = at + 4
        if isinstance(one, FixedWidthColumn):
            there = slice(None) if one.valid is None else one.valid
            _write_at(out, at[there], one.matrix[there])
        else:
            # Target of each byte: start of its value here minus start in the column.
            begins = np.cumsum(one.lengths) - one.lengths
            out[np.repeat(at - begins, one.lengths) + np.arange(len(one.data))] = one.data
        at = at + np.maximum(length, 0)
    return out.tobytes()


def _lengths(one: EncodedColumn, count: int) -> _Indices:
    plain = (
        np.full(count, one.matrix.shape[1]) if isinstance(one, FixedWidthColumn) else one.lengths
    )
    lengths: _Indices = plain if one.valid is None else np.where(one.valid, plain, -1)
    return lengths


def _write_at(out: ByteMatrix, at: _Indices, matrix: ByteMatrix) -> None:
    out[at[:, None] + np.arange(matrix.shape[1])] = matrix


def _number(value: int, width: int) -> ByteMatrix:
    return np.frombuffer(value.to_bytes(width), np.uint8)
