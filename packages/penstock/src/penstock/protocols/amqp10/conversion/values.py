"""Conversion between values of AMQP 1.0 and of field tables of AMQP 0-9-1.

    null, boolean, int, double, binary, string    the same
    byte, ubyte, short, ushort, uint, long        an integer of 32 bits, or of 64 if needed
    ulong                                         the same, and a string beyond 63 bits
    float                                         a double
    decimal32, 64, 128                            a decimal; a string if it does not fit
    char, symbol                                  a string
    timestamp                                     a timestamp, in seconds
    uuid                                          a string, urn:uuid:…
    list, array; map with string keys             an array; a table
    described                                     the described value

Only the types of the first line survive a round trip (`is_lossless`). A map with other keys has no
counterpart. In the other direction most types are the same bytes after another type code. A string
that is not UTF-8 becomes a binary, an array a list, because its values may have several types.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal as Number
from typing import Any, Final
from uuid import UUID

from penstock.core.errors import WireSyntaxError
from penstock.wire.amqp10.codec import encode, encode_compound, encode_variable_width
from penstock.wire.amqp10.errors import EncodeError
from penstock.wire.amqp10.values import (
    Array,
    Byte,
    Char,
    Decimal,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

_LOSSLESS_TYPES: Final = frozenset({type(None), bool, Int, float, bytes, str})
_INTEGERS: Final = (UByte, UShort, UInt, Byte, Short, Int, int)

#: Of a decimal, by its size in bytes: the bits of its coefficient, and the bias of its exponent.
_DECIMALS: Final = {4: (23, 101), 8: (53, 398), 16: (113, 6176)}
_WHOLE_MAX: Final = 0x7FFF_FFFF


def is_lossless(value: Any) -> bool:
    kind = type(value)
    return kind in _LOSSLESS_TYPES or (kind is int and not -_WHOLE_MAX - 1 <= value <= _WHOLE_MAX)


def to_field_value(value: Any) -> Any:
    """The value as `core/field_table.py` encodes it; raises `EncodeError` if there is none."""
    kind = type(value)
    if kind in _LOSSLESS_TYPES:
        return int(value) if kind is Int else value
    if kind in _INTEGERS:
        return int(value)
    match value:
        case ULong():
            return int(value) if value < 1 << 63 else str(int(value))
        case Float():
            return float(value)
        case Symbol() | Char():
            return str(value)
        case Timestamp():
            return _timestamp_value(value // 1000)
        case UUID():
            return value.urn
        case Decimal():
            return _decode_decimal(value.bits)
        case list():
            return [to_field_value(one) for one in value]
        case Array():
            return [to_field_value(one) for one in value.values]
        case Described():
            return to_field_value(value.value)
        case dict() if all(isinstance(key, str) and len(key.encode()) <= 255 for key in value):
            return {str(key): to_field_value(one) for key, one in value.items()}
    raise EncodeError(f"a field table cannot hold a {kind.__name__}")


def _timestamp_value(seconds: int) -> datetime | int:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return seconds


def encode_decimal64(scale: int, digits: int) -> Decimal:
    """A decimal of AMQP 0-9-1, all of which fit."""
    sign = 1 << 63 if digits < 0 else 0
    return Decimal((sign | (398 - scale) << 53 | abs(digits)).to_bytes(8, "big"))


def _decode_decimal(bits: bytes) -> Number | str:
    """IEEE 754 with the coefficient as a binary integer."""
    number = _number(bits)
    if not number.is_finite():
        return str(number)
    _, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    fits = len(digits) <= 10 and -255 <= exponent <= 0 and abs(int(_joined(digits))) <= _WHOLE_MAX
    return number if fits else str(number)


def _number(bits: bytes) -> Number:
    width = len(bits) * 8
    coefficient_bits, bias = _DECIMALS[len(bits)]
    whole = int.from_bytes(bits, "big")
    sign = whole >> width - 1
    match whole >> width - 6 & 0b11111:
        case 0b11111:
            return Number("NaN")
        case 0b11110:
            return Number("-Infinity" if sign else "Infinity")
    if whole >> width - 3 & 0b11 == 0b11:  # a coefficient that begins with 100
        exponent_bits = width - 1 - coefficient_bits
        coefficient = whole & (1 << coefficient_bits - 2) - 1 | 1 << coefficient_bits
        exponent = whole >> coefficient_bits - 2 & (1 << exponent_bits) - 1
    else:
        coefficient = whole & (1 << coefficient_bits) - 1
        exponent = whole >> coefficient_bits & (1 << width - 1 - coefficient_bits) - 1
    return Number((sign, tuple(map(int, str(coefficient))), exponent - bias))


def _joined(digits: tuple[int, ...]) -> str:
    return "".join(map(str, digits))


#: AMQP 1.0 nests less than AMQP 0-9-1, so deeper tables could not be encoded.
_MAX_DEPTH: Final = 24

TABLE_TYPE: Final = ord("F")
ARRAY_TYPE: Final = ord("A")
LONG_TYPE: Final = ord("l")

#: Types that differ by their code only: the code of AMQP 1.0, and the width.
_FIXED_WIDTH: Final = {
    ord("I"): (b"\x71", 4),
    ord("l"): (b"\x81", 8),
    ord("L"): (b"\x81", 8),
    ord("d"): (b"\x82", 8),
    ord("f"): (b"\x72", 4),
    ord("b"): (b"\x51", 1),
    ord("B"): (b"\x50", 1),
    ord("s"): (b"\x61", 2),
    ord("u"): (b"\x60", 2),
    ord("i"): (b"\x70", 4),
}

#: Reads the value after a type code: (data, position, levels left) → (encoded, end).
_Reader = Callable[[bytes, int, int], tuple[bytes, int]]


def read_table_fields(data: bytes, depth: int = _MAX_DEPTH) -> Iterator[tuple[bytes, int, bytes]]:
    """The name, the type code and the encoded value of each field; `data` is a table without its
    length."""
    at, end = 0, len(data)
    while at < end:
        start = at + 1
        at = start + data[at]
        if at >= end:
            raise WireSyntaxError("field table: incomplete field")
        letter = data[at]
        encoded, after = _read(data, letter, at + 1, depth)
        yield data[start:at], letter, encoded
        at = after


def encode_string(content: bytes) -> bytes:
    """A string, or a binary if it is not UTF-8."""
    return encode_variable_width(0xA1 if is_utf8(content) else 0xA0, content)


def is_utf8(content: bytes) -> bool:
    if content.isascii():
        return True
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _read(data: bytes, letter: int, at: int, depth: int) -> tuple[bytes, int]:
    fixed = _FIXED_WIDTH.get(letter)
    if fixed is not None:
        code, width = fixed
        after = at + width
        if after > len(data):
            raise WireSyntaxError("field table: incomplete number")
        return code + data[at:after], after
    reader = _READERS.get(letter)
    if reader is None:
        raise WireSyntaxError(f"unknown field type {letter:#04x}")
    return reader(data, at, depth)


def _content(data: bytes, at: int) -> tuple[bytes, int]:
    start = at + 4
    after = start + int.from_bytes(data[at:start], "big")
    if after > len(data):
        raise WireSyntaxError("field table: incomplete value")
    return data[start:after], after


def _read_string(data: bytes, at: int, depth: int) -> tuple[bytes, int]:
    content, after = _content(data, at)
    return encode_string(content), after


def _read_bytes(data: bytes, at: int, depth: int) -> tuple[bytes, int]:
    content, after = _content(data, at)
    return encode_variable_width(0xA0, content), after


def _read_boolean(data: bytes, at: int, depth: int) -> tuple[bytes, int]:
    if at >= len(data):
        raise WireSyntaxError("field table: incomplete boolean")
    return (b"\x41" if data[at] else b"\x42"), at + 1


def _read_timestamp(data: bytes, at: int, depth: int) -> tuple[bytes, int]:
    after = at + 8
    if after > len(data):
        raise WireSyntaxError("field table: incomplete timestamp")
    seconds = int.from_bytes(data[at:after], "big", signed=True)
    return encode_timestamp(seconds), after


def encode_timestamp(seconds: int) -> bytes:
    """A timestamp in milliseconds; a long in seconds if that is out of range."""
    milliseconds = seconds * 1000
    if -(1 << 63) <= milliseconds < 1 << 63:
        return b"\x83" + milliseconds.to_bytes(8, "big", signed=True)
    return b"\x81" + seconds.to_bytes(8, "big", signed=True)


def _read_decimal(data: bytes, at: int, depth: int) -> tuple[bytes, int]:
    after = at + 5
    if after > len(data):
        raise WireSyntaxError("field table: incomplete decimal")
    digits = int.from_bytes(data[at + 1 : after], "big", signed=True)
    return encode(encode_decimal64(data[at], digits)), after


def _read_table(data: bytes, at: int, depth: int) -> tuple[bytes, int]:
    if depth <= 0:
        raise WireSyntaxError("field table: nested too deep")
    content, after = _content(data, at)
    parts: list[bytes] = []
    seen: set[bytes] = set()
    for name, _, encoded in read_table_fields(content, depth - 1):
        if name not in seen:  # duplicate names are invalid in AMQP 1.0
            seen.add(name)
            parts += (encode_string(name), encoded)
    return encode_compound(0xC1, len(parts), b"".join(parts)), after


def _read_array(data: bytes, at: int, depth: int) -> tuple[bytes, int]:
    if depth <= 0:
        raise WireSyntaxError("field table: array nested too deep")
    content, after = _content(data, at)
    parts: list[bytes] = []
    at = 0
    while at < len(content):
        encoded, at = _read(content, content[at], at + 1, depth - 1)
        parts.append(encoded)
    return (encode_compound(0xC0, len(parts), b"".join(parts)) if parts else b"\x45"), after


_READERS: Final[dict[int, _Reader]] = {
    ord("S"): _read_string,
    ord("x"): _read_bytes,
    ord("t"): _read_boolean,
    ord("T"): _read_timestamp,
    ord("V"): lambda data, at, depth: (b"\x40", at),
    ord("D"): _read_decimal,
    TABLE_TYPE: _read_table,
    ARRAY_TYPE: _read_array,
}
