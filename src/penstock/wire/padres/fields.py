"""The fields of frames: numbers of as many bytes as they need, texts and bytes with their length.

Encode and decode stand side by side. What cannot be read raises `WireSyntaxError` with where.
"""

from __future__ import annotations

from math import isfinite
from struct import Struct
from typing import Final

from penstock.core.errors import WireSyntaxError

#: Numbers end here.
MOST: Final = (1 << 64) - 1
_DOUBLE: Final = Struct(">d")


def natural(number: int) -> bytes:
    if number < 0x80:
        if number < 0:
            raise WireSyntaxError(f"{number} cannot be written: it is less than 0")
        return bytes((number,))
    if number > MOST:
        raise WireSyntaxError(f"{number} cannot be written: 64 bits are all there are")
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def read_natural(data: bytes, pos: int) -> tuple[int, int]:
    number = shift = 0
    start = pos
    try:
        while True:
            octet = data[pos]
            pos += 1
            number |= (octet & 0x7F) << shift
            if octet < 0x80:
                break
            shift += 7
            if shift > 63:
                raise WireSyntaxError(f"the number at byte {start} has no end")
    except IndexError:
        raise WireSyntaxError(f"the number at byte {start} runs past the end") from None
    if number > MOST:
        raise WireSyntaxError(f"the number at byte {start} has more than 64 bits")
    return number, pos


def integer(number: int) -> bytes:
    """Of either sign: 0, -1, 1, -2, … are written as 0, 1, 2, 3, …"""
    return natural(number * 2 if number >= 0 else -number * 2 - 1)


def read_integer(data: bytes, pos: int) -> tuple[int, int]:
    folded, pos = read_natural(data, pos)
    return (folded >> 1 if not folded & 1 else -(folded >> 1) - 1), pos


def text(value: str) -> bytes:
    try:
        content = value.encode()
    except UnicodeEncodeError:
        raise WireSyntaxError(f"{value[:32]!r} cannot be written as UTF-8") from None
    return natural(len(content)) + content


def read_text(data: bytes, pos: int) -> tuple[str, int]:
    content, end = read_octets(data, pos)
    try:
        return content.decode(), end
    except UnicodeDecodeError as error:
        raise WireSyntaxError(f"the text at byte {pos} is not UTF-8: {error.reason}") from None


def octets(value: bytes) -> bytes:
    return natural(len(value)) + value


def read_octets(data: bytes, pos: int) -> tuple[bytes, int]:
    size, start = read_natural(data, pos)
    end = start + size
    if end > len(data):
        raise WireSyntaxError(f"{size} bytes are announced at byte {pos}, and not there")
    return data[start:end], end


def double(value: float) -> bytes:
    return _DOUBLE.pack(value)


def read_double(data: bytes, pos: int) -> tuple[float, int]:
    end = pos + 8
    if end > len(data):
        raise WireSyntaxError(f"the float at byte {pos} runs past the end")
    (value,) = _DOUBLE.unpack_from(data, pos)
    if not isfinite(value):
        raise WireSyntaxError(f"the float at byte {pos} is not finite")
    return value, end


def octet(data: bytes, pos: int) -> tuple[int, int]:
    if pos >= len(data):
        raise WireSyntaxError(f"nothing is left at byte {pos}, where something should be")
    return data[pos], pos + 1
