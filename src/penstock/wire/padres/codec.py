"""Frames as bytes: four bytes of length, one of the frame's kind, its fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from penstock.core.errors import WireSyntaxError
from penstock.wire.padres.envelopes import encode_envelope, read_envelope
from penstock.wire.padres.fields import (
    integer,
    natural,
    octet,
    read_integer,
    read_natural,
    read_text,
    text,
)
from penstock.wire.padres.frames import (
    Beat,
    Close,
    Confirm,
    Failed,
    Frame,
    Note,
    Open,
    Role,
)

OPEN: Final = 1
NOTE: Final = 2
CONFIRM: Final = 3
FAILED: Final = 4
BEAT: Final = 5
CLOSE: Final = 6

_LASTING: Final = 1
_ATTENTIVE: Final = 2


def encode(frame: Frame) -> bytes:
    kind, fields = _ENCODERS[type(frame)]
    content = fields(frame)
    return (len(content) + 1).to_bytes(4, "big") + bytes((kind,)) + content


def decode(content: bytes) -> Frame:
    """The frame behind a length; raises `WireSyntaxError` unless its fields fill it exactly."""
    kind, pos = octet(content, 0)
    reader = _DECODERS.get(kind)
    if reader is None:
        raise WireSyntaxError(f"there is no frame of kind {kind}")
    frame, pos = reader(content, pos)
    if pos != len(content):
        raise WireSyntaxError(f"a frame of {len(content)} bytes whose fields take {pos}")
    return frame


def note(encoded: bytes, receipt: int = 0) -> bytes:
    """The frame of an envelope that is encoded already: once for all who get it."""
    number = natural(receipt)
    return (1 + len(number) + len(encoded)).to_bytes(4, "big") + b"\x02" + number + encoded


def _open(frame: Open) -> bytes:
    texts = (
        *(frame.id, frame.uri, frame.store, frame.user),
        *(frame.password, frame.vhost, frame.wanted, frame.software),
    )
    flags = (_LASTING if frame.lasting else 0) | (_ATTENTIVE if frame.attentive else 0)
    numbers = natural(frame.heartbeat) + natural(frame.largest) + natural(flags)
    return bytes((frame.role,)) + b"".join(map(text, texts)) + numbers


def _read_open(data: bytes, pos: int) -> tuple[Open, int]:
    number, pos = octet(data, pos)
    if number not in (Role.CLIENT, Role.BROKER):
        raise WireSyntaxError(f"nobody has the role {number}")
    texts = []
    for _ in range(8):
        one, pos = read_text(data, pos)
        texts.append(one)
    id_, uri, store, user, password, vhost, wanted, software = texts
    heartbeat, pos = read_natural(data, pos)
    largest, pos = read_natural(data, pos)
    flags, pos = read_natural(data, pos)
    return Open(
        *(Role(number), id_, uri, store, user, password, vhost, wanted),
        *(heartbeat, largest, bool(flags & _LASTING), software, bool(flags & _ATTENTIVE)),
    ), pos


def _note(frame: Note) -> bytes:
    return natural(frame.receipt) + encode_envelope(frame.envelope)


def _read_note(data: bytes, pos: int) -> tuple[Note, int]:
    receipt, pos = read_natural(data, pos)
    envelope, pos = read_envelope(data, pos)
    return Note(envelope, receipt), pos


def _confirm(frame: Confirm) -> bytes:
    return natural(frame.receipt) + text(frame.id)


def _read_confirm(data: bytes, pos: int) -> tuple[Confirm, int]:
    receipt, pos = read_natural(data, pos)
    id_, pos = read_text(data, pos)
    return Confirm(receipt, id_), pos


def _failed(frame: Failed) -> bytes:
    numbers = natural(frame.receipt) + natural(frame.code) + integer(frame.position)
    return numbers + text(frame.text)


def _read_failed(data: bytes, pos: int) -> tuple[Failed, int]:
    receipt, pos = read_natural(data, pos)
    code, pos = read_natural(data, pos)
    position, pos = read_integer(data, pos)
    why, pos = read_text(data, pos)
    return Failed(receipt, code, why, position), pos


def _beat(frame: Beat) -> bytes:
    return b""


def _read_beat(data: bytes, pos: int) -> tuple[Beat, int]:
    return Beat(), pos


def _close(frame: Close) -> bytes:
    return natural(frame.code) + text(frame.reason)


def _read_close(data: bytes, pos: int) -> tuple[Close, int]:
    code, pos = read_natural(data, pos)
    reason, pos = read_text(data, pos)
    return Close(code, reason), pos


_ENCODERS: Final = cast(
    dict[type[Frame], tuple[int, Callable[[Frame], bytes]]],
    {
        Open: (OPEN, _open),
        Note: (NOTE, _note),
        Confirm: (CONFIRM, _confirm),
        Failed: (FAILED, _failed),
        Beat: (BEAT, _beat),
        Close: (CLOSE, _close),
    },
)
_DECODERS: Final[dict[int, Callable[[bytes, int], tuple[Frame, int]]]] = {
    OPEN: _read_open,
    NOTE: _read_note,
    CONFIRM: _read_confirm,
    FAILED: _read_failed,
    BEAT: _read_beat,
    CLOSE: _read_close,
}
