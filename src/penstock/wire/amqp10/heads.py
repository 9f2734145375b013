"""Transfer, flow and disposition as frames, written by hand: they leave with every message.

Every number takes its widest form, so that each frame is one `pack`. Deliveries have tags of four
bytes and messages the format of the standard.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from penstock.wire.amqp10.frames import HEAD

#: Size, offset, type, channel; descriptor, list; handle, delivery id, tag, format, settled, more.
_TRANSFER: Final = Struct(">IBBH 6s BI BI BBI BBB")
_TRANSFER_LIST: Final = b"\x00\x53\x14\xc0\x14\x06"
_NEXT: Final = Struct(">IBBH 6s BI 3sBB")
_NEXT_LIST: Final = b"\x00\x53\x14\xc0\x0b\x06"
#: What a transfer takes beside its payload.
TRANSFER_HEAD: Final = _TRANSFER.size
NEXT_HEAD: Final = _NEXT.size

_DISPOSITION: Final = Struct(">IBBH 4sBB")
_WIDE_DISPOSITION: Final = Struct(">IBBH 4sII")
_RANGE: Final = Struct(">BBIBIB")
_SESSION_FLOW: Final = Struct(">IBBH 6s BIBIBIBI")
_LINK_FLOW: Final = Struct(">IBBH 6s BIBIBIBI BIBIBIB BB")


def transfer_head(
    channel: int, handle: int, delivery_id: int, tag: int, settled: bool, more: bool, size: int
) -> bytes:
    """The frame of a delivery's first transfer, up to its payload of `size` bytes.

    Its tag is a number of four bytes, and its message format the standard's own.
    """
    return _TRANSFER.pack(
        TRANSFER_HEAD + size,
        2,
        0,
        channel,
        _TRANSFER_LIST,
        0x70,
        handle,
        0x70,
        delivery_id,
        0xA0,
        4,
        tag,
        0x43,
        0x41 if settled else 0x42,
        0x41 if more else 0x42,
    )


def resumed_head(
    channel: int,
    handle: int,
    delivery_id: int,
    tag: int,
    settled: bool,
    more: bool,
    size: int,
    state: bytes,
) -> bytes:
    """The first transfer of a delivery that was sent before on this link; `state` is encoded."""
    extra = 2 + len(state)  # no settle mode; the state; it resumes
    head = transfer_head(channel, handle, delivery_id, tag, settled, more, size + extra)
    opened = head[:HEAD] + b"\x00\x53\x14\xc0" + bytes((0x14 + extra, 9))
    return opened + head[HEAD + len(_TRANSFER_LIST) :] + b"\x40" + state + b"\x41"


def next_transfer_head(channel: int, handle: int, settled: bool, more: bool, size: int) -> bytes:
    """The frame of a later transfer of the same delivery, up to its payload."""
    return _NEXT.pack(
        NEXT_HEAD + size,
        2,
        0,
        channel,
        _NEXT_LIST,
        0x70,
        handle,
        b"\x40\x40\x40",
        0x41 if settled else 0x42,
        0x41 if more else 0x42,
    )


def aborted_frame(channel: int, handle: int) -> bytes:
    """The last transfer of a delivery that is not to be finished."""
    body = b"\x00\x53\x14\xc0\x0f\x0a\x70" + handle.to_bytes(4, "big")
    body += b"\x40\x40\x40\x40\x42\x40\x40\x40\x41"
    return (len(body) + 8).to_bytes(4, "big") + b"\x02\x00" + channel.to_bytes(2, "big") + body


def disposition_frame(
    channel: int, role: bool, first: int, last: int, settled: bool, state: bytes
) -> bytes:
    """`state` is encoded already."""
    fields = _RANGE.pack(0x41 if role else 0x42, 0x70, first, 0x70, last, 0x41 if settled else 0x42)
    size = len(fields) + len(state)
    if size < 255:
        head = _DISPOSITION.pack(13 + 1 + size, 2, 0, channel, b"\x00\x53\x15\xc0", size + 1, 5)
    else:  # a rejection that says a lot
        head = _WIDE_DISPOSITION.pack(20 + size, 2, 0, channel, b"\x00\x53\x15\xd0", size + 4, 5)
    return head + fields + state


def session_flow_frame(
    channel: int, next_incoming_id: int, incoming_window: int, next_outgoing_id: int, window: int
) -> bytes:
    return _SESSION_FLOW.pack(
        _SESSION_FLOW.size,
        2,
        0,
        channel,
        b"\x00\x53\x13\xc0\x15\x04",
        0x70,
        next_incoming_id,
        0x70,
        incoming_window,
        0x70,
        next_outgoing_id,
        0x70,
        window,
    )


def link_flow_frame(
    channel: int,
    next_incoming_id: int,
    incoming_window: int,
    next_outgoing_id: int,
    window: int,
    handle: int,
    delivery_count: int,
    credit: int,
    *,
    drain: bool = False,
    echo: bool = False,
) -> bytes:
    return _LINK_FLOW.pack(
        _LINK_FLOW.size,
        2,
        0,
        channel,
        b"\x00\x53\x13\xc0\x27\x0a",
        0x70,
        next_incoming_id,
        0x70,
        incoming_window,
        0x70,
        next_outgoing_id,
        0x70,
        window,
        0x70,
        handle,
        0x70,
        delivery_count,
        0x70,
        credit,
        0x40,
        0x41 if drain else 0x42,
        0x41 if echo else 0x42,
    )
