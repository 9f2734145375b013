"""Field types of PADRES frames: variable-length numbers, and text and bytes with their length.

Invalid input raises `WireSyntaxError` with the position.
"""

from __future__ import annotations

from math import isfinite
from struct import Struct
from typing import Final

from penstock.core.errors import WireSyntaxError

MAX_UNSIGNED: Final = (1 << 64) - 1
_DOUBLE: Final = Struct(">d")


def encode_unsigned(number: int) -> bytes:
    if number < 0x80:
        if number < 0:
            raise WireSyntaxError(f"{number} is negative")
        return bytes((number,))
    if number > MAX_UNSIGNED:
        raise WireSyntaxError(f"{number} exceeds 64 bits")
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def decode_unsigned(data: bytes, pos: int) -> tuple[int, int]:
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
                raise WireSyntaxError(f"the number at byte {start} exceeds 64 bits")
    except IndexError:
        raise WireSyntaxError(f"the number at byte {start} extends past the end") from None
    if number > MAX_UNSIGNED:
        raise WireSyntaxError(f"the number at byte {start} exceeds 64 bits")
    return number, pos


def encode_signed(number: int) -> bytes:
    """Zigzag: 0, -1, 1, -2, … are written as 0, 1, 2, 3, …"""
    return encode_unsigned(number * 2 if number >= 0 else -number * 2 - 1)


def decode_signed(data: bytes, pos: int) -> tuple[int, int]:
    folded, pos = decode_unsigned(data, pos)
    return (folded >> 1 if not folded & 1 else -(folded >> 1) - 1), pos


def encode_text(value: str) -> bytes:
    try:
        content = value.encode()
    except UnicodeEncodeError:
        raise WireSyntaxError(f"{value[:32]!r} cannot be written as UTF-8") from None
    return encode_unsigned(len(content)) + content


def decode_text(data: bytes, pos: int) -> tuple[str, int]:
    content, end = decode_bytes(data, pos)
    try:
        return content.decode(), end
    except UnicodeDecodeError as error:
        raise WireSyntaxError(f"the text at byte {pos} is not UTF-8: {error.reason}") from None


def encode_bytes(value: bytes) -> bytes:
    return encode_unsigned(len(value)) + value


def decode_bytes(data: bytes, pos: int) -> tuple[bytes, int]:
    size, start = decode_unsigned(data, pos)
    end = start + size
    if end > len(data):
        raise WireSyntaxError(f"the {size} bytes at byte {pos} extend past the end")
    return data[start:end], end


def encode_double(value: float) -> bytes:
    return _DOUBLE.pack(value)


def decode_double(data: bytes, pos: int) -> tuple[float, int]:
    end = pos + 8
    if end > len(data):
        raise WireSyntaxError(f"the float at byte {pos} extends past the end")
    (value,) = _DOUBLE.unpack_from(data, pos)
    if not isfinite(value):
        raise WireSyntaxError(f"the float at byte {pos} is not finite")
    return value, end


def decode_octet(data: bytes, pos: int) -> tuple[int, int]:
    if pos >= len(data):
        raise WireSyntaxError(f"the octet at byte {pos} is missing")
    return data[pos], pos + 1
