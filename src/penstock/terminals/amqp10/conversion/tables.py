"""Field tables of AMQP 0-9-1 as values of AMQP 1.0, from bytes to bytes.

Most types are the same bytes behind another letter. A text that is not UTF-8 becomes a binary; an
array becomes a list, for its values need not be of one type. A table that lies raises
`WireSyntaxError`, as it does wherever it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from penstock.core.errors import WireSyntaxError
from penstock.terminals.amqp10.conversion.values import decimal64
from penstock.wire.amqp10.encoding import compound, encode, sized

#: Deeper tables have no honest use, and could not be sent on: AMQP 1.0 nests less than 0-9-1.
_MAX_DEPTH: Final = 24

TABLE: Final = ord("F")
ARRAY: Final = ord("A")
LONG: Final = ord("l")

#: The letters of values that only need another: the code that AMQP 1.0 has, and the width.
_FIXED: Final = {
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

#: Reads what follows a letter: (data, position, levels left) → (encoded, position after).
_Reader = Callable[[bytes, int, int], tuple[bytes, int]]


def fields(data: bytes, depth: int = _MAX_DEPTH) -> Iterator[tuple[bytes, int, bytes]]:
    """The name, the letter and the encoded value of each field of a table (without its length)."""
    at, end = 0, len(data)
    while at < end:
        start = at + 1
        at = start + data[at]
        if at >= end:
            raise WireSyntaxError("a table ends within a field")
        letter = data[at]
        encoded, after = _read(data, letter, at + 1, depth)
        yield data[start:at], letter, encoded
        at = after


def string(content: bytes) -> bytes:
    """A text, or a binary where it is none."""
    return sized(0xA1 if is_text(content) else 0xA0, content)


def is_text(content: bytes) -> bool:
    if content.isascii():
        return True
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _read(data: bytes, letter: int, at: int, depth: int) -> tuple[bytes, int]:
    fixed = _FIXED.get(letter)
    if fixed is not None:
        code, width = fixed
        after = at + width
        if after > len(data):
            raise WireSyntaxError("a table ends within a number")
        return code + data[at:after], after
    reader = _READERS.get(letter)
    if reader is None:
        raise WireSyntaxError(f"unknown field type {letter:#04x}")
    return reader(data, at, depth)


def _content(data: bytes, at: int) -> tuple[bytes, int]:
    start = at + 4
    after = start + int.from_bytes(data[at:start], "big")
    if after > len(data):
        raise WireSyntaxError("a table ends within a value")
    return data[start:after], after


def _read_string(data: bytes, at: int, depth: int) -> tuple[bytes, int]:
    content, after = _content(data, at)
    return string(content), after


def _read_bytes(data: bytes, at: int, depth: int) -> tuple[bytes, int]:
    content, after = _content(data, at)
    return sized(0xA0, content), after


def _read_boolean(data: bytes, at: int, depth: int) -> tuple[bytes, int]:
    if at >= len(data):
        raise WireSyntaxError("a table ends within a boolean")
    return (b"\x41" if data[at] else b"\x42"), at + 1


def _read_timestamp(data: bytes, at: int, depth: int) -> tuple[bytes, int]:
    after = at + 8
    if after > len(data):
        raise WireSyntaxError("a table ends within a timestamp")
    seconds = int.from_bytes(data[at:after], "big", signed=True)
    return timestamp(seconds), after


def timestamp(seconds: int) -> bytes:
    """In milliseconds; or in seconds, as a number, where a client counted in units too small."""
    milliseconds = seconds * 1000
    if -(1 << 63) <= milliseconds < 1 << 63:
        return b"\x83" + milliseconds.to_bytes(8, "big", signed=True)
    return b"\x81" + seconds.to_bytes(8, "big", signed=True)


def _read_decimal(data: bytes, at: int, depth: int) -> tuple[bytes, int]:
    after = at + 5
    if after > len(data):
        raise WireSyntaxError("a table ends within a decimal")
    digits = int.from_bytes(data[at + 1 : after], "big", signed=True)
    return encode(decimal64(data[at], digits)), after


def _read_table(data: bytes, at: int, depth: int) -> tuple[bytes, int]:
    if depth <= 0:
        raise WireSyntaxError("a table is nested too deep")
    content, after = _content(data, at)
    parts: list[bytes] = []
    seen: set[bytes] = set()
    for name, _, encoded in fields(content, depth - 1):
        if name not in seen:  # twice the same name: 0-9-1 does not mind, 1.0 does
            seen.add(name)
            parts += (string(name), encoded)
    return compound(0xC1, len(parts), b"".join(parts)), after


def _read_array(data: bytes, at: int, depth: int) -> tuple[bytes, int]:
    if depth <= 0:
        raise WireSyntaxError("an array is nested too deep")
    content, after = _content(data, at)
    parts: list[bytes] = []
    place = 0
    while place < len(content):
        encoded, place = _read(content, content[place], place + 1, depth - 1)
        parts.append(encoded)
    return (compound(0xC0, len(parts), b"".join(parts)) if parts else b"\x45"), after


_READERS: Final[dict[int, _Reader]] = {
    ord("S"): _read_string,
    ord("x"): _read_bytes,
    ord("t"): _read_boolean,
    ord("T"): _read_timestamp,
    ord("V"): lambda data, at, depth: (b"\x40", at),
    ord("D"): _read_decimal,
    TABLE: _read_table,
    ARRAY: _read_array,
}
