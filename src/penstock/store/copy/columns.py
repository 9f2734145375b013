"""Arrow columns as the bytes PostgreSQL has for them, a kind of column for each of its types.

The format is strict: a value is sent in the type of its column there, whatever Arrow had it in. A
column is first brought to that type, and what does not fit is refused. Values of one size come as
a matrix of bytes, a row each; others as their lengths and all their bytes one after the other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.errors import PenstockError

Bytes = npt.NDArray[np.uint8]

#: PostgreSQL counts time from the first day of 2000.
_EPOCH_DAYS: Final = 10_957
_EPOCH_MICROSECONDS: Final = _EPOCH_DAYS * 86_400_000_000
_TEXT_OID: Final = 25


class Unsendable(PenstockError):
    """A column whose values do not fit the type they are to have; names both."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """Values of one size: a row of the matrix each. `valid` is None when none is null."""

    matrix: Bytes
    valid: npt.NDArray[np.bool_] | None


@dataclass(frozen=True, slots=True)
class Varying:
    """Values of any size: their lengths (0 for a null one) and their bytes."""

    lengths: npt.NDArray[np.int64]
    data: Bytes
    valid: npt.NDArray[np.bool_] | None


Column = Fixed | Varying


def _fixed(arrow: Any, wire: str, shift: int = 0) -> Callable[[Any], Column]:
    """A kind whose Arrow values are numbers underneath, in another byte order and maybe epoch."""
    number = {"i2": pa.int16(), "i4": pa.int32(), "i8": pa.int64(), "f4": pa.float32()}
    plain = number.get(wire, pa.float64())
    width = int(wire[1:])

    def convert(array: Any) -> Column:
        numbers = array.cast(arrow).view(plain)
        values = pc.fill_null(numbers, 0).to_numpy(zero_copy_only=False)
        ordered = (values - shift).astype(f">{wire}") if shift else values.astype(f">{wire}")
        return Fixed(ordered.view(np.uint8).reshape(len(array), width), _valid(array))

    return convert


def _boolean(array: Any) -> Column:
    values = pc.fill_null(array.cast(pa.bool_()), False).to_numpy(zero_copy_only=False)
    return Fixed(values.astype(np.uint8).reshape(len(array), 1), _valid(array))


def _text(array: Any) -> Column:
    texts = array.cast(pa.large_string())
    if pc.any(pc.match_substring(texts, "\0")).as_py():
        # The one character PostgreSQL has no place for; a message with it must not stop a batch.
        texts = pc.replace_substring(texts, "\0", "\ufffd")
    return _varying(texts.view(pa.large_binary()))


def _binary(array: Any) -> Column:
    return _varying(array.cast(pa.large_binary()))


def _json(array: Any) -> Column:
    """`jsonb` is text after a byte that says which form of it."""
    version, nothing = (pa.scalar(text, pa.large_string()) for text in ("\x01", ""))
    texts = pc.binary_join_element_wise(version, array.cast(pa.large_string()), nothing)
    return _varying(texts.view(pa.large_binary()))


def _texts(array: Any) -> Column:
    """Arrays of texts: few and short, so they are put together one by one."""
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


def _varying(array: Any) -> Column:
    whole = pc.fill_null(array, b"")  # nulls may have bytes behind them: now they have none
    _, offsets, data = whole.buffers()
    ends = np.frombuffer(offsets, np.int64)[whole.offset : whole.offset + len(whole) + 1]
    buffer = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    return Varying(np.diff(ends), buffer[ends[0] : ends[-1]], _valid(array))


def _valid(array: Any) -> npt.NDArray[np.bool_] | None:
    if not array.null_count:
        return None
    valid: npt.NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return valid


#: PostgreSQL's types by the names its catalogue has for them.
KINDS: Final[dict[str, Callable[[Any], Column]]] = {
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


def column(array: Any, name: str, kind: str) -> Column:
    """One column in the bytes of its PostgreSQL type."""
    convert = KINDS.get(kind)
    if convert is None:
        raise Unsendable(f"column {name}: nothing is sent as {kind}; there are {', '.join(KINDS)}")
    try:
        return convert(array)
    except pa.ArrowException as error:
        raise Unsendable(f"column {name}: {array.type} does not fit {kind}: {error}") from error
