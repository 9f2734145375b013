"""Content headers of AMQP 0-9-1 as bytes: what reading and publishing in bulk need of them.

A stream says a message's offset in a header, `x-stream-offset`, which the broker adds on the way
out. `take_offset` reads it and gives the content header back as it was published, so that whoever
looks at it later sees the same from every broker and equal ones stay equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final

from pamqp import encode

from penstock.core.errors import ConfigurationError, WireSyntaxError

# The property flags, in the order of the properties.
CONTENT_TYPE: Final = 0x8000
CONTENT_ENCODING: Final = 0x4000
HEADERS: Final = 0x2000
DELIVERY_MODE: Final = 0x1000
PRIORITY: Final = 0x0800
CORRELATION_ID: Final = 0x0400
REPLY_TO: Final = 0x0200
EXPIRATION: Final = 0x0100
MESSAGE_ID: Final = 0x0080
TIMESTAMP: Final = 0x0040

_PREFIX: Final = Struct(">HHQH")
_BASIC: Final = 60
_PERSISTENT: Final = b"\x02"
_OFFSET: Final = Struct(">q")

OFFSET: Final = "x-stream-offset"
#: How the entry of the offset begins: its name, and the letter of a 64-bit integer.
_ENTRY: Final = b"\x0fx-stream-offsetl"
_ENTRY_BYTES: Final = len(_ENTRY) + 8


def take_offset(header: bytes) -> tuple[int, bytes]:
    """The message's offset in its stream, and the content header without it."""
    at = 14
    if header[12] & 0x80:  # content type
        at += 1 + header[at]
    if header[12] & 0x40:  # content encoding
        at += 1 + header[at]
    if not header[12] & 0x20:  # headers
        raise WireSyntaxError("a message from a stream without its offset")
    size = int.from_bytes(header[at : at + 4], "big")
    start = at + 4
    # A value may hold the same bytes as the entry; then the walk over the table decides.
    entry = header.find(_ENTRY, start, start + size)
    if entry != header.rfind(_ENTRY, start, start + size):
        entry = _walk(header, start, start + size)
    if entry < 0:
        raise WireSyntaxError("a message from a stream without its offset")
    offset: int = _OFFSET.unpack_from(header, entry + len(_ENTRY))[0]
    after = entry + _ENTRY_BYTES
    if size == _ENTRY_BYTES:  # the broker's table: the publisher had sent none, or an empty one
        flags = bytes((header[12] & 0xDF,))
        return offset, header[:12] + flags + header[13:at] + header[after:]
    shorter = (size - _ENTRY_BYTES).to_bytes(4, "big")
    return offset, header[:at] + shorter + header[start:entry] + header[after:]


def _walk(header: bytes, pos: int, stop: int) -> int:
    """Where the entry of the offset begins among the names of the table, or -1."""
    from pamqp import decode

    while pos < stop:
        if header.startswith(_ENTRY, pos):
            return pos
        pos += 1 + header[pos]
        try:
            pos += decode.embedded_value(header[pos:stop])[0]
        except ValueError:
            return -1
    return -1


def content_header(
    size: int,
    content_type: str | None,
    headers: Mapping[str, str | None] | None,
    message_id: str,
) -> bytes:
    """The header of a persistent message with a body of `size` bytes."""
    flags = DELIVERY_MODE | MESSAGE_ID
    parts = [b""]
    if content_type is not None:
        flags |= CONTENT_TYPE
        parts.append(short_string(content_type, "content_type"))
    if headers:
        flags |= HEADERS
        parts.append(encode.field_table(dict(headers)))
    parts += (_PERSISTENT, short_string(message_id, "message_id"))
    parts[0] = _PREFIX.pack(_BASIC, 0, size, flags)
    return b"".join(parts)


def short_string(text: str, what: str) -> bytes:
    content = text.encode("utf-8", "surrogatepass")
    if len(content) > 255:
        raise ConfigurationError(
            f"{what}: {text[:32]!r}… is {len(content)} bytes long, at most 255 may be"
        )
    return bytes((len(content),)) + content
