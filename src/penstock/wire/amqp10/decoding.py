"""Bytes to values: a reader for each constructor byte.

A size that lies is refused, whichever way it lies: a value may not run past what holds it, nor
leave part of it over. Depth is bounded, and so are arrays of elements without bytes, the one place
where a few bytes could claim any amount of memory.
"""

from __future__ import annotations

from typing import Any, Final
from uuid import UUID

from penstock.wire.amqp10 import values
from penstock.wire.amqp10.errors import DecodeError
from penstock.wire.amqp10.primitives import (
    Buffer,
    Reader,
    bits,
    boolean,
    character,
    constant,
    number,
    sized,
    string,
    symbol,
    truncated,
)
from penstock.wire.amqp10.values import (
    Array,
    Byte,
    Decimal,
    Described,
    Float,
    Int,
    Short,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
)

#: Deeper nesting has no honest use, and Python's own stack must not be what ends it.
MAX_DEPTH: Final = 32
#: Of elements that take no bytes (null, true, an empty list), an array may have so many.
MAX_WEIGHTLESS: Final = 64

_DESCRIBED: Final = 0x00


def decode(buffer: Buffer, at: int = 0, end: int | None = None) -> tuple[Any, int]:
    """The value whose constructor stands at `at`, and where it ends."""
    limit = len(buffer) if end is None or end > len(buffer) else end
    return _read(buffer, at, limit, MAX_DEPTH)


def decode_whole(buffer: Buffer) -> Any:
    """The one value that the bytes are."""
    value, at = _read(buffer, 0, len(buffer), MAX_DEPTH)
    if at != len(buffer):
        raise DecodeError(f"{len(buffer) - at} bytes after the value")
    return value


def skip(buffer: Buffer, at: int, end: int, depth: int = MAX_DEPTH) -> int:
    """Where the value at `at` ends, by its constructor and size alone."""
    if at >= end or buffer[at] != _DESCRIBED:
        return skip_plain(buffer, at, end)
    if depth <= 1:
        raise DecodeError(f"value at byte {at} is described too often")
    return skip(buffer, skip(buffer, at + 1, end, depth - 1), end, depth - 1)


def skip_plain(buffer: Buffer, at: int, end: int) -> int:
    """Where a value that is not described ends."""
    if at >= end:
        raise truncated(at)
    code = buffer[at]
    if code == _DESCRIBED or _READERS[code] is None:
        raise _unknown(buffer, at)
    width = _WIDTHS[code >> 4]
    start = at + 1
    if width >= 0:
        stop = start + width
    else:
        stop = start - width
        if stop <= end:
            stop += int.from_bytes(buffer[start:stop], "big")
    if stop > end:
        raise truncated(at)
    return stop


#: How many bytes follow a constructor of this class; negative: the width of the size that does.
_WIDTHS: Final = (0, 0, 0, 0, 0, 1, 2, 4, 8, 16, -1, -4, -1, -4, -1, -4)


def _read(buffer: Buffer, at: int, end: int, depth: int) -> tuple[Any, int]:
    if at >= end:
        raise truncated(at)
    reader = _READERS[buffer[at]]
    if reader is None:
        raise _unknown(buffer, at)
    return reader(buffer, at + 1, end, depth)


def _unknown(buffer: Buffer, at: int) -> DecodeError:
    return DecodeError(f"no type has the constructor 0x{buffer[at]:02x}, at byte {at}")


# Compound.


def _extent(buffer: Buffer, at: int, end: int, width: int) -> tuple[int, int, int]:
    """How many values there are, where they begin and where they end."""
    start = at + 2 * width
    if start > end:
        raise truncated(at - 1)
    if width == 1:
        stop, count = at + 1 + buffer[at], buffer[at + 1]
    else:
        stop = at + 4 + int.from_bytes(buffer[at : at + 4], "big")
        count = int.from_bytes(buffer[at + 4 : start], "big")
    if stop > end or stop < start:
        raise truncated(at - 1)
    return count, start, stop


def _read_values(buffer: Buffer, count: int, at: int, stop: int, depth: int) -> list[Any]:
    if depth <= 0:
        raise DecodeError(f"value at byte {at} is nested too deep")
    if count > stop - at:
        raise DecodeError(f"{count} values cannot be in {stop - at} bytes, at byte {at}")
    found: list[Any] = []
    readers = _READERS
    for _ in range(count):
        if at >= stop:
            raise truncated(at)
        reader = readers[buffer[at]]
        if reader is None:
            raise _unknown(buffer, at)
        value, at = reader(buffer, at + 1, stop, depth)
        found.append(value)
    if at != stop:
        raise DecodeError(f"{stop - at} bytes left over after {count} values, at byte {at}")
    return found


def _list(width: int) -> Reader:
    def read(buffer: Buffer, at: int, end: int, depth: int) -> tuple[list[Any], int]:
        count, at, stop = _extent(buffer, at, end, width)
        return _read_values(buffer, count, at, stop, depth - 1), stop

    return read


def _map(width: int) -> Reader:
    def read(buffer: Buffer, at: int, end: int, depth: int) -> tuple[dict[Any, Any], int]:
        count, at, stop = _extent(buffer, at, end, width)
        if count % 2:
            raise DecodeError(f"map at byte {at} has a key without a value")
        found = _read_values(buffer, count, at, stop, depth - 1)
        try:
            table = dict(zip(found[::2], found[1::2], strict=True))
        except TypeError:
            raise DecodeError(f"map at byte {at} has a list or a map for a key") from None
        if len(table) * 2 != count:
            raise DecodeError(f"map at byte {at} has a key twice")
        return table, stop

    return read


def _array(width: int) -> Reader:
    def read(buffer: Buffer, at: int, end: int, depth: int) -> tuple[Array, int]:
        count, at, stop = _extent(buffer, at, end, width)
        if depth <= 1:
            raise DecodeError(f"array at byte {at} is nested too deep")
        descriptor = None
        if at < stop and buffer[at] == _DESCRIBED:
            descriptor, at = _read(buffer, at + 1, stop, depth - 1)
            if descriptor is None:
                raise DecodeError(f"array at byte {at} has null for a descriptor")
        if at >= stop:
            raise truncated(at)
        code = buffer[at]
        reader = _READERS[code]
        if reader is None or code == _DESCRIBED:
            raise _unknown(buffer, at)
        at += 1
        if count > (stop - at if _WIDTHS[code >> 4] else MAX_WEIGHTLESS):
            raise DecodeError(f"array of {count} elements in {stop - at} bytes, at byte {at}")
        found: list[Any] = []
        for _ in range(count):
            value, at = reader(buffer, at, stop, depth - 1)
            found.append(value)
        if at != stop:
            raise DecodeError(f"{stop - at} bytes left over in an array, at byte {at}")
        return Array(TYPE_OF.get(code, code), found, descriptor), stop

    return read


def _read_described(buffer: Buffer, at: int, end: int, depth: int) -> tuple[Described, int]:
    if depth <= 1:
        raise DecodeError(f"value at byte {at} is described too often")
    descriptor, at = _read(buffer, at, end, depth - 1)
    value, at = _read(buffer, at, end, depth - 1)
    return Described(descriptor, value), at


#: What narrower encodings are encodings of.
TYPE_OF: Final = {
    0x41: values.BOOLEAN,
    0x42: values.BOOLEAN,
    0x43: values.UINT,
    0x52: values.UINT,
    0x44: values.ULONG,
    0x53: values.ULONG,
    0x54: values.INT,
    0x55: values.LONG,
    0xA0: values.BINARY,
    0xA1: values.STRING,
    0xA3: values.SYMBOL,
    0x45: values.LIST,
    0xC0: values.LIST,
    0xC1: values.MAP,
    0xE0: values.ARRAY,
}


def _read_list0(buffer: Buffer, at: int, end: int, depth: int) -> tuple[list[Any], int]:
    return [], at


def _table() -> list[Reader | None]:
    readers: list[Reader | None] = [None] * 256
    known: dict[int, Reader] = {
        _DESCRIBED: _read_described,
        0x40: constant(None),
        0x41: constant(True),
        0x42: constant(False),
        0x43: constant(UInt(0)),
        0x44: constant(ULong(0)),
        0x45: _read_list0,
        0x50: number(">B", UByte),
        0x51: number(">b", Byte),
        0x52: number(">B", UInt),
        0x53: number(">B", ULong),
        0x54: number(">b", Int),
        0x55: number(">b"),
        0x56: number(">B", boolean),
        0x60: number(">H", UShort),
        0x61: number(">h", Short),
        0x70: number(">I", UInt),
        0x71: number(">i", Int),
        0x72: number(">f", Float),
        0x73: number(">I", character),
        0x74: bits(4, Decimal),
        0x80: number(">Q", ULong),
        0x81: number(">q"),
        0x82: number(">d"),
        0x83: number(">q", Timestamp),
        0x84: bits(8, Decimal),
        0x94: bits(16, Decimal),
        0x98: bits(16, lambda content: UUID(bytes=content)),
        0xA0: sized(1, bytes),
        0xA1: sized(1, string),
        0xA3: sized(1, symbol),
        0xB0: sized(4, bytes),
        0xB1: sized(4, string),
        0xB3: sized(4, symbol),
        0xC0: _list(1),
        0xC1: _map(1),
        0xD0: _list(4),
        0xD1: _map(4),
        0xE0: _array(1),
        0xF0: _array(4),
    }
    for code, reader in known.items():
        readers[code] = reader
    return readers


_READERS: Final = _table()
