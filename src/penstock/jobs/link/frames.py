"""Frames of AMQP 0-9-1: bytes in, deliveries and methods out; publishes and methods to bytes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Final

from pamqp import commands
from pamqp.base import Frame as Method
from pamqp.exceptions import UnmarshalingException

from penstock.core.errors import FrameError, UnexpectedFrame

_METHOD: Final = 1
_HEADER: Final = 2
_BODY: Final = 3
_HEARTBEAT: Final = 8
_END: Final = 0xCE
_PREFIX: Final = Struct(">BHI")
_INDEX: Final = Struct(">I")
#: Tag and whether it is handed out again.
_TAG: Final = Struct(">QB")
_DELIVER: Final = b"\x00\x3c\x00\x3c"
_PUBLISH: Final = b"\x00\x3c\x00\x28\x00\x00"
_ACK: Final = Struct(">BHIIQBB")
_ACK_METHOD: Final = 0x003C0050
#: What a frame has beside its payload.
_AROUND: Final = 8

GREETING: Final = b"AMQP\x00\x00\x09\x01"
HEARTBEAT: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"


@dataclass(slots=True)
class Content:
    """A message as it came; `method` is what brought it if it was asked for or came back."""

    channel: int
    consumer: str
    tag: int
    redelivered: bool
    header: bytes
    body: bytes
    method: Method | None = None


class Frames:
    """What has come of a stream of bytes, and of messages whose frames have not all come."""

    __slots__ = ("_begun", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._begun: dict[int, _Begun] = {}  # by channel

    def feed(self, data: bytes) -> Iterator[Content | tuple[int, Method]]:
        """Whole messages, and methods with their channels, in the order in which they came."""
        if self._rest:
            data = self._rest + data
        pos, end = 0, len(data)
        unpack = _PREFIX.unpack_from
        while end - pos > 7:
            kind, channel, size = unpack(data, pos)
            if kind > _HEARTBEAT:
                raise _not_framed(data, pos)
            stop = pos + 7 + size
            if stop >= end:
                break
            if data[stop] != _END:
                raise _not_framed(data, pos)
            payload = data[pos + 7 : stop]
            pos = stop + 1
            if kind == _METHOD:
                if (method := self._method(channel, payload)) is not None:
                    yield channel, method
            elif kind in (_HEADER, _BODY) and (whole := self._content(kind, channel, payload)):
                yield whole
        self._rest = data[pos:]

    def _method(self, channel: int, payload: bytes) -> Method | None:
        if payload.startswith(_DELIVER):
            at = 5 + payload[4]
            tag, redelivered = _TAG.unpack_from(payload, at)
            consumer = payload[5:at].decode()
            self._begun[channel] = _Begun(
                Content(channel, consumer, tag, bool(redelivered), b"", b"")
            )
            return None
        method = read_method(payload)
        if isinstance(method, commands.Basic.GetOk):
            content = Content(
                channel, "", method.delivery_tag or 0, bool(method.redelivered), b"", b"", method
            )
        elif isinstance(method, commands.Basic.Return):
            content = Content(channel, "", 0, False, b"", b"", method)
        else:
            return method
        self._begun[channel] = _Begun(content)
        return None

    def _content(self, kind: int, channel: int, payload: bytes) -> Content | None:
        begun = self._begun.get(channel)
        if begun is None:
            raise UnexpectedFrame(f"a frame of kind {kind} that belongs to no message")
        content = begun.content
        if kind == _HEADER:
            content.header = payload
            begun.missing = int.from_bytes(payload[4:12], "big")
        else:
            begun.missing -= len(payload)
            begun.pieces.append(payload)
        if begun.missing:
            return None
        del self._begun[channel]
        pieces = begun.pieces
        content.body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return content


class _Begun:
    __slots__ = ("content", "missing", "pieces")

    def __init__(self, content: Content) -> None:
        self.content = content
        self.missing = 0
        self.pieces: list[bytes] = []


def read_method(payload: bytes) -> Method:
    found = commands.INDEX_MAPPING.get(_INDEX.unpack_from(payload)[0])
    if found is None:
        raise FrameError(f"an unknown method: {payload[:4].hex()}")
    value: Method = found()
    try:
        value.unmarshal(payload[4:])
    except (UnmarshalingException, ValueError) as error:
        raise FrameError(f"a {value.name} that cannot be read: {error}") from None
    return value


def write_method(channel: int, value: Method) -> bytes:
    payload = _INDEX.pack(value.index) + value.marshal()
    return _PREFIX.pack(_METHOD, channel, len(payload)) + payload + b"\xce"


def write_publish(
    channel: int,
    route: bytes,
    header: bytes,
    body: bytes,
    frame_max: int,
    *,
    mandatory: bool = False,
) -> bytes:
    """All frames of a publish; `route` is the exchange and the routing key, two short strings."""
    pack = _PREFIX.pack
    method = _PUBLISH + route + (b"\x01" if mandatory else b"\x00")
    parts = [
        pack(_METHOD, channel, len(method)), method, b"\xce",
        pack(_HEADER, channel, len(header)), header, b"\xce",
    ]  # fmt: skip
    most = frame_max - _AROUND
    for start in range(0, len(body), most):
        piece = body[start : start + most]
        parts += (pack(_BODY, channel, len(piece)), piece, b"\xce")
    return b"".join(parts)


def write_ack(channel: int, tag: int, *, multiple: bool = False) -> bytes:
    return _ACK.pack(_METHOD, channel, 13, _ACK_METHOD, tag, multiple, _END)


def _not_framed(data: bytes, pos: int) -> FrameError:
    if data.startswith(b"AMQP"):
        return FrameError("what listens there does not speak AMQP 0-9-1")
    return FrameError(f"a frame without its end: {data[pos : pos + 8].hex(' ')} …")
