"""The performatives of every message: transfer, flow and disposition.

They are decoded in place and encoded by one `pack`, without the composite tables. Encoded numbers
have their widest form, deliveries a tag of four bytes, messages the standard format. Invalid bytes
raise `DecodeError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct, error
from typing import Any, Final

from penstock.wire.amqp10.codec import decode
from penstock.wire.amqp10.errors import DecodeError
from penstock.wire.amqp10.frames import FRAME_HEADER_SIZE, encode_frame
from penstock.wire.amqp10.performatives import ACCEPTED, DELIVERY_STATES, DeliveryState
from penstock.wire.amqp10.values import Described

FLOW: Final = 0x13
TRANSFER: Final = 0x14
DISPOSITION: Final = 0x15

#: `accepted` in its smallest encoding.
_ACCEPTED_BYTES: Final = b"\x00\x53\x24\x45"

_unpack_uint = Struct(">I").unpack_from
_unpack_list32 = Struct(">II").unpack_from


@dataclass(slots=True, init=False, eq=False)
class TransferPerformative:
    """A piece of a delivery; its payload follows in the frame."""

    handle: int
    delivery_id: int | None
    delivery_tag: bytes | None
    message_format: int | None
    settled: bool | None
    more: bool
    rcv_settle_mode: int | None
    state: DeliveryState | None
    resume: bool
    aborted: bool
    batchable: bool


@dataclass(slots=True, init=False, eq=False)
class FlowPerformative:
    """The window of a session, and the credit of a link."""

    next_incoming_id: int | None
    incoming_window: int
    next_outgoing_id: int
    outgoing_window: int
    handle: int | None
    delivery_count: int | None
    link_credit: int | None
    available: int | None
    drain: bool
    echo: bool
    properties: Any


@dataclass(slots=True, init=False, eq=False)
class DispositionPerformative:
    """The state of deliveries."""

    role: bool
    first: int
    last: int
    settled: bool
    state: DeliveryState | None
    batchable: bool


def decode_transfer(data: bytes, at: int, stop: int) -> tuple[TransferPerformative, int]:
    """The transfer whose list begins at `at`, and where its payload begins."""
    transfer = TransferPerformative()
    try:
        at, count, after = _open_list(data, at, stop)
        if count < 1 or count > 11:
            raise DecodeError(f"amqp:transfer:list with {count} fields")
        handle, at = _uint(data, at)
        if handle is None:
            raise DecodeError("amqp:transfer:list without its handle")
        transfer.handle = handle
        transfer.delivery_id = transfer.delivery_tag = transfer.message_format = None
        transfer.settled = transfer.rcv_settle_mode = transfer.state = None
        transfer.more = transfer.resume = transfer.aborted = transfer.batchable = False
        if count > 1:
            transfer.delivery_id, at = _uint(data, at)
        if count > 2:
            code = data[at]
            if code == 0xA0:
                start = at + 2
                at = start + data[at + 1]
                transfer.delivery_tag = data[start:at]
            elif code == 0x40:
                at += 1
            else:
                transfer.delivery_tag, at = _typed(data, at, after, bytes, "delivery-tag")
        if count > 3:
            transfer.message_format, at = _uint(data, at)
        if count > 4:
            transfer.settled, at = _boolean(data, at)
        if count > 5:
            more, at = _boolean(data, at)
            transfer.more = more is True
        if count > 6:
            at = _rest_of_transfer(transfer, data, at, after, count)
    except (IndexError, error):
        raise DecodeError("transfer ends within a field") from None
    if at != after:
        raise DecodeError("the fields of a transfer do not match the size of its list")
    return transfer, at


class TransferReader:
    """Decodes the transfers of a session. One with the octets of the last, except for its delivery
    id and tag, is not decoded again."""

    __slots__ = (
        "_between",
        "_id_at",
        "_lead",
        "_rest",
        "_size",
        "_tag_at",
        "_tag_end",
        "_transfer",
    )

    def __init__(self) -> None:
        self._size = 0  # of the last performative
        self._lead = b""  # up to the delivery id; empty if none can be compared
        self._between = b""  # between the id and the tag
        self._rest = b""  # after the tag
        self._id_at = self._tag_at = self._tag_end = 0
        self._transfer: TransferPerformative

    def read(self, data: bytes, at: int, stop: int) -> tuple[TransferPerformative, int]:
        """As `decode_transfer`; the performative is valid until the next call."""
        payload = at + self._size
        if self._lead and payload <= stop and data.startswith(self._lead, at):
            tag_at, tag_end = at + self._tag_at, at + self._tag_end
            between = self._between
            if data.startswith(between, tag_at - len(between)) and data.startswith(
                self._rest, tag_end
            ):
                transfer = self._transfer
                transfer.delivery_id = int.from_bytes(
                    data[at + self._id_at : tag_at - len(between)], "big"
                )
                transfer.delivery_tag = data[tag_at:tag_end]
                return transfer, payload
        transfer, payload = decode_transfer(data, at, stop)
        if payload - at != self._size:
            self._size = payload - at
            self._lead = b""
        else:  # the second of this size
            self._learn(data[at:payload], transfer)
        return transfer, payload

    def _learn(self, data: bytes, transfer: TransferPerformative) -> None:
        self._lead = b""
        if not transfer.delivery_tag or transfer.delivery_id is None or transfer.state is not None:
            return
        at, _, _ = _open_list(data, 0, len(data))
        _, at = _uint(data, at)
        width = {0x52: 1, 0x70: 4}.get(data[at], 0)
        tag_at = at + 1 + width + 2
        if not width or data[tag_at - 2] != 0xA0:
            return
        self._transfer = transfer
        self._id_at, self._tag_at = at + 1, tag_at
        self._tag_end = tag_at + len(transfer.delivery_tag)
        self._lead, self._between = data[: at + 1], data[tag_at - 2 : tag_at]
        self._rest = data[self._tag_end :]


def _rest_of_transfer(
    transfer: TransferPerformative, data: bytes, at: int, after: int, count: int
) -> int:
    mode, at = decode(data, at, after)
    if mode is not None:
        if not isinstance(mode, int) or not 0 <= mode <= 1:
            raise DecodeError(f"rcv-settle-mode {mode!r}")
        transfer.rcv_settle_mode = int(mode)
    if count > 7:
        transfer.state, at = _decode_state(data, at, after)
    for index, name in ((8, "resume"), (9, "aborted"), (10, "batchable")):
        if count > index:
            value, at = _boolean(data, at)
            setattr(transfer, name, value is True)
    return at


def decode_flow(data: bytes, at: int, stop: int) -> FlowPerformative:
    flow = FlowPerformative()
    try:
        at, count, after = _open_list(data, at, stop)
        if count < 4 or count > 11:
            raise DecodeError(f"amqp:flow:list with {count} fields")
        numbers: list[int | None] = [None] * 8
        for index in range(min(count, 8)):
            numbers[index], at = _uint(data, at)
        drain = echo = None
        flow.properties = None
        if count > 8:
            drain, at = _boolean(data, at)
        if count > 9:
            echo, at = _boolean(data, at)
        if count > 10:
            flow.properties, at = decode(data, at, after)
    except (IndexError, error):
        raise DecodeError("flow ends within a field") from None
    if at != after or after != stop:
        raise DecodeError("the fields of a flow do not match the size of its frame")
    incoming, window, outgoing, outgoing_window = numbers[:4]
    if window is None or outgoing is None or outgoing_window is None:
        raise DecodeError("amqp:flow:list without its window fields")
    flow.next_incoming_id = incoming
    flow.incoming_window = window
    flow.next_outgoing_id = outgoing
    flow.outgoing_window = outgoing_window
    flow.handle, flow.delivery_count, flow.link_credit, flow.available = numbers[4:]
    flow.drain = drain is True
    flow.echo = echo is True
    return flow


def decode_disposition(data: bytes, at: int, stop: int) -> DispositionPerformative:
    disposition = DispositionPerformative()
    try:
        at, count, after = _open_list(data, at, stop)
        if count < 2 or count > 6:
            raise DecodeError(f"amqp:disposition:list with {count} fields")
        role, at = _boolean(data, at)
        first, at = _uint(data, at)
        last = settled = batchable = None
        if role is None or first is None:
            raise DecodeError("amqp:disposition:list without its role or its first delivery")
        disposition.state = None
        if count > 2:
            last, at = _uint(data, at)
        if count > 3:
            settled, at = _boolean(data, at)
        if count > 4:
            if data[at : at + 4] == _ACCEPTED_BYTES:
                disposition.state = ACCEPTED
                at += 4
            else:
                disposition.state, at = _decode_state(data, at, after)
        if count > 5:
            batchable, at = _boolean(data, at)
    except (IndexError, error):
        raise DecodeError("disposition ends within a field") from None
    if at != after or after != stop:
        raise DecodeError("the fields of a disposition do not match the size of its frame")
    disposition.role = role
    disposition.first = first
    disposition.last = first if last is None else last
    disposition.settled = settled is True
    disposition.batchable = batchable is True
    return disposition


def _open_list(data: bytes, at: int, stop: int) -> tuple[int, int, int]:
    """Where the fields begin, their number, and where they end."""
    code = data[at]
    if code == 0xC0:
        after = at + 2 + data[at + 1]
        count = data[at + 2]
        at += 3
    elif code == 0xD0:
        size, count = _unpack_list32(data, at + 1)
        after = at + 5 + size
        at += 9
    elif code == 0x45:
        return at + 1, 0, at + 1
    else:
        raise DecodeError("the fields of a performative should be a list")
    if after > stop or at > after:
        raise DecodeError("performative extends past its frame")
    return at, count, after


def _uint(data: bytes, at: int) -> tuple[int | None, int]:
    code = data[at]
    if code == 0x52:
        return data[at + 1], at + 2
    if code == 0x43:
        return 0, at + 1
    if code == 0x70:
        return _unpack_uint(data, at + 1)[0], at + 5
    if code == 0x40:
        return None, at + 1
    raise DecodeError(f"constructor {code:#x} instead of a uint")


def _boolean(data: bytes, at: int) -> tuple[bool | None, int]:
    code = data[at]
    if code == 0x42:
        return False, at + 1
    if code == 0x41:
        return True, at + 1
    if code == 0x40:
        return None, at + 1
    if code == 0x56 and data[at + 1] < 2:
        return data[at + 1] == 1, at + 2
    raise DecodeError(f"constructor {code:#x} instead of a boolean")


def _typed(data: bytes, at: int, after: int, kind: type, what: str) -> tuple[Any, int]:
    value, at = decode(data, at, after)
    if not isinstance(value, kind):
        raise DecodeError(f"{what} should be {kind.__name__}")
    return value, at


def _decode_state(data: bytes, at: int, after: int) -> tuple[DeliveryState | None, int]:
    value, at = decode(data, at, after)
    if value is None:
        return None, at
    if not isinstance(value, Described):
        raise DecodeError("a delivery state should have a descriptor")
    composite = DELIVERY_STATES.find(value.descriptor)
    return (value if composite is None else composite.read(value.value)), at


#: Size, data offset and type (0x0200), channel; descriptor, list and constructor of the handle;
#: handle, delivery id, tag, format, settled and more. Constructors: 0x40 null, 0x41 true, 0x42
#: false, 0x43 uint 0, 0x70 uint, 0xA0 binary.
_TRANSFER: Final = Struct(">IHH 7s I BI HI BH")
_TRANSFER_LIST: Final = b"\x00\x53\x14\xc0\x14\x06\x70"
_NEXT_TRANSFER: Final = Struct(">IHH 7s I 3sH")
_NEXT_TRANSFER_LIST: Final = b"\x00\x53\x14\xc0\x0b\x06\x70"
#: The size of a transfer beside its payload.
TRANSFER_OVERHEAD: Final = _TRANSFER.size
NEXT_TRANSFER_OVERHEAD: Final = _NEXT_TRANSFER.size

_DISPOSITION: Final = Struct(">IHH 4sBB")
_WIDE_DISPOSITION: Final = Struct(">IHH 4sII")
_RANGE: Final = Struct(">BBIBIB")
_SESSION_FLOW: Final = Struct(">IHH 7s IBIBIBI")
_SESSION_FLOW_LIST: Final = b"\x00\x53\x13\xc0\x15\x04\x70"
_LINK_FLOW: Final = Struct(">IHH 7s IBIBIBI BIBIBI BBB")
_LINK_FLOW_LIST: Final = b"\x00\x53\x13\xc0\x27\x0a\x70"


def encode_transfer_prefix(
    channel: int, handle: int, delivery_id: int, tag: int, settled: bool, more: bool, size: int
) -> bytes:
    """The frame of a delivery's first transfer, up to its payload of `size` bytes."""
    size += TRANSFER_OVERHEAD
    flags = (0x4100 if settled else 0x4200) | (0x41 if more else 0x42)
    return _TRANSFER.pack(
        size, 0x0200, channel, _TRANSFER_LIST, handle, 0x70, delivery_id, 0xA004, tag, 0x43, flags
    )


def encode_resumed_transfer_prefix(
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
    extra = 2 + len(state)  # no settle mode; the state; resume
    head = encode_transfer_prefix(channel, handle, delivery_id, tag, settled, more, size + extra)
    fields = FRAME_HEADER_SIZE + 6
    opened = head[:FRAME_HEADER_SIZE] + b"\x00\x53\x14\xc0" + bytes((0x14 + extra, 9))
    return opened + head[fields:] + b"\x40" + state + b"\x41"


def encode_next_transfer_prefix(
    channel: int, handle: int, settled: bool, more: bool, size: int
) -> bytes:
    """The frame of a later transfer of the same delivery, up to its payload."""
    size += NEXT_TRANSFER_OVERHEAD
    flags = (0x4100 if settled else 0x4200) | (0x41 if more else 0x42)
    return _NEXT_TRANSFER.pack(
        size, 0x0200, channel, _NEXT_TRANSFER_LIST, handle, b"\x40\x40\x40", flags
    )


def encode_aborted_transfer(channel: int, handle: int) -> bytes:
    """The last transfer of a delivery that is aborted."""
    body = b"\x00\x53\x14\xc0\x0f\x0a\x70" + handle.to_bytes(4, "big")
    return encode_frame(channel, body + b"\x40\x40\x40\x40\x42\x40\x40\x40\x41")


def encode_disposition(
    channel: int, role: bool, first: int, last: int, settled: bool, state: bytes
) -> bytes:
    """`state` is encoded."""
    fields = _RANGE.pack(0x41 if role else 0x42, 0x70, first, 0x70, last, 0x41 if settled else 0x42)
    size = len(fields) + len(state)
    if size < 255:
        head = _DISPOSITION.pack(14 + size, 0x0200, channel, b"\x00\x53\x15\xc0", size + 1, 5)
    else:  # a rejection with a long description
        head = _WIDE_DISPOSITION.pack(20 + size, 0x0200, channel, b"\x00\x53\x15\xd0", size + 4, 5)
    return head + fields + state


def encode_session_flow(
    channel: int, next_incoming_id: int, incoming_window: int, next_outgoing_id: int, window: int
) -> bytes:
    return _SESSION_FLOW.pack(
        _SESSION_FLOW.size,
        0x0200,
        channel,
        _SESSION_FLOW_LIST,
        next_incoming_id,
        0x70,
        incoming_window,
        0x70,
        next_outgoing_id,
        0x70,
        window,
    )


def encode_link_flow(
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
        0x0200,
        channel,
        _LINK_FLOW_LIST,
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
