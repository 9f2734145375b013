"""What two ends of a PADRES connection say to each other, as values.

Each begins with eight bytes that name the protocol and its version, and an `OpenFrame`. Then
messages of the language travel as `MessageFrame`s, either way. A note with a receipt is answered by
one `ConfirmFrame` (with the id the message got; of a publication, when it is where it must be) or
one `ErrorFrame`. Receipts are for who gives them out to choose, and mean nothing to the other;
those of a broker to a client count up, and the client's confirm is of all up to that one. Each says
a `HeartbeatFrame` when it has said nothing for as long as it announced.
"""

from __future__ import annotations

from collections.abc import Callable
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

#: How either side begins: the name of the protocol and its version.
VERSION: Final = 1
PROTOCOL_HEADER: Final = b"PADRES\x00" + bytes((VERSION,))

#: The largest frame of somebody who is not known yet.
PRE_OPEN_MAX_FRAME_BYTES: Final = 64 * 1024
#: The largest that a client and a neighbour take: the most that brokers can be set to take from
#: clients, and what they say beside it when they pass it on.
MAX_FRAME_BYTES: Final = 64 * 1024 * 1024 + 4 * PRE_OPEN_MAX_FRAME_BYTES


class PeerRole(IntEnum):
    CLIENT = 1
    BROKER = 2


@dataclass(frozen=True, slots=True)
class OpenFrame:
    """Who one is. A broker answers a client's with its own, in which `id` is the broker's."""

    role: PeerRole
    id: str
    uri: str = ""  #: where a broker can be reached
    store: str = ""  #: which data a broker has, or which run of a program a client is
    user: str = ""
    password: str = field(default="", repr=False)
    vhost: str = ""  #: empty for the broker's own choice
    wanted: str = ""  #: the id of the broker one means to talk to; empty for any
    heartbeat: int = 0  #: the longest silence of who says this, in seconds; 0 for any
    largest: int = MAX_FRAME_BYTES  #: the largest frame one takes
    durable: bool = False  #: what a client asks for outlives its connection; in answer, it has
    software: str = ""
    notify_subscriptions: bool = (
        False  #: a client that wants to see who subscribes to what it advertises
    )


@dataclass(frozen=True, slots=True)
class MessageFrame:
    """A message of the language."""

    envelope: PadresEnvelope
    receipt: int = 0  #: to be answered by, unless 0


@dataclass(frozen=True, slots=True)
class ConfirmFrame:
    receipt: int
    id: str = ""


@dataclass(frozen=True, slots=True)
class ErrorFrame:
    """What was noted is refused."""

    receipt: int
    code: int  #: see `errors.py`
    text: str
    position: int = -1  #: of the mistake in the text of the message, from 0; -1 for none


@dataclass(frozen=True, slots=True)
class HeartbeatFrame:
    """A sign of life."""


@dataclass(frozen=True, slots=True)
class CloseFrame:
    """The last word."""

    code: int = 0  #: 0 for an end that was wished for
    reason: str = ""


PadresFrame: TypeAlias = (
    OpenFrame | MessageFrame | ConfirmFrame | ErrorFrame | HeartbeatFrame | CloseFrame
)


# Frames as bytes: four bytes of length, one of the frame's kind, its fields.

OPEN: Final = 1
MESSAGE: Final = 2
CONFIRM: Final = 3
ERROR: Final = 4
HEARTBEAT: Final = 5
CLOSE: Final = 6

_PERSISTENT_CLIENT: Final = 1
_SENDS_HEARTBEATS: Final = 2


def encode_frame(frame: PadresFrame) -> bytes:
    kind, fields = _ENCODERS[type(frame)]
    content = fields(frame)
    return (len(content) + 1).to_bytes(4, "big") + bytes((kind,)) + content


def decode_frame(content: bytes) -> PadresFrame:
    """The frame behind a length; raises `WireSyntaxError` unless its fields fill it exactly."""
    kind, pos = decode_octet(content, 0)
    reader = _DECODERS.get(kind)
    if reader is None:
        raise WireSyntaxError(f"there is no frame of kind {kind}")
    frame, pos = reader(content, pos)
    if pos != len(content):
        raise WireSyntaxError(f"a frame of {len(content)} bytes whose fields take {pos}")
    return frame


def encode_message_frame(encoded: bytes, receipt: int = 0) -> bytes:
    """The frame of an envelope that is encoded already: once for all who get it."""
    number = encode_unsigned(receipt)
    return (1 + len(number) + len(encoded)).to_bytes(4, "big") + b"\x02" + number + encoded


def _encode_open(frame: OpenFrame) -> bytes:
    texts = (
        *(frame.id, frame.uri, frame.store, frame.user),
        *(frame.password, frame.vhost, frame.wanted, frame.software),
    )
    flags = (_PERSISTENT_CLIENT if frame.durable else 0) | (
        _SENDS_HEARTBEATS if frame.notify_subscriptions else 0
    )
    numbers = (
        encode_unsigned(frame.heartbeat) + encode_unsigned(frame.largest) + encode_unsigned(flags)
    )
    return bytes((frame.role,)) + b"".join(map(encode_text, texts)) + numbers


def _decode_open(data: bytes, pos: int) -> tuple[OpenFrame, int]:
    number, pos = decode_octet(data, pos)
    if number not in (PeerRole.CLIENT, PeerRole.BROKER):
        raise WireSyntaxError(f"nobody has the role {number}")
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
            bool(flags & _PERSISTENT_CLIENT),
            software,
            bool(flags & _SENDS_HEARTBEATS),
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


# A stream of bytes as frames: first the eight bytes both sides begin with, then an `OpenFrame`, or
# the
# `CloseFrame` of a broker that does not let one in.
#
# What comes in pieces waits until it is whole; no more of it than the largest frame there may be.
# Whoever begins otherwise, or speaks another version, is named in a `FrameError`.

_PROTOCOL_NAME: Final = PROTOCOL_HEADER[:-1]


class PadresFrameReader:
    __slots__ = ("_begun", "_opened", "_pending", "largest", "stopped")

    def __init__(self, largest: int = PRE_OPEN_MAX_FRAME_BYTES) -> None:
        self.largest = largest  #: frame that is taken
        self.stopped = False  #: what was read is not looked at further, and waits
        self._pending = bytearray()
        self._begun = False
        self._opened = False

    @classmethod
    def after_open(cls, largest: int) -> PadresFrameReader:
        """For somebody who has been heard to say who it is."""
        reader = cls(largest)
        reader._begun = reader._opened = True
        return reader

    @property
    def rest(self) -> bytes:
        """What is not whole yet, or was not looked at."""
        return bytes(self._pending)

    def feed(self, data: bytes) -> list[PadresFrame]:
        """The frames that have become whole."""
        return list(self.frames(data))

    def frames(self, data: bytes) -> _FrameIterator:
        """The same one by one: whoever takes them may stop the reader in between."""
        self._pending += data
        return _FrameIterator(self)

    def next(self) -> PadresFrame | None:
        pending = self._pending
        if self.stopped or not (self._begun or self._begin()) or len(pending) < 4:
            return None
        size = int.from_bytes(pending[:4], "big")
        if size > self.largest:
            raise ContentTooLarge(f"a frame of {size} bytes, {self.largest} may be")
        if len(pending) < 4 + size:
            return None
        content = bytes(memoryview(pending)[4 : 4 + size])
        del pending[: 4 + size]
        frame = decode_frame(content)
        if isinstance(frame, OpenFrame) is self._opened and not isinstance(frame, CloseFrame):
            raise FrameError("who one is has to be said first, and once")
        self._opened = True
        return frame

    def _begin(self) -> bool:
        pending = self._pending
        if not _PROTOCOL_NAME.startswith(bytes(pending[: len(_PROTOCOL_NAME)])):
            raise FrameError(f"this is no PADRES: it begins with {bytes(pending[:8])!r}")
        if len(pending) < len(PROTOCOL_HEADER):
            return False
        if pending[len(_PROTOCOL_NAME)] != VERSION:
            raise FrameError(
                f"PADRES version {pending[len(_PROTOCOL_NAME)]}, and {VERSION} is spoken here"
            )
        del pending[: len(PROTOCOL_HEADER)]
        self._begun = True
        return True


class _FrameIterator:
    """What a reader holds, frame by frame."""

    __slots__ = ("_reader",)

    def __init__(self, reader: PadresFrameReader) -> None:
        self._reader = reader

    def __iter__(self) -> _FrameIterator:
        return self

    def __next__(self) -> PadresFrame:
        frame = self._reader.next()
        if frame is None:
            raise StopIteration
        return frame
