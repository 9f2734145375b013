"""Readers of values that hold no others: of fixed width, or as long as they say.

Each is made for an encoding, and reads what follows its constructor: (buffer, position, end, levels
left) → (value, position after it). `decoding.py` has the table of them all.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from penstock.wire.amqp10.errors import DecodeError, Truncated
from penstock.wire.amqp10.values import Char, Symbol

Buffer = bytes | bytearray | memoryview
Reader = Callable[[Buffer, int, int, int], tuple[Any, int]]


def truncated(at: int) -> Truncated:
    return Truncated(f"value at byte {at} runs past the end of what holds it")


# Fixed width.


def constant(value: Any) -> Reader:
    def read(buffer: Buffer, at: int, end: int, depth: int) -> tuple[Any, int]:
        return value, at

    return read


def number(layout: str, kind: Callable[[Any], Any] | None = None) -> Reader:
    packed = Struct(layout)
    size, unpack_from = packed.size, packed.unpack_from

    if kind is None:

        def read_plain(buffer: Buffer, at: int, end: int, depth: int) -> tuple[Any, int]:
            after = at + size
            if after > end:
                raise truncated(at - 1)
            return unpack_from(buffer, at)[0], after

        return read_plain

    def read(buffer: Buffer, at: int, end: int, depth: int) -> tuple[Any, int]:
        after = at + size
        if after > end:
            raise truncated(at - 1)
        return kind(unpack_from(buffer, at)[0]), after

    return read


def bits(size: int, kind: Callable[[bytes], Any]) -> Reader:
    def read(buffer: Buffer, at: int, end: int, depth: int) -> tuple[Any, int]:
        after = at + size
        if after > end:
            raise truncated(at - 1)
        return kind(bytes(buffer[at:after])), after

    return read


def boolean(octet: int) -> bool:
    if octet > 1:
        raise DecodeError(f"a boolean is 0 or 1, not {octet}")
    return octet == 1


def character(point: int) -> Char:
    if point > 0x10FFFF or 0xD800 <= point <= 0xDFFF:
        raise DecodeError(f"0x{point:x} is no character of Unicode")
    return Char(chr(point))


# Variable width.


def sized(width: int, kind: Callable[[Buffer], Any]) -> Reader:
    def read(buffer: Buffer, at: int, end: int, depth: int) -> tuple[Any, int]:
        start = at + width
        if start > end:
            raise truncated(at - 1)
        size = buffer[at] if width == 1 else int.from_bytes(buffer[at:start], "big")
        stop = start + size
        if stop > end:
            raise truncated(at - 1)
        return kind(buffer[start:stop]), stop

    return read


def string(content: Buffer) -> str:
    try:
        return str(content, "utf-8")
    except UnicodeDecodeError:
        raise DecodeError("a string is not UTF-8") from None


def symbol(content: Buffer) -> Symbol:
    try:
        return Symbol(content, "ascii")
    except UnicodeDecodeError:
        raise DecodeError("a symbol is not ASCII") from None
