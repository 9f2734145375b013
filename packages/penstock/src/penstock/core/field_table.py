"""Field tables of AMQP 0-9-1: headers, arguments and client properties.

Bytes in, Python values out, and back; no I/O. Type letters are those of RabbitMQ and its clients,
which differ from the standard (`s` is a 16-bit integer, `L` is signed, `x` is a byte array). A
round trip may change the letter: integers are written as `I` or `l`, floats as `d`.

Decoding succeeds or raises `WireSyntaxError` with the byte position. The frame bounds sizes;
`MAX_DEPTH` bounds nesting.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from penstock.core.errors import WireSyntaxError

if TYPE_CHECKING:
    from decimal import Decimal

#: Nesting limit, so that input cannot exhaust Python's stack.
MAX_DEPTH: Final = 64

_LENGTH: Final = Struct(">I")
_DECIMAL: Final = Struct(">Bi")
_SECONDS: Final = Struct(">q")
_STRING: Final = ord("S")

#: Reads one value: (data, position, end, levels left) → (value, position after it).
_Reader = Callable[[bytes, int, int, int], tuple[Any, int]]
#: Writes one value with its type letter: (value, levels left) → bytes.
_Writer = Callable[[Any, int], bytes]


def decode_table(
    data: bytes, pos: int = 0, end: int | None = None, *, max_depth: int = MAX_DEPTH
) -> tuple[dict[str, Any], int]:
    """The table at `pos`, and the position after it."""
    return _read_table(data, pos, _limit(data, end), max_depth)


def encode_table(table: Mapping[str, Any], *, max_depth: int = MAX_DEPTH) -> bytes:
    content = _table_content(table, max_depth)
    return _LENGTH.pack(len(content)) + content


def decode_value(data: bytes, pos: int, end: int | None = None) -> tuple[Any, int]:
    """The value whose type letter is at `pos`, and the position after it."""
    return _read_value(data, pos, _limit(data, end), MAX_DEPTH)


def is_decimal(value: object) -> TypeGuard[Decimal]:
    """Whether it is a decimal. Few programs have any, so the module is not loaded for the test."""
    kind = getattr(sys.modules.get("decimal"), "Decimal", None)
    return kind is not None and isinstance(value, kind)


def _limit(data: bytes, end: int | None) -> int:
    return len(data) if end is None else min(end, len(data))


def _truncated(what: str, pos: int) -> WireSyntaxError:
    return WireSyntaxError(f"{what} at byte {pos} runs past the end")


def _extent(data: bytes, pos: int, end: int, what: str) -> tuple[int, int]:
    """Start and end of a length-prefixed value."""
    start = pos + 4
    if start > end:
        raise _truncated(f"length of {what}", pos)
    stop: int = start + _LENGTH.unpack_from(data, pos)[0]
    if stop > end:
        raise _truncated(what, pos)
    return start, stop


def _read_table(data: bytes, pos: int, end: int, depth: int) -> tuple[dict[str, Any], int]:
    if depth <= 0:
        raise WireSyntaxError(f"table at byte {pos} is nested too deep")
    pos, stop = _extent(data, pos, end, "table")
    table: dict[str, Any] = {}
    unpack_from = _LENGTH.unpack_from
    while pos < stop:
        start = pos + 1
        pos = start + data[pos]
        if pos >= stop:
            raise _truncated("field name", start - 1)
        try:
            name = data[start:pos].decode()
        except UnicodeDecodeError:
            raise WireSyntaxError(f"field name at byte {start - 1} is not UTF-8") from None
        kind = data[pos]
        if kind == _STRING:  # the common case, without a call
            start = pos + 5
            if start > stop or (after := start + unpack_from(data, pos + 1)[0]) > stop:
                raise _truncated("string", pos + 1)
            try:
                table[name] = data[start:after].decode()
            except UnicodeDecodeError:
                table[name] = data[start:after]
            pos = after
            continue
        reader = _READERS.get(kind)
        if reader is None:
            raise _unknown_type(data, pos)
        table[name], pos = reader(data, pos + 1, stop, depth)
    return table, stop


def _read_array(data: bytes, pos: int, end: int, depth: int) -> tuple[list[Any], int]:
    if depth <= 0:
        raise WireSyntaxError(f"array at byte {pos} is nested too deep")
    pos, stop = _extent(data, pos, end, "array")
    values: list[Any] = []
    while pos < stop:
        value, pos = _read_value(data, pos, stop, depth)
        values.append(value)
    return values, stop


def _read_value(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
    if pos >= end:
        raise _truncated("value", pos)
    reader = _READERS.get(data[pos])
    if reader is None:
        raise _unknown_type(data, pos)
    return reader(data, pos + 1, end, depth)


def _unknown_type(data: bytes, pos: int) -> WireSyntaxError:
    return WireSyntaxError(f"unknown field type {data[pos : pos + 1]!r} at byte {pos}")


def _fixed(what: str, layout: str) -> _Reader:
    number = Struct(layout)
    size, unpack_from = number.size, number.unpack_from

    def read(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
        after = pos + size
        if after > end:
            raise _truncated(what, pos)
        return unpack_from(data, pos)[0], after

    return read


def _read_string(data: bytes, pos: int, end: int, depth: int) -> tuple[str | bytes, int]:
    start, stop = _extent(data, pos, end, "string")
    text = data[start:stop]
    try:
        return text.decode(), stop
    except UnicodeDecodeError:
        return text, stop


def _read_bytes(data: bytes, pos: int, end: int, depth: int) -> tuple[bytes, int]:
    start, stop = _extent(data, pos, end, "byte array")
    return data[start:stop], stop


def _read_decimal(data: bytes, pos: int, end: int, depth: int) -> tuple[Decimal, int]:
    if pos + 5 > end:
        raise _truncated("decimal", pos)
    from decimal import Decimal

    scale, digits = _DECIMAL.unpack_from(data, pos)
    return Decimal(digits).scaleb(-scale), pos + 5


def _read_timestamp(data: bytes, pos: int, end: int, depth: int) -> tuple[datetime | int, int]:
    """A datetime, or an int beyond the range of datetime."""
    if pos + 8 > end:
        raise _truncated("timestamp", pos)
    seconds: int = _SECONDS.unpack_from(data, pos)[0]
    try:
        return datetime.fromtimestamp(seconds, UTC), pos + 8
    except (OverflowError, ValueError, OSError):
        return seconds, pos + 8


def _read_void(data: bytes, pos: int, end: int, depth: int) -> tuple[None, int]:
    return None, pos


_READERS: Final[dict[int, _Reader]] = {
    ord("S"): _read_string,
    ord("I"): _fixed("32-bit integer", ">i"),
    ord("t"): _fixed("boolean", ">?"),
    ord("l"): _fixed("64-bit integer", ">q"),
    ord("F"): lambda data, pos, end, depth: _read_table(data, pos, end, depth - 1),
    ord("A"): lambda data, pos, end, depth: _read_array(data, pos, end, depth - 1),
    ord("T"): _read_timestamp,
    ord("d"): _fixed("double", ">d"),
    ord("V"): _read_void,
    ord("x"): _read_bytes,
    ord("D"): _read_decimal,
    ord("b"): _fixed("8-bit integer", ">b"),
    ord("B"): _fixed("8-bit unsigned integer", ">B"),
    ord("s"): _fixed("16-bit integer", ">h"),
    ord("u"): _fixed("16-bit unsigned integer", ">H"),
    ord("i"): _fixed("32-bit unsigned integer", ">I"),
    ord("L"): _fixed("64-bit integer", ">q"),
    ord("f"): _fixed("float", ">f"),
}


def _table_content(table: Mapping[str, Any], depth: int) -> bytes:
    if depth <= 0:
        raise WireSyntaxError("table is nested too deep to be sent")
    parts: list[bytes] = []
    for name, value in table.items():
        if type(value) is str:  # the common case, without a call
            content = _utf8(value) if not value.isascii() else value.encode()
            parts += (_key(name), b"S", _LENGTH.pack(len(content)), content)
        else:
            parts += (_key(name), _value(value, depth))
    return b"".join(parts)


@lru_cache(1024)
def _key(name: str) -> bytes:
    """A field name; few different ones occur, so they are cached."""
    key = _utf8(name)
    if len(key) > 255:
        raise WireSyntaxError(f"field name {name[:32]!r}… is longer than 255 bytes")
    return bytes((len(key),)) + key


def _array_content(values: list[Any] | tuple[Any, ...], depth: int) -> bytes:
    if depth <= 0:
        raise WireSyntaxError("array is nested too deep to be sent")
    return b"".join([_value(value, depth) for value in values])


def _value(value: Any, depth: int) -> bytes:
    writer = _WRITERS.get(type(value))
    if writer is None:
        for kind in type(value).__mro__:
            writer = _WRITERS.get(kind)
            if writer is not None:
                break
        else:
            if is_decimal(value):
                return _write_decimal(value, depth)
            raise WireSyntaxError(f"no field type holds a {type(value).__name__}")
    return writer(value, depth)


def _prefixed(letter: bytes, content: bytes) -> bytes:
    return letter + _LENGTH.pack(len(content)) + content


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise WireSyntaxError(f"{text[:32]!r} cannot be written as UTF-8") from None


def _write_int(value: int, depth: int) -> bytes:
    if -0x8000_0000 <= value <= 0x7FFF_FFFF:
        return b"I" + value.to_bytes(4, "big", signed=True)
    if -0x8000_0000_0000_0000 <= value <= 0x7FFF_FFFF_FFFF_FFFF:
        return b"l" + value.to_bytes(8, "big", signed=True)
    raise WireSyntaxError("no field type holds an integer of more than 64 bits")


def _write_decimal(value: Decimal, depth: int) -> bytes:
    sign, digits, exponent = value.as_tuple()
    # Check before converting: Decimal("1E+999999999") is a short text.
    if not isinstance(exponent, int) or not -255 <= exponent <= 9 or len(digits) > 10:
        raise WireSyntaxError("no field type holds so long a decimal")
    number = int("".join(map(str, digits))) * 10 ** max(exponent, 0) * (-1 if sign else 1)
    if not -0x8000_0000 <= number <= 0x7FFF_FFFF:
        raise WireSyntaxError("no field type holds so long a decimal")
    return b"D" + _DECIMAL.pack(max(-exponent, 0), number)


def _write_timestamp(value: datetime, depth: int) -> bytes:
    moment = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    return b"T" + _SECONDS.pack(int(moment.timestamp()))


_WRITERS: Final[dict[type, _Writer]] = {
    str: lambda value, depth: _prefixed(b"S", _utf8(value)),
    int: _write_int,
    bool: lambda value, depth: b"t\x01" if value else b"t\x00",
    dict: lambda value, depth: _prefixed(b"F", _table_content(value, depth - 1)),
    list: lambda value, depth: _prefixed(b"A", _array_content(value, depth - 1)),
    tuple: lambda value, depth: _prefixed(b"A", _array_content(value, depth - 1)),
    datetime: _write_timestamp,
    float: lambda value, depth: b"d" + Struct(">d").pack(value),
    type(None): lambda value, depth: b"V",
    bytes: lambda value, depth: _prefixed(b"x", value),
    bytearray: lambda value, depth: _prefixed(b"x", bytes(value)),
}
