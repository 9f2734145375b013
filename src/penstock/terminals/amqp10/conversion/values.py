"""Values of AMQP 1.0 as those of a field table of AMQP 0-9-1.

    null, boolean, int, double, binary, string    the same
    byte, ubyte, short, ushort, uint, long        an integer of 32 bits, or of 64 if it needs them
    ulong                                         the same, and a text beyond 63 bits
    float                                         a double
    decimal32, 64, 128                            a decimal; a text where that is too short for it
    char, symbol                                  a text
    timestamp                                     a timestamp, in seconds
    uuid                                          a text, urn:uuid:…
    list, array; map with texts for keys          an array; a table
    described                                     the value that is described

Only what the first line has comes back from a table with its type (`survives`). A map with other
keys has no counterpart at all.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal as Number
from typing import Any, Final
from uuid import UUID

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

_SURVIVE: Final = frozenset({type(None), bool, Int, float, bytes, str})
_INTEGERS: Final = (UByte, UShort, UInt, Byte, Short, Int, int)

#: Of a decimal by its size in bytes: the bits of its coefficient, and what its exponent is from.
_DECIMALS: Final = {4: (23, 101), 8: (53, 398), 16: (113, 6176)}
_WHOLE_MAX: Final = 0x7FFF_FFFF


def survives(value: Any) -> bool:
    """Whether a simple value comes back from a field table as it was."""
    kind = type(value)
    return kind in _SURVIVE or (kind is int and not -_WHOLE_MAX - 1 <= value <= _WHOLE_MAX)


def plain(value: Any) -> Any:
    """The value as `core/tables.py` writes it; raises `EncodeError` where there is none."""
    kind = type(value)
    if kind in _SURVIVE:
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
            return _moment(value // 1000)
        case UUID():
            return value.urn
        case Decimal():
            return _decimal(value.bits)
        case list():
            return [plain(one) for one in value]
        case Array():
            return [plain(one) for one in value.values]
        case Described():
            return plain(value.value)
        case dict() if all(isinstance(key, str) and len(key.encode()) <= 255 for key in value):
            return {str(key): plain(one) for key, one in value.items()}
    raise EncodeError(f"no field of a table holds a {kind.__name__}")


def _moment(seconds: int) -> datetime | int:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return seconds


def decimal64(scale: int, digits: int) -> Decimal:
    """A decimal of AMQP 0-9-1; every one of them fits."""
    sign = 1 << 63 if digits < 0 else 0
    return Decimal((sign | (398 - scale) << 53 | abs(digits)).to_bytes(8, "big"))


def _decimal(bits: bytes) -> Number | str:
    """The number that bits stand for (IEEE 754, the coefficient a binary integer)."""
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
