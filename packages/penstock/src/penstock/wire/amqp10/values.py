"""The types of AMQP 1.0 that Python has no type for, and readers of scalar values.

A value keeps its type in both directions. Where Python has the type, it is used: `None`, `bool`,
`int` for long, `float` for double, `bytes` for binary, `str` for string, `uuid.UUID`, `list`,
`dict`. The types here are subclasses where possible: a `UInt` is an int, a `Symbol` a str.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from struct import Struct
from typing import Any, Final

from penstock.wire.amqp10.errors import DecodeError, TruncatedValue


class UByte(int):
    __slots__ = ()


class UShort(int):
    __slots__ = ()


class UInt(int):
    __slots__ = ()


class ULong(int):
    __slots__ = ()


class Byte(int):
    __slots__ = ()


class Short(int):
    __slots__ = ()


class Int(int):
    __slots__ = ()


class Timestamp(int):
    """Milliseconds since 1970, in UTC."""

    __slots__ = ()


class Float(float):
    """32 bits; a plain float is a double."""

    __slots__ = ()


class Char(str):
    __slots__ = ()


class Symbol(str):
    """An ASCII name from a domain that both sides know."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Decimal:
    """An IEEE 754 decimal as its 4, 8 or 16 bytes, passed on unchanged."""

    bits: bytes


@dataclass(frozen=True, slots=True)
class Described:
    descriptor: Any
    value: Any


@dataclass(frozen=True, slots=True)
class Array:
    """Values of one type. `code` is that of the type's widest encoding; the encoder may choose
    a narrower one. A descriptor is common to all elements."""

    code: int
    values: tuple[Any, ...]
    descriptor: Any = None

    def __init__(self, code: int, values: Any, descriptor: Any = None) -> None:
        object.__setattr__(self, "code", code)
        object.__setattr__(self, "values", tuple(values))
        object.__setattr__(self, "descriptor", descriptor)


# The code of each type's widest encoding.
NULL: Final = 0x40
BOOLEAN: Final = 0x56
UBYTE: Final = 0x50
USHORT: Final = 0x60
UINT: Final = 0x70
ULONG: Final = 0x80
BYTE: Final = 0x51
SHORT: Final = 0x61
INT: Final = 0x71
LONG: Final = 0x81
FLOAT: Final = 0x72
DOUBLE: Final = 0x82
DECIMAL32: Final = 0x74
DECIMAL64: Final = 0x84
DECIMAL128: Final = 0x94
CHAR: Final = 0x73
TIMESTAMP: Final = 0x83
UUID: Final = 0x98
BINARY: Final = 0xB0
STRING: Final = 0xB1
SYMBOL: Final = 0xB3
LIST: Final = 0xD0
MAP: Final = 0xD1
ARRAY: Final = 0xF0


Buffer = bytes | bytearray | memoryview
#: Reads what follows a constructor: (buffer, position, end, levels left) → (value, end of it).
ValueReader = Callable[[Buffer, int, int, int], tuple[Any, int]]


def truncated_value(at: int) -> TruncatedValue:
    return TruncatedValue(f"value at byte {at} extends past the end of its container")


def constant_reader(value: Any) -> ValueReader:
    def read(buffer: Buffer, at: int, end: int, depth: int) -> tuple[Any, int]:
        return value, at

    return read


def number_reader(layout: str, kind: Callable[[Any], Any] | None = None) -> ValueReader:
    packed = Struct(layout)
    size, unpack_from = packed.size, packed.unpack_from

    if kind is None:

        def read_plain(buffer: Buffer, at: int, end: int, depth: int) -> tuple[Any, int]:
            after = at + size
            if after > end:
                raise truncated_value(at - 1)
            return unpack_from(buffer, at)[0], after

        return read_plain

    def read(buffer: Buffer, at: int, end: int, depth: int) -> tuple[Any, int]:
        after = at + size
        if after > end:
            raise truncated_value(at - 1)
        return kind(unpack_from(buffer, at)[0]), after

    return read


def bits_reader(size: int, kind: Callable[[bytes], Any]) -> ValueReader:
    def read(buffer: Buffer, at: int, end: int, depth: int) -> tuple[Any, int]:
        after = at + size
        if after > end:
            raise truncated_value(at - 1)
        return kind(bytes(buffer[at:after])), after

    return read


def boolean_from_octet(octet: int) -> bool:
    if octet > 1:
        raise DecodeError(f"a boolean is 0 or 1, not {octet}")
    return octet == 1


def char_from_code_point(point: int) -> Char:
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise DecodeError(f"0x{point:x} is not a Unicode character")
    return Char(chr(point))


def variable_width_reader(width: int, kind: Callable[[Buffer], Any]) -> ValueReader:
    def read(buffer: Buffer, at: int, end: int, depth: int) -> tuple[Any, int]:
        start = at + width
        if start > end:
            raise truncated_value(at - 1)
        size = buffer[at] if width == 1 else int.from_bytes(buffer[at:start], "big")
        stop = start + size
        if stop > end:
            raise truncated_value(at - 1)
        return kind(buffer[start:stop]), stop

    return read


def string_from_bytes(content: Buffer) -> str:
    try:
        return str(content, "utf-8")
    except UnicodeDecodeError:
        raise DecodeError("a string is not UTF-8") from None


def symbol_from_bytes(content: Buffer) -> Symbol:
    try:
        return Symbol(content, "ascii")
    except UnicodeDecodeError:
        raise DecodeError("a symbol is not ASCII") from None
