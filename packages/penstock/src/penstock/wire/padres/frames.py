"""The frames of a PADRES connection, and their reader.

Each side begins with eight bytes that name the protocol and its version, and an `OpenFrame`. Then
messages of the content language are sent as `MessageFrame`s, in both directions. A message with a
receipt is answered by one `ConfirmFrame` (with the id of the message; for a publication, once it is
stored and forwarded) or one `ErrorFrame`. The sender chooses the receipts; those from a broker to a
client increase, and a client's confirm covers all up to that one. Each side sends a
`HeartbeatFrame` when it has sent nothing for as long as it announced. A frame is four bytes of
length, one of its kind, and its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, TypeAlias, cast

from penstock.core.errors import ContentTooLarge, FrameError, WireSyntaxError
from penstock.wire.padres.envelope import PadresEnvelope, decode_envelope, encode_envelope
from penstock.wire.padres.fields import (
    decode_octet,
    decode_signed,
    decode_text,
    decode_unsigned,
    encode_signed,
    encode_text,
    encode_unsigned,
)

VERSION: Final = 1
PROTOCOL_HEADER: Final = b"PADRES\x00" + bytes((VERSION,))

#: The largest frame before the peer is authenticated.
PRE_OPEN_MAX_FRAME_BYTES: Final = 64 * 1024
#: The largest frame of a client and of a neighbour: the upper limit of a broker's setting, plus the
#: fields that brokers add.
MAX_FRAME_BYTES: Final = 64 * 1024 * 1024 + 4 * PRE_OPEN_MAX_FRAME_BYTES


class PeerRole(IntEnum):
    CLIENT = 1
    BROKER = 2


@dataclass(frozen=True, slots=True)
class OpenFrame:
    """Identifies a peer. A broker answers a client's frame with its own."""

    role: PeerRole
    id: str
    uri: str = ""  #: where a broker can be reached
    store: str = ""  #: identifies a broker's data directory, or a run of a client
    user: str = ""
    password: str = field(default="", repr=False)
    vhost: str = ""  #: empty: the broker chooses
    wanted: str = ""  #: the id of the expected broker; empty for any
    heartbeat: int = 0  #: the sender is never silent for longer, in seconds; 0: not promised
    largest: int = MAX_FRAME_BYTES  #: the largest frame that the sender accepts
    durable: bool = False  #: registrations survive the connection; in an answer: they were restored
    software: str = ""
    #: The client is informed of subscriptions that match its advertisements.
    notify_subscriptions: bool = False


@dataclass(frozen=True, slots=True)
class MessageFrame:
    envelope: PadresEnvelope
    receipt: int = 0  #: quoted in the answer; 0: no answer


@dataclass(frozen=True, slots=True)
class ConfirmFrame:
    receipt: int
    id: str = ""


@dataclass(frozen=True, slots=True)
class ErrorFrame:
    receipt: int
    code: int  #: see `errors.py`
    text: str
    position: int = -1  #: of the error in the text of the message, from 0; -1 for none


@dataclass(frozen=True, slots=True)
class HeartbeatFrame:
    """Sent when nothing else is."""


@dataclass(frozen=True, slots=True)
class CloseFrame:
    code: int = 0  #: 0 for a normal end
    reason: str = ""


PadresFrame: TypeAlias = (
    OpenFrame | MessageFrame | ConfirmFrame | ErrorFrame | HeartbeatFrame | CloseFrame
)


OPEN: Final = 1
MESSAGE: Final = 2
CONFIRM: Final = 3
ERROR: Final = 4
HEARTBEAT: Final = 5
CLOSE: Final = 6

_DURABLE_FLAG: Final = 1
_NOTIFY_SUBSCRIPTIONS_FLAG: Final = 2


def encode_frame(frame: PadresFrame) -> bytes:
    kind, fields = _ENCODERS[type(frame)]
    content = fields(frame)
    return (len(content) + 1).to_bytes(4, "big") + bytes((kind,)) + content


def decode_frame(content: bytes) -> PadresFrame:
    """The frame without its length; raises `WireSyntaxError` unless its fields fill it exactly."""
    kind, pos = decode_octet(content, 0)
    reader = _DECODERS.get(kind)
    if reader is None:
        raise WireSyntaxError(f"unknown frame kind {kind}")
    frame, pos = reader(content, pos)
    if pos != len(content):
        raise WireSyntaxError(f"frame of {len(content)} bytes with fields of {pos} bytes")
    return frame


def encode_message_frame(encoded: bytes, receipt: int = 0) -> bytes:
    """The frame of an encoded envelope, which is encoded once for all receivers."""
    number = encode_unsigned(receipt)
    return (1 + len(number) + len(encoded)).to_bytes(4, "big") + b"\x02" + number + encoded


def _encode_open(frame: OpenFrame) -> bytes:
    texts = (
        *(frame.id, frame.uri, frame.store, frame.user),
        *(frame.password, frame.vhost, frame.wanted, frame.software),
    )
    flags = (_DURABLE_FLAG if frame.durable else 0) | (
        _NOTIFY_SUBSCRIPTIONS_FLAG if frame.notify_subscriptions else 0
    )
    numbers = (
        encode_unsigned(frame.heartbeat) + encode_unsigned(frame.largest) + encode_unsigned(flags)
    )
    return bytes((frame.role,)) + b"".join(map(encode_text, texts)) + numbers


def _decode_open(data: bytes, pos: int) -> tuple[OpenFrame, int]:
    number, pos = decode_octet(data, pos)
    if number not in (PeerRole.CLIENT, PeerRole.BROKER):
        raise WireSyntaxError(f"unknown role {number}")
    texts = []
    for _ in range(8):
        one, pos = decode_text(data, pos)
        texts.append(one)
    id_, uri, store, user, password, vhost, wanted, software = texts
    heartbeat, pos = decode_unsigned(data, pos)
    largest, pos = decode_unsigned(data, pos)
    flags, pos = decode_unsigned(data, pos)
    return OpenFrame(
        *(PeerRole(number), id_, uri, store, user, password, vhost, wanted),
        *(
            heartbeat,
            largest,
            bool(flags & _DURABLE_FLAG),
            software,
            bool(flags & _NOTIFY_SUBSCRIPTIONS_FLAG),
        ),
    ), pos


def _encode_message(frame: MessageFrame) -> bytes:
    return encode_unsigned(frame.receipt) + encode_envelope(frame.envelope)


def _decode_message(data: bytes, pos: int) -> tuple[MessageFrame, int]:
    receipt, pos = decode_unsigned(data, pos)
    envelope, pos = decode_envelope(data, pos)
    return MessageFrame(envelope, receipt), pos


def _encode_confirm(frame: ConfirmFrame) -> bytes:
    return encode_unsigned(frame.receipt) + encode_text(frame.id)


def _decode_confirm(data: bytes, pos: int) -> tuple[ConfirmFrame, int]:
    receipt, pos = decode_unsigned(data, pos)
    id_, pos = decode_text(data, pos)
    return ConfirmFrame(receipt, id_), pos


def _encode_error(frame: ErrorFrame) -> bytes:
    numbers = (
        encode_unsigned(frame.receipt) + encode_unsigned(frame.code) + encode_signed(frame.position)
    )
    return numbers + encode_text(frame.text)


def _decode_error(data: bytes, pos: int) -> tuple[ErrorFrame, int]:
    receipt, pos = decode_unsigned(data, pos)
    code, pos = decode_unsigned(data, pos)
    position, pos = decode_signed(data, pos)
    why, pos = decode_text(data, pos)
    return ErrorFrame(receipt, code, why, position), pos


def _encode_heartbeat(frame: HeartbeatFrame) -> bytes:
    return b""


def _decode_heartbeat(data: bytes, pos: int) -> tuple[HeartbeatFrame, int]:
    return HeartbeatFrame(), pos


def _encode_close(frame: CloseFrame) -> bytes:
    return encode_unsigned(frame.code) + encode_text(frame.reason)


def _decode_close(data: bytes, pos: int) -> tuple[CloseFrame, int]:
    code, pos = decode_unsigned(data, pos)
    reason, pos = decode_text(data, pos)
    return CloseFrame(code, reason), pos


_ENCODERS: Final = cast(
    dict[type[PadresFrame], tuple[int, Callable[[PadresFrame], bytes]]],
    {
        OpenFrame: (OPEN, _encode_open),
        MessageFrame: (MESSAGE, _encode_message),
        ConfirmFrame: (CONFIRM, _encode_confirm),
        ErrorFrame: (ERROR, _encode_error),
        HeartbeatFrame: (HEARTBEAT, _encode_heartbeat),
        CloseFrame: (CLOSE, _encode_close),
    },
)
_DECODERS: Final[dict[int, Callable[[bytes, int], tuple[PadresFrame, int]]]] = {
    OPEN: _decode_open,
    MESSAGE: _decode_message,
    CONFIRM: _decode_confirm,
    ERROR: _decode_error,
    HEARTBEAT: _decode_heartbeat,
    CLOSE: _decode_close,
}


_PROTOCOL_NAME: Final = PROTOCOL_HEADER[:-1]


class PadresFrameReader:
    __slots__ = ("_begun", "_opened", "_pending", "largest", "stopped")

    def __init__(self, largest: int = PRE_OPEN_MAX_FRAME_BYTES) -> None:
        self.largest = largest  #: frame that is accepted
        self.stopped = False  #: while set, received bytes are buffered and not read
        self._pending = bytearray()
        self._begun = False
        self._opened = False

    @classmethod
    def after_open(cls, largest: int) -> PadresFrameReader:
        """A reader for a peer whose header and open frame were read."""
        reader = cls(largest)
        reader._begun = reader._opened = True
        return reader

    @property
    def rest(self) -> bytes:
        """The buffered bytes."""
        return bytes(self._pending)

    def feed(self, data: bytes) -> list[PadresFrame]:
        """The frames that are complete now."""
        return list(self.frames(data))

    def frames(self, data: bytes) -> Iterator[PadresFrame]:
        """The same one by one: the caller may set `stopped` in between."""
        self._pending += data
        return iter(self.next, None)

    def next(self) -> PadresFrame | None:
        pending = self._pending
        if self.stopped or not (self._begun or self._begin()) or len(pending) < 4:
            return None
        size = int.from_bytes(pending[:4], "big")
        if size > self.largest:
            raise ContentTooLarge(f"frame of {size} bytes exceeds the maximum of {self.largest}")
        if len(pending) < 4 + size:
            return None
        content = bytes(memoryview(pending)[4 : 4 + size])
        del pending[: 4 + size]
        frame = decode_frame(content)
        if isinstance(frame, OpenFrame) is self._opened and not isinstance(frame, CloseFrame):
            raise FrameError("the open frame must be the first, and the only one")
        self._opened = True
        return frame

    def _begin(self) -> bool:
        pending = self._pending
        if not _PROTOCOL_NAME.startswith(bytes(pending[: len(_PROTOCOL_NAME)])):
            raise FrameError(f"not the PADRES protocol: {bytes(pending[:8])!r}")
        if len(pending) < len(PROTOCOL_HEADER):
            return False
        if pending[len(_PROTOCOL_NAME)] != VERSION:
            raise FrameError(
                f"PADRES version {pending[len(_PROTOCOL_NAME)]} is not supported, only {VERSION}"
            )
        del pending[: len(PROTOCOL_HEADER)]
        self._begun = True
        return True
