"""The performatives that come with every message: transfer, flow and disposition.

They are read by hand, where they lie (and written by `heads.py`). What does not fit raises
`DecodeError`.
"""

from __future__ import annotations

from struct import Struct, error
from typing import Any, Final

from penstock.wire.amqp10.codec import decode
from penstock.wire.amqp10.errors import DecodeError
from penstock.wire.amqp10.states import ACCEPTED, STATES, State
from penstock.wire.amqp10.values import Described

FLOW: Final = 0x13
TRANSFER: Final = 0x14
DISPOSITION: Final = 0x15

#: `accepted`, as nearly everybody writes it.
_ACCEPTED_BYTES: Final = b"\x00\x53\x24\x45"

_word = Struct(">I").unpack_from
_wide_list = Struct(">II").unpack_from


class Transfer:
    """A piece of a delivery; its payload is what follows in the frame."""

    __slots__ = (
        "aborted",
        "batchable",
        "delivery_id",
        "delivery_tag",
        "handle",
        "message_format",
        "more",
        "rcv_settle_mode",
        "resume",
        "settled",
        "state",
    )

    handle: int
    delivery_id: int | None
    delivery_tag: bytes | None
    message_format: int | None
    settled: bool | None
    more: bool
    rcv_settle_mode: int | None
    state: State | None
    resume: bool
    aborted: bool
    batchable: bool


class Flow:
    """How much the peer will take: transfers on a session, messages on a link."""

    __slots__ = (
        "available",
        "delivery_count",
        "drain",
        "echo",
        "handle",
        "incoming_window",
        "link_credit",
        "next_incoming_id",
        "next_outgoing_id",
        "outgoing_window",
        "properties",
    )

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


class Disposition:
    """What has become of deliveries."""

    __slots__ = ("batchable", "first", "last", "role", "settled", "state")

    role: bool
    first: int
    last: int
    settled: bool
    state: State | None
    batchable: bool


def read_transfer(data: bytes, at: int, stop: int) -> tuple[Transfer, int]:
    """The transfer whose list begins at `at`, and where its payload begins."""
    transfer = Transfer()
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
        raise DecodeError("a transfer that ends within a field") from None
    if at != after:
        raise DecodeError("the fields of a transfer do not fill its list")
    return transfer, at


def _rest_of_transfer(transfer: Transfer, data: bytes, at: int, after: int, count: int) -> int:
    mode, at = decode(data, at, after)
    if mode is not None:
        if not isinstance(mode, int) or not 0 <= mode <= 1:
            raise DecodeError(f"rcv-settle-mode {mode!r}")
        transfer.rcv_settle_mode = int(mode)
    if count > 7:
        transfer.state, at = _state(data, at, after)
    for index, name in ((8, "resume"), (9, "aborted"), (10, "batchable")):
        if count > index:
            value, at = _boolean(data, at)
            setattr(transfer, name, value is True)
    return at


def read_flow(data: bytes, at: int, stop: int) -> Flow:
    flow = Flow()
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
        raise DecodeError("a flow that ends within a field") from None
    if at != after or after != stop:
        raise DecodeError("the fields of a flow do not fill its frame")
    incoming, window, outgoing, outgoing_window = numbers[:4]
    if window is None or outgoing is None or outgoing_window is None:
        raise DecodeError("amqp:flow:list without what it has to say of its session")
    flow.next_incoming_id = incoming
    flow.incoming_window = window
    flow.next_outgoing_id = outgoing
    flow.outgoing_window = outgoing_window
    flow.handle, flow.delivery_count, flow.link_credit, flow.available = numbers[4:]
    flow.drain = drain is True
    flow.echo = echo is True
    return flow


def read_disposition(data: bytes, at: int, stop: int) -> Disposition:
    disposition = Disposition()
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
                disposition.state, at = _state(data, at, after)
        if count > 5:
            batchable, at = _boolean(data, at)
    except (IndexError, error):
        raise DecodeError("a disposition that ends within a field") from None
    if at != after or after != stop:
        raise DecodeError("the fields of a disposition do not fill its frame")
    disposition.role = role
    disposition.first = first
    disposition.last = first if last is None else last
    disposition.settled = settled is True
    disposition.batchable = batchable is True
    return disposition


def _open_list(data: bytes, at: int, stop: int) -> tuple[int, int, int]:
    """Where the fields begin, how many there are, and where they end."""
    code = data[at]
    if code == 0xC0:
        after = at + 2 + data[at + 1]
        count = data[at + 2]
        at += 3
    elif code == 0xD0:
        size, count = _wide_list(data, at + 1)
        after = at + 5 + size
        at += 9
    elif code == 0x45:
        return at + 1, 0, at + 1
    else:
        raise DecodeError("the fields of a performative should be a list")
    if after > stop or at > after:
        raise DecodeError("a performative that does not fit its frame")
    return at, count, after


def _uint(data: bytes, at: int) -> tuple[int | None, int]:
    code = data[at]
    if code == 0x52:
        return data[at + 1], at + 2
    if code == 0x43:
        return 0, at + 1
    if code == 0x70:
        return _word(data, at + 1)[0], at + 5
    if code == 0x40:
        return None, at + 1
    raise DecodeError(f"{code:#x} where a uint should be")


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
    raise DecodeError(f"{code:#x} where a boolean should be")


def _typed(data: bytes, at: int, after: int, kind: type, what: str) -> tuple[Any, int]:
    value, at = decode(data, at, after)
    if not isinstance(value, kind):
        raise DecodeError(f"{what} should be {kind.__name__}")
    return value, at


def _state(data: bytes, at: int, after: int) -> tuple[State | None, int]:
    value, at = decode(data, at, after)
    if value is None:
        return None, at
    if not isinstance(value, Described):
        raise DecodeError("a delivery state should have a descriptor")
    composite = STATES.find(value.descriptor)
    return (value if composite is None else composite.read(value.value)), at
