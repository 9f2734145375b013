"""Values to bytes: the smallest form of each.

A value that its type cannot hold (a `UByte` of 300, a symbol that is not ASCII) raises
`EncodeError`; so does a type that AMQP 1.0 has no counterpart for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from struct import error as StructError
from typing import Any, Final
from uuid import UUID

from penstock.wire.amqp10 import values
from penstock.wire.amqp10.decoding import MAX_DEPTH, MAX_WEIGHTLESS, TYPE_OF
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

_LENGTH: Final = Struct(">I")
_PAIR: Final = Struct(">II")

#: Writes one value with its constructor: (value, levels left) → bytes.
_Writer = Callable[[Any, int], bytes]


def encode(value: Any) -> bytes:
    return _write(value, MAX_DEPTH)


def _write(value: Any, depth: int) -> bytes:
    writer = _WRITERS.get(type(value))
    if writer is None:
        writer = next((_WRITERS[kind] for kind in type(value).__mro__ if kind in _WRITERS), None)
        if writer is None:
            raise EncodeError(f"no type of AMQP 1.0 holds a {type(value).__name__}")
    return writer(value, depth)


def _small(zero: bytes, short: int, short_layout: str, long: int, long_layout: str) -> _Writer:
    """An integer that has a form of one byte, and perhaps a form of none."""
    narrow, wide = Struct(">B" + short_layout), Struct(">B" + long_layout)
    least, most = (-128, 127) if short_layout == "b" else (0, 255)

    def write(value: int, depth: int) -> bytes:
        if least <= value <= most:
            return narrow.pack(short, value) if value or not zero else zero
        try:
            return wide.pack(long, value)
        except StructError:
            raise _unfit(value) from None

    return write


def _fixed(code: int, layout: str) -> _Writer:
    packed = Struct(">B" + layout)

    def write(value: Any, depth: int) -> bytes:
        try:
            return packed.pack(code, value)
        except (StructError, OverflowError):
            raise _unfit(value) from None

    return write


def _unfit(value: Any) -> EncodeError:
    return EncodeError(f"{value!r} does not fit into a {type(value).__name__}")


def _write_char(value: Char, depth: int) -> bytes:
    if len(value) != 1 or "\ud800" <= value <= "\udfff":
        raise EncodeError(f"{value!r} is not one character")
    return b"\x73" + _LENGTH.pack(ord(value))


_DECIMALS: Final = {4: b"\x74", 8: b"\x84", 16: b"\x94"}


def _write_decimal(value: Decimal, depth: int) -> bytes:
    code = _DECIMALS.get(len(value.bits))
    if code is None:
        raise EncodeError(f"a decimal has 4, 8 or 16 bytes, not {len(value.bits)}")
    return code + value.bits


def sized(short: int, content: bytes) -> bytes:
    """Text or binary; the wide form's code is the narrow one's and 0x10."""
    if len(content) <= 0xFF:
        return bytes((short, len(content))) + content
    return bytes((short + 0x10,)) + _length(len(content)) + content


def _length(size: int) -> bytes:
    try:
        return _LENGTH.pack(size)
    except StructError:
        raise EncodeError(f"{size} bytes are more than AMQP 1.0 can carry in one value") from None


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise EncodeError(f"{text[:32]!r} cannot be written as UTF-8") from None


def _ascii(text: str) -> bytes:
    try:
        return text.encode("ascii")
    except UnicodeEncodeError:
        raise EncodeError(f"the symbol {text[:32]!r} is not ASCII") from None


# Compound: the content of each, then its size and count in one byte or in four.


def _joined(found: Iterable[Any], depth: int) -> bytes:
    if depth <= 0:
        raise EncodeError("value is nested too deep to be sent")
    return b"".join([_write(value, depth) for value in found])


def compound(short: int, count: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0xFF and count <= 0xFF:
        return bytes((short, size + 1, count)) + content
    _length(size + 4)
    return bytes((short + 0x10,)) + _PAIR.pack(size + 4, count) + content


def _write_list(value: list[Any] | tuple[Any, ...], depth: int) -> bytes:
    if not value:
        return b"\x45"
    return compound(0xC0, len(value), _joined(value, depth - 1))


def _map_content(value: dict[Any, Any], depth: int) -> bytes:
    return _joined((part for pair in value.items() for part in pair), depth)


def _write_map(value: dict[Any, Any], depth: int) -> bytes:
    return compound(0xC1, 2 * len(value), _map_content(value, depth - 1))


def _write_described(value: Described, depth: int) -> bytes:
    if depth <= 1:
        raise EncodeError("value is nested too deep to be sent")
    return b"\x00" + _write(value.descriptor, depth - 1) + _write(value.value, depth - 1)


def _write_array(value: Array, depth: int) -> bytes:
    if depth <= 1:
        raise EncodeError("value is nested too deep to be sent")
    described = b"" if value.descriptor is None else b"\x00" + _write(value.descriptor, depth - 1)
    content = described + _elements(value.code, value.values, depth - 1)
    return compound(0xE0, len(value.values), content)


def _elements(code: int, found: tuple[Any, ...], depth: int) -> bytes:
    """The constructor that all elements share, and the elements without it.

    Each is written by itself first: where all chose the same form, that is the array's; else they
    all get the type's widest.
    """
    written = [_write(value, depth) for value in found]
    forms = {content[0] for content in written}
    if code not in _CODES or any(TYPE_OF.get(form, form) != code for form in forms):
        raise EncodeError(f"not all elements are of the array's type, 0x{code:02x}")
    if code == values.NULL and len(found) > MAX_WEIGHTLESS:
        raise EncodeError(f"an array has at most {MAX_WEIGHTLESS} nulls, not {len(found)}")
    if len(forms) == 1 and (form := forms.pop()) >= _FIRST_WITH_BYTES:
        return bytes((form,)) + b"".join([content[1:] for content in written])
    return bytes((code,)) + b"".join([_widened(content, code) for content in written])


def _widened(content: bytes, code: int) -> bytes:
    """An element in its type's widest form, without the constructor."""
    form = content[0]
    if form == code:
        return content[1:]
    if code == values.BOOLEAN:
        return b"\x01" if form == _TRUE else b"\x00"
    if form == _LIST0:
        return _PAIR.pack(4, 0)
    if form >= _FIRST_COMPOUND:
        return _PAIR.pack(content[1] + 3, content[2]) + content[3:]
    if form >= _FIRST_SIZED:
        return _LENGTH.pack(content[1]) + content[2:]
    signed = form in (_SMALL_INT, _SMALL_LONG)
    number = int.from_bytes(content[1:], "big", signed=signed)
    return number.to_bytes(8 if code in (values.ULONG, values.LONG) else 4, "big", signed=signed)


_TRUE: Final = 0x41
_LIST0: Final = 0x45
_FIRST_WITH_BYTES: Final = 0x50
_SMALL_INT: Final = 0x54
_SMALL_LONG: Final = 0x55
_FIRST_SIZED: Final = 0xA0
_FIRST_COMPOUND: Final = 0xC0

_CODES: Final = frozenset(
    code for name, code in vars(values).items() if name.isupper() and isinstance(code, int)
)

_WRITERS: Final[dict[type, _Writer]] = {
    type(None): lambda value, depth: b"\x40",
    bool: lambda value, depth: b"\x41" if value else b"\x42",
    UByte: _fixed(values.UBYTE, "B"),
    UShort: _fixed(values.USHORT, "H"),
    UInt: _small(b"\x43", 0x52, "B", values.UINT, "I"),
    ULong: _small(b"\x44", 0x53, "B", values.ULONG, "Q"),
    Byte: _fixed(values.BYTE, "b"),
    Short: _fixed(values.SHORT, "h"),
    Int: _small(b"", _SMALL_INT, "b", values.INT, "i"),
    int: _small(b"", _SMALL_LONG, "b", values.LONG, "q"),
    Float: _fixed(values.FLOAT, "f"),
    float: _fixed(values.DOUBLE, "d"),
    Decimal: _write_decimal,
    Char: _write_char,
    Timestamp: _fixed(values.TIMESTAMP, "q"),
    UUID: lambda value, depth: b"\x98" + value.bytes,
    bytes: lambda value, depth: sized(0xA0, value),
    bytearray: lambda value, depth: sized(0xA0, bytes(value)),
    memoryview: lambda value, depth: sized(0xA0, bytes(value)),
    str: lambda value, depth: sized(0xA1, _utf8(value)),
    Symbol: lambda value, depth: sized(0xA3, _ascii(value)),
    list: _write_list,
    tuple: _write_list,
    dict: _write_map,
    Described: _write_described,
    Array: _write_array,
}
