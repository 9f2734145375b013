"""What is said about a message beside its body: content headers of AMQP 0-9-1, read and written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import Any, Final

from pamqp import decode, encode

from penstock.core.errors import WireSyntaxError

_PREFIX: Final = Struct(">HHQH")
_BASIC: Final = 60
_LONG: Final = Struct(">Q")

_CONTENT_TYPE: Final = 0x8000
_CONTENT_ENCODING: Final = 0x4000
_HEADERS: Final = 0x2000
_DELIVERY_MODE: Final = 0x1000
_PRIORITY: Final = 0x0800
_CORRELATION_ID: Final = 0x0400
_REPLY_TO: Final = 0x0200
_EXPIRATION: Final = 0x0100
_MESSAGE_ID: Final = 0x0080
_TIMESTAMP: Final = 0x0040


@dataclass(frozen=True, slots=True)
class Properties:
    """What requests and responses have a use for; the rest of class basic is passed over."""

    content_type: str | None = None
    headers: Mapping[str, Any] | None = None
    persistent: bool = True
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None  #: milliseconds
    message_id: str | None = None
    timestamp: int | None = None  #: seconds since 1970


def write_header(size: int, said: Properties) -> bytes:
    """The payload of a content header, for a body of so many bytes."""
    flags = 0
    parts = [b""]
    if said.content_type is not None:
        flags |= _CONTENT_TYPE
        parts.append(short_string(said.content_type))
    if said.headers:
        flags |= _HEADERS
        parts.append(_table(tuple((n, type(v), v) for n, v in said.headers.items())))
    if said.persistent:
        flags |= _DELIVERY_MODE
        parts.append(b"\x02")
    if said.priority:
        flags |= _PRIORITY
        parts.append(bytes((said.priority,)))
    for flag, text in (
        (_CORRELATION_ID, said.correlation_id),
        (_REPLY_TO, said.reply_to),
        (_EXPIRATION, said.expiration),
        (_MESSAGE_ID, said.message_id),
    ):
        if text is not None:
            flags |= flag
            parts.append(short_string(text))
    if said.timestamp is not None:
        flags |= _TIMESTAMP
        parts.append(_LONG.pack(said.timestamp))
    parts[0] = _PREFIX.pack(_BASIC, 0, size, flags)
    return b"".join(parts)


@lru_cache(256)
def _table(entries: tuple[tuple[str, type, Any], ...]) -> bytes:
    """Most responses say the same of themselves."""
    return encode.field_table({name: value for name, _, value in entries})


def read_header(header: bytes) -> Properties:
    """What a content header says. One that lies about its own lengths is an error."""
    flags = header[12] << 8 | header[13]
    at = 14
    headers: dict[str, Any] | None = None
    texts: list[str | None] = [None, None, None, None, None]
    mode = priority = timestamp = None
    try:
        if flags & _CONTENT_TYPE:
            end = at + 1 + header[at]
            texts[0] = _text(header[at + 1 : end])
            at = end
        if flags & _CONTENT_ENCODING:
            at += 1 + header[at]
        if flags & _HEADERS:
            used, headers = decode.field_table(header[at:])
            at += used
        if flags & _DELIVERY_MODE:
            mode = header[at]
            at += 1
        if flags & _PRIORITY:
            priority = header[at]
            at += 1
        for place, flag in _TEXTS:
            if flags & flag:
                end = at + 1 + header[at]
                texts[place] = _text(header[at + 1 : end])
                at = end
        if flags & _TIMESTAMP:
            timestamp = _LONG.unpack_from(header, at)[0]
    except (IndexError, ValueError, TypeError, OverflowError, StructError) as error:
        raise WireSyntaxError(f"properties that cannot be read: {error}") from error
    content_type, correlation, reply, expiration, message = texts
    return Properties(
        content_type, headers, mode == 2, priority, correlation, reply, expiration, message,
        timestamp,
    )  # fmt: skip


_TEXTS: Final = (
    (1, _CORRELATION_ID),
    (2, _REPLY_TO),
    (3, _EXPIRATION),
    (4, _MESSAGE_ID),
)


def _text(octets: bytes) -> str:
    return octets.decode("utf-8", "surrogateescape")


def short_string(text: str) -> bytes:
    content = text.encode("utf-8", "surrogateescape")
    if len(content) > 255:
        raise WireSyntaxError(f"{text[:32]!r}… is {len(content)} bytes long; at most 255 may be")
    return bytes((len(content),)) + content
