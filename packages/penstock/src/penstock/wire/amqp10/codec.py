"""The encoding of AMQP 1.0's types.

`decode` reads one value with its constructor and returns where it ends; `encode` writes one in its
smallest form; `skip` finds the end of a value without decoding it. Decoding any bytes either
succeeds or raises `DecodeError`, in time and memory proportional to them. A size that does not
match what it encloses is refused. Depth is bounded, and so are arrays of elements without bytes,
the one case in which a few bytes could claim any amount of memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from struct import error as StructError
from typing import Any, Final
from uuid import UUID

from penstock.wire.amqp10 import values
from penstock.wire.amqp10.errors import DecodeError, EncodeError
from penstock.wire.amqp10.values import (
    Array,
    Buffer,
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
    ValueReader,
    bits_reader,
    boolean_from_octet,
    char_from_code_point,
    constant_reader,
    number_reader,
    string_from_bytes,
    symbol_from_bytes,
    truncated_value,
    variable_width_reader,
)

__all__ = ["decode", "decode_whole", "encode", "skip"]


#: The nesting limit is far below the one of Python's stack.
MAX_DEPTH: Final = 32
#: How many elements without bytes (null, true, an empty list) an array may have.
MAX_ZERO_WIDTH_ELEMENTS: Final = 64

_DESCRIBED: Final = 0x00


def decode(buffer: Buffer, at: int = 0, end: int | None = None) -> tuple[Any, int]:
    """The value whose constructor is at `at`, and where it ends."""
    limit = len(buffer) if end is None or end > len(buffer) else end
    return _read(buffer, at, limit, MAX_DEPTH)


def decode_whole(buffer: Buffer) -> Any:
    """The value; raises if bytes follow it."""
    value, at = _read(buffer, 0, len(buffer), MAX_DEPTH)
    if at != len(buffer):
        raise DecodeError(f"{len(buffer) - at} bytes after the value")
    return value


def skip(buffer: Buffer, at: int, end: int, depth: int = MAX_DEPTH) -> int:
    """Where the value at `at` ends, according to its constructor and size."""
    if at >= end or buffer[at] != _DESCRIBED:
        return skip_undescribed(buffer, at, end)
    if depth <= 1:
        raise DecodeError(f"value at byte {at} has too many descriptors")
    return skip(buffer, skip(buffer, at + 1, end, depth - 1), end, depth - 1)


def skip_undescribed(buffer: Buffer, at: int, end: int) -> int:
    if at >= end:
        raise truncated_value(at)
    code = buffer[at]
    if code == _DESCRIBED or _READERS[code] is None:
        raise _unknown_constructor(buffer, at)
    width = _WIDTHS[code >> 4]
    start = at + 1
    if width >= 0:
        stop = start + width
    else:
        stop = start - width
        if stop <= end:
            stop += int.from_bytes(buffer[start:stop], "big")
    if stop > end:
        raise truncated_value(at)
    return stop


#: By the class of a constructor, how many bytes follow it; negative: the width of their size.
_WIDTHS: Final = (0, 0, 0, 0, 0, 1, 2, 4, 8, 16, -1, -4, -1, -4, -1, -4)


def _read(buffer: Buffer, at: int, end: int, depth: int) -> tuple[Any, int]:
    if at >= end:
        raise truncated_value(at)
    reader = _READERS[buffer[at]]
    if reader is None:
        raise _unknown_constructor(buffer, at)
    return reader(buffer, at + 1, end, depth)


def _unknown_constructor(buffer: Buffer, at: int) -> DecodeError:
    return DecodeError(f"unknown constructor 0x{buffer[at]:02x} at byte {at}")


def _extent(buffer: Buffer, at: int, end: int, width: int) -> tuple[int, int, int]:
    """The number of values, where they begin and where they end."""
    start = at + 2 * width
    if start > end:
        raise truncated_value(at - 1)
    if width == 1:
        stop, count = at + 1 + buffer[at], buffer[at + 1]
    else:
        stop = at + 4 + int.from_bytes(buffer[at : at + 4], "big")
        count = int.from_bytes(buffer[at + 4 : start], "big")
    if stop > end or stop < start:
        raise truncated_value(at - 1)
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
            raise truncated_value(at)
        reader = readers[buffer[at]]
        if reader is None:
            raise _unknown_constructor(buffer, at)
        value, at = reader(buffer, at + 1, stop, depth)
        found.append(value)
    if at != stop:
        raise DecodeError(f"{stop - at} bytes left over after {count} values, at byte {at}")
    return found


def _list_reader(width: int) -> ValueReader:
    def read(buffer: Buffer, at: int, end: int, depth: int) -> tuple[list[Any], int]:
        count, at, stop = _extent(buffer, at, end, width)
        return _read_values(buffer, count, at, stop, depth - 1), stop

    return read


def _map_reader(width: int) -> ValueReader:
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


def _array_reader(width: int) -> ValueReader:
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
            raise truncated_value(at)
        code = buffer[at]
        reader = _READERS[code]
        if reader is None or code == _DESCRIBED:
            raise _unknown_constructor(buffer, at)
        at += 1
        if count > (stop - at if _WIDTHS[code >> 4] else MAX_ZERO_WIDTH_ELEMENTS):
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
        raise DecodeError(f"value at byte {at} has too many descriptors")
    descriptor, at = _read(buffer, at, end, depth - 1)
    value, at = _read(buffer, at, end, depth - 1)
    return Described(descriptor, value), at


#: The type of a narrow encoding.
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


def _reader_table() -> list[ValueReader | None]:
    readers: list[ValueReader | None] = [None] * 256
    known: dict[int, ValueReader] = {
        _DESCRIBED: _read_described,
        0x40: constant_reader(None),
        0x41: constant_reader(True),
        0x42: constant_reader(False),
        0x43: constant_reader(UInt(0)),
        0x44: constant_reader(ULong(0)),
        0x45: _read_list0,
        0x50: number_reader(">B", UByte),
        0x51: number_reader(">b", Byte),
        0x52: number_reader(">B", UInt),
        0x53: number_reader(">B", ULong),
        0x54: number_reader(">b", Int),
        0x55: number_reader(">b"),
        0x56: number_reader(">B", boolean_from_octet),
        0x60: number_reader(">H", UShort),
        0x61: number_reader(">h", Short),
        0x70: number_reader(">I", UInt),
        0x71: number_reader(">i", Int),
        0x72: number_reader(">f", Float),
        0x73: number_reader(">I", char_from_code_point),
        0x74: bits_reader(4, Decimal),
        0x80: number_reader(">Q", ULong),
        0x81: number_reader(">q"),
        0x82: number_reader(">d"),
        0x83: number_reader(">q", Timestamp),
        0x84: bits_reader(8, Decimal),
        0x94: bits_reader(16, Decimal),
        0x98: bits_reader(16, lambda content: UUID(bytes=content)),
        0xA0: variable_width_reader(1, bytes),
        0xA1: variable_width_reader(1, string_from_bytes),
        0xA3: variable_width_reader(1, symbol_from_bytes),
        0xB0: variable_width_reader(4, bytes),
        0xB1: variable_width_reader(4, string_from_bytes),
        0xB3: variable_width_reader(4, symbol_from_bytes),
        0xC0: _list_reader(1),
        0xC1: _map_reader(1),
        0xD0: _list_reader(4),
        0xD1: _map_reader(4),
        0xE0: _array_reader(1),
        0xF0: _array_reader(4),
    }
    for code, reader in known.items():
        readers[code] = reader
    return readers


_READERS: Final = _reader_table()


_LENGTH: Final = Struct(">I")
_PAIR: Final = Struct(">II")

#: Writes one value with its constructor: (value, levels left) → bytes.
_Writer = Callable[[Any, int], bytes]


def encode(value: Any) -> bytes:
    """Raises `EncodeError` for a value out of its type's range, and for an unknown type."""
    return _write(value, MAX_DEPTH)


def _write(value: Any, depth: int) -> bytes:
    writer = _WRITERS.get(type(value))
    if writer is None:
        writer = next((_WRITERS[kind] for kind in type(value).__mro__ if kind in _WRITERS), None)
        if writer is None:
            raise EncodeError(f"no type of AMQP 1.0 holds a {type(value).__name__}")
    return writer(value, depth)


def _small_integer_writer(
    zero: bytes, short: int, short_layout: str, long: int, long_layout: str
) -> _Writer:
    """An integer type with a one-byte encoding and perhaps one without bytes (`zero`)."""
    narrow, wide = Struct(">B" + short_layout), Struct(">B" + long_layout)
    least, most = (-128, 127) if short_layout == "b" else (0, 255)

    def write(value: int, depth: int) -> bytes:
        if least <= value <= most:
            return narrow.pack(short, value) if value or not zero else zero
        try:
            return wide.pack(long, value)
        except StructError:
            raise _out_of_range(value) from None

    return write


def _fixed_width_writer(code: int, layout: str) -> _Writer:
    packed = Struct(">B" + layout)

    def write(value: Any, depth: int) -> bytes:
        try:
            return packed.pack(code, value)
        except (StructError, OverflowError):
            raise _out_of_range(value) from None

    return write


def _out_of_range(value: Any) -> EncodeError:
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


def encode_variable_width(short: int, content: bytes) -> bytes:
    """Text or binary; `short` is the code of the narrow encoding."""
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


def _joined(found: Iterable[Any], depth: int) -> bytes:
    if depth <= 0:
        raise EncodeError("value is nested too deep to be sent")
    return b"".join([_write(value, depth) for value in found])


def encode_compound(short: int, count: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0xFF and count <= 0xFF:
        return bytes((short, size + 1, count)) + content
    _length(size + 4)
    return bytes((short + 0x10,)) + _PAIR.pack(size + 4, count) + content


def _write_list(value: list[Any] | tuple[Any, ...], depth: int) -> bytes:
    if not value:
        return b"\x45"
    return encode_compound(0xC0, len(value), _joined(value, depth - 1))


def _map_content(value: dict[Any, Any], depth: int) -> bytes:
    return _joined((part for pair in value.items() for part in pair), depth)


def _write_map(value: dict[Any, Any], depth: int) -> bytes:
    return encode_compound(0xC1, 2 * len(value), _map_content(value, depth - 1))


def _write_described(value: Described, depth: int) -> bytes:
    if depth <= 1:
        raise EncodeError("value is nested too deep to be sent")
    return b"\x00" + _write(value.descriptor, depth - 1) + _write(value.value, depth - 1)


def _write_array(value: Array, depth: int) -> bytes:
    if depth <= 1:
        raise EncodeError("value is nested too deep to be sent")
    described = b"" if value.descriptor is None else b"\x00" + _write(value.descriptor, depth - 1)
    content = described + _elements(value.code, value.values, depth - 1)
    return encode_compound(0xE0, len(value.values), content)


def _elements(code: int, found: tuple[Any, ...], depth: int) -> bytes:
    """The shared constructor and the elements without it.

    If the smallest encodings of all elements have one constructor, that is used; otherwise the
    type's widest.
    """
    written = [_write(value, depth) for value in found]
    forms = {content[0] for content in written}
    if code not in _CODES or any(TYPE_OF.get(form, form) != code for form in forms):
        raise EncodeError(f"not all elements are of the array's type, 0x{code:02x}")
    if code == values.NULL and len(found) > MAX_ZERO_WIDTH_ELEMENTS:
        raise EncodeError(f"an array has at most {MAX_ZERO_WIDTH_ELEMENTS} nulls, not {len(found)}")
    if len(forms) == 1 and (form := forms.pop()) >= _FIRST_WITH_BYTES:
        return bytes((form,)) + b"".join([content[1:] for content in written])
    return bytes((code,)) + b"".join([_widened(content, code) for content in written])


def _widened(content: bytes, code: int) -> bytes:
    """An element in its type's widest encoding, without the constructor."""
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
    UByte: _fixed_width_writer(values.UBYTE, "B"),
    UShort: _fixed_width_writer(values.USHORT, "H"),
    UInt: _small_integer_writer(b"\x43", 0x52, "B", values.UINT, "I"),
    ULong: _small_integer_writer(b"\x44", 0x53, "B", values.ULONG, "Q"),
    Byte: _fixed_width_writer(values.BYTE, "b"),
    Short: _fixed_width_writer(values.SHORT, "h"),
    Int: _small_integer_writer(b"", _SMALL_INT, "b", values.INT, "i"),
    int: _small_integer_writer(b"", _SMALL_LONG, "b", values.LONG, "q"),
    Float: _fixed_width_writer(values.FLOAT, "f"),
    float: _fixed_width_writer(values.DOUBLE, "d"),
    Decimal: _write_decimal,
    Char: _write_char,
    Timestamp: _fixed_width_writer(values.TIMESTAMP, "q"),
    UUID: lambda value, depth: b"\x98" + value.bytes,
    bytes: lambda value, depth: encode_variable_width(0xA0, value),
    bytearray: lambda value, depth: encode_variable_width(0xA0, bytes(value)),
    memoryview: lambda value, depth: encode_variable_width(0xA0, bytes(value)),
    str: lambda value, depth: encode_variable_width(0xA1, _utf8(value)),
    Symbol: lambda value, depth: encode_variable_width(0xA3, _ascii(value)),
    list: _write_list,
    tuple: _write_list,
    dict: _write_map,
    Described: _write_described,
    Array: _write_array,
}
