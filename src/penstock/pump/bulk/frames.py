"""The frames of one announcement, and those of the broker's answers. Bytes in, bytes out."""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Any, Final, NamedTuple

from pamqp import commands, encode
from pamqp.base import Frame as Method

from penstock.core.errors import FrameError

METHOD: Final = 1
_HEADER: Final = 2
_BODY: Final = 3
_END: Final = b"\xce"
_PREFIX: Final = Struct(">BHI")
_INDEX: Final = Struct(">I")
_LENGTH: Final = Struct(">I")
#: Class, weight, size of the body, flags: content type, headers, delivery mode, message id.
_PROPERTIES: Final = Struct(">HHQH")
_FLAGS: Final = 0x8000 | 0x2000 | 0x1000 | 0x0080
_EXPIRES: Final = 0x0100
_BASIC: Final = 60
_PERSISTENT: Final = b"\x02"
_PUBLISH: Final = b"\x00\x3c\x00\x28\x00\x00"
_OPTIONAL: Final = b"\x00"
_FRAME_BYTES: Final = 8


class Frame(NamedTuple):
    kind: int
    payload: bytes


def method(channel: int, value: Method) -> bytes:
    payload = _INDEX.pack(value.index) + value.marshal()
    return _PREFIX.pack(METHOD, channel, len(payload)) + payload + _END


def read_method(payload: bytes) -> Method:
    found = commands.INDEX_MAPPING.get(_INDEX.unpack_from(payload)[0])
    if found is None:
        raise FrameError(f"an unknown method: {payload[:4].hex()}")
    value: Method = found()
    value.unmarshal(payload[4:])
    return value


def publish(
    channel: int,
    most: int,
    route: tuple[str, str],
    content: tuple[bytes, str],
    headers: Mapping[str, Any],
    message_id: str,
    ttl: float | None,
) -> bytes:
    """A persistent message to an exchange by a routing key: a body and its content type."""
    body, content_type = content
    told = _PUBLISH + _short(route[0]) + _short(route[1]) + _OPTIONAL
    flags, expiration = _FLAGS, b""
    if ttl is not None:
        flags |= _EXPIRES
        expiration = _short(str(max(0, round(ttl * 1000))))
    properties = b"".join(
        (
            _PROPERTIES.pack(_BASIC, 0, len(body), flags),
            _short(content_type),
            _table(headers),
            _PERSISTENT,
            expiration,
            _short(message_id),
        )
    )
    pack = _PREFIX.pack
    parts = [
        *(pack(METHOD, channel, len(told)), told, _END),
        *(pack(_HEADER, channel, len(properties)), properties, _END),
    ]
    for start in range(0, len(body), most - _FRAME_BYTES):
        piece = body[start : start + most - _FRAME_BYTES]
        parts += (pack(_BODY, channel, len(piece)), piece, _END)
    return b"".join(parts)


class Answers:
    """Cuts what the broker sends into frames, whatever pieces it comes in."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Frame]:
        data = self._rest + data
        found, at = [], 0
        while len(data) - at > _FRAME_BYTES - 1:
            kind, _, size = _PREFIX.unpack_from(data, at)
            stop = at + 7 + size
            if stop >= len(data):
                break
            if data[stop : stop + 1] != _END:
                raise FrameError("a frame without its end: what listens there is no AMQP 0-9-1")
            found.append(Frame(kind, data[at + 7 : stop]))
            at = stop + 1
        self._rest = data[at:]
        return found


def _short(text: str) -> bytes:
    content = text.encode()
    return bytes((len(content),)) + content


def _table(headers: Mapping[str, Any]) -> bytes:
    parts: list[bytes] = []
    for name, value in headers.items():
        if not isinstance(value, str):  # what others have put there may be of any type
            return bytes(encode.field_table(dict(headers)))
        content = value.encode()
        parts += (_short(name), b"S", _LENGTH.pack(len(content)), content)
    table = b"".join(parts)
    return _LENGTH.pack(len(table)) + table
