"""The types of a method's fields, read and written side by side.

A field type reads one value at a position and writes one value; both raise `WireSyntaxError` for
what does not fit. Bits are the exception: neighbours share an octet, so whoever knows the
neighbours (`methods.py`) packs them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.core.errors import WireSyntaxError
from penstock.core.properties import read_shortstr, shortstr
from penstock.core.tables import decode_table, encode_table


@dataclass(frozen=True, slots=True)
class FieldType:
    """How one type of field is read and written, and what stands for a field left out."""

    name: str
    read: Callable[[bytes, int], tuple[Any, int]]
    write: Callable[[Any], bytes]
    default: Any


def _integer(name: str, size: int) -> FieldType:
    def read(data: bytes, pos: int) -> tuple[int, int]:
        after = pos + size
        if after > len(data):
            raise WireSyntaxError(f"{name} at byte {pos} runs past the end of the method")
        return int.from_bytes(data[pos:after], "big"), after

    def write(value: int) -> bytes:
        try:
            return value.to_bytes(size, "big")
        except OverflowError:
            raise WireSyntaxError(f"{value} does not fit in a {name}") from None

    return FieldType(name, read, write, 0)


def _read_text(data: bytes, pos: int) -> tuple[str, int]:
    """A short string that names something, and therefore must be text."""
    value, after = read_shortstr(data, pos)
    # What is not UTF-8 comes out as lone surrogates, which UTF-8 cannot spell.
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise WireSyntaxError(f"short string at byte {pos} is not UTF-8") from None
    return value, after


def _read_longstr(data: bytes, pos: int) -> tuple[bytes, int]:
    start = pos + 4
    stop = start + int.from_bytes(data[pos:start], "big")
    if stop > len(data):
        raise WireSyntaxError(f"long string at byte {pos} runs past the end of the method")
    return data[start:stop], stop


def _write_longstr(value: bytes | str) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return len(content).to_bytes(4, "big") + content


OCTET: Final = _integer("octet", 1)
SHORT: Final = _integer("short", 2)
LONG: Final = _integer("long", 4)
LONGLONG: Final = _integer("longlong", 8)
TIMESTAMP: Final = _integer("timestamp", 8)
SHORTSTR: Final = FieldType("shortstr", _read_text, shortstr, "")
#: A short string that travels with content and is passed on as it came, UTF-8 or not.
OPAQUE: Final = FieldType("opaque", read_shortstr, shortstr, "")
LONGSTR: Final = FieldType("longstr", _read_longstr, _write_longstr, b"")
TABLE: Final = FieldType("table", decode_table, encode_table, {})
#: Neighbours share an octet: this reads and writes the octet, the method deals out its bits.
BIT: Final = FieldType("bit", OCTET.read, OCTET.write, False)

TYPES: Final = {
    kind.name: kind
    for kind in (
        *(BIT, OCTET, SHORT, LONG, LONGLONG, TIMESTAMP),
        *(SHORTSTR, OPAQUE, LONGSTR, TABLE),
    )
}
