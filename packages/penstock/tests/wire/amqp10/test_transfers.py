"""Transfer, flow and disposition: what is written by hand is what the tables would write."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.amqp10.codec import decode, encode
from penstock.wire.amqp10.errors import DecodeError
from penstock.wire.amqp10.frames import FRAME_HEADER_SIZE
from penstock.wire.amqp10.performatives import (
    ACCEPTED,
    RELEASED,
    Amqp10Error,
    Modified,
    ReceivedState,
    Rejected,
    encode_delivery_state,
)
from penstock.wire.amqp10.transfers import (
    TransferPerformative,
    TransferReader,
    decode_disposition,
    decode_flow,
    decode_transfer,
    encode_aborted_transfer,
    encode_disposition,
    encode_link_flow,
    encode_next_transfer_prefix,
    encode_session_flow,
    encode_transfer_prefix,
)
from penstock.wire.amqp10.values import Described, UByte, UInt, ULong

words = st.integers(0, 0xFFFFFFFF)
channels = st.integers(0, 0xFFFF)


def fields_of(written: bytes) -> list[Any]:
    """The list in a frame, by the codec."""
    assert int.from_bytes(written[:4], "big") >= len(written)
    value, _ = decode(written, FRAME_HEADER_SIZE, len(written))
    assert isinstance(value, Described)
    assert isinstance(value.value, list)
    return value.value


def performative(code: int, fields: list[Any]) -> bytes:
    return encode(Described(ULong(code), fields))


@given(channels, words, words, words, st.booleans(), st.booleans())
def test_a_transfer_is_read_as_it_was_written(
    channel: int, handle: int, number: int, tag: int, settled: bool, more: bool
) -> None:
    written = encode_transfer_prefix(channel, handle, number, tag, settled, more, 3) + b"abc"
    assert int.from_bytes(written[:4], "big") == len(written)
    assert int.from_bytes(written[6:8], "big") == channel
    read, at = decode_transfer(written, FRAME_HEADER_SIZE + 3, len(written))
    assert (read.handle, read.delivery_id, read.message_format) == (handle, number, 0)
    assert read.delivery_tag == tag.to_bytes(4, "big")
    assert (read.settled, read.more) == (settled, more)
    assert written[at:] == b"abc"
    assert fields_of(written)[:2] == [handle, number]


transfers = st.tuples(
    st.sampled_from((UInt(0), UInt(3), UInt(300))),  # handle
    st.one_of(st.none(), words.map(UInt), st.integers(0, 255).map(UInt)),  # delivery id
    st.one_of(st.none(), st.binary(max_size=3)),  # tag
    st.sampled_from((None, UInt(0))),
    st.sampled_from((None, True, False)),
    st.booleans(),
    st.none(),
    st.sampled_from((None, Described(ULong(0x24), []))),
)


@given(st.lists(st.tuples(transfers, st.integers(1, 8)), max_size=12), st.integers(0, 2))
def test_transfers_in_a_row_are_read_as_each_alone(
    fields: list[tuple[tuple[Any, ...], int]], short: int
) -> None:
    reader = TransferReader()
    for values, count in fields:
        data = b"???" + performative(0x14, list(values[:count]))[3:]
        stop = len(data) - short  # bytes that follow are of another frame
        alone: Any = None
        with contextlib.suppress(DecodeError):
            alone = decode_transfer(data, 3, stop)
        if alone is None:
            with pytest.raises(DecodeError):
                reader.read(data, 3, stop)
            continue
        read, at = reader.read(data, 3, stop)
        assert at == alone[1]
        for name in TransferPerformative.__slots__:
            assert getattr(read, name) == getattr(alone[0], name)


@given(channels, words, st.booleans(), st.booleans())
def test_a_later_transfer_says_only_what_it_must(
    channel: int, handle: int, settled: bool, more: bool
) -> None:
    written = encode_next_transfer_prefix(channel, handle, settled, more, 0)
    assert fields_of(written) == [handle, None, None, None, settled, more]


def test_an_aborted_transfer() -> None:
    written = encode_aborted_transfer(1, 2)
    assert int.from_bytes(written[:4], "big") == len(written)
    read, _ = decode_transfer(written, FRAME_HEADER_SIZE + 3, len(written))
    assert read.aborted
    assert not read.more


def test_every_field_of_a_transfer_is_read() -> None:
    fields = [UInt(1), UInt(2), b"t" * 32, UInt(7), True, True, UByte(1)]
    fields += [Described(ULong(0x23), [UInt(1), ULong(2)]), True, True, True]
    data = performative(0x14, fields)
    read, at = decode_transfer(data, 3, len(data))
    assert at == len(data)
    assert read.state == ReceivedState(1, 2)
    assert (read.rcv_settle_mode, read.resume, read.aborted, read.batchable) == (1, *[True] * 3)


@given(channels, st.lists(words, min_size=7, max_size=7), st.booleans(), st.booleans())
def test_a_flow_is_read_as_it_was_written(
    channel: int, numbers: list[int], drain: bool, echo: bool
) -> None:
    written = encode_link_flow(channel, *numbers, drain=drain, echo=echo)
    assert int.from_bytes(written[:4], "big") == len(written)
    read = decode_flow(written, FRAME_HEADER_SIZE + 3, len(written))
    assert [
        read.next_incoming_id,
        read.incoming_window,
        read.next_outgoing_id,
        read.outgoing_window,
        read.handle,
        read.delivery_count,
        read.link_credit,
    ] == numbers
    assert (read.drain, read.echo, read.available) == (drain, echo, None)
    assert fields_of(written) == [*numbers, None, drain, echo]


def test_a_flow_of_a_session_names_no_link() -> None:
    written = encode_session_flow(1, 2, 3, 4, 5)
    assert int.from_bytes(written[:4], "big") == len(written)
    assert fields_of(written) == [2, 3, 4, 5]
    assert decode_flow(written, FRAME_HEADER_SIZE + 3, len(written)).handle is None


@pytest.mark.parametrize(
    "state",
    [
        None,
        ACCEPTED,
        RELEASED,
        Rejected(Amqp10Error("amqp:not-found", "x" * 300)),
        Modified(delivery_failed=True, undeliverable_here=True),
    ],
)
def test_a_disposition_is_read_as_it_was_written(state: Any) -> None:
    written = encode_disposition(9, True, 3, 5, True, encode_delivery_state(state))
    assert int.from_bytes(written[:4], "big") == len(written)
    read = decode_disposition(written, FRAME_HEADER_SIZE + 3, len(written))
    assert (read.role, read.first, read.last, read.settled) == (True, 3, 5, True)
    assert read.state == state


def test_a_disposition_without_its_last_is_of_one_delivery() -> None:
    data = performative(0x15, [True, UInt(3)])
    read = decode_disposition(data, 3, len(data))
    assert (read.first, read.last, read.settled, read.state) == (3, 3, False, None)


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_read_or_refused(data: bytes) -> None:
    for read in (decode_transfer, decode_flow, decode_disposition):
        for start in (b"", b"\xc0\x20\x06", b"\xd0\x00\x00\x00\x20\x00\x00\x00\x06"):
            with contextlib.suppress(DecodeError):
                read(start + data, 0, len(start + data))


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        (0x14, []),
        (0x14, [None]),
        (0x14, ["handle"]),
        (0x14, [UInt(1), UInt(1), "tag"]),
        (0x14, [UInt(1), UInt(1), b"", UInt(0), True, True, UByte(9)]),
        (0x14, [UInt(0)] + [None] * 11),
        (0x13, [UInt(1)] * 3),
        (0x13, [None] * 4),
        (0x15, [True]),
        (0x15, [None, UInt(1)]),
        (0x15, [True, UInt(1), UInt(1), True, "state"]),
    ],
)
def test_fields_that_are_missing_or_wrong_are_refused(code: int, fields: list[Any]) -> None:
    data = performative(code, fields)
    read = {0x14: decode_transfer, 0x13: decode_flow, 0x15: decode_disposition}[code]
    with pytest.raises(DecodeError):
        read(data, 3, len(data))
