"""Performatives by the tables: what is written is read back, what does not fit is refused."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.wire.amqp10.codec import encode
from penstock.wire.amqp10.errors import DecodeError
from penstock.wire.amqp10.frames import FRAME_HEADER_SIZE
from penstock.wire.amqp10.performatives import (
    ACCEPTED,
    DELIVERY_STATES,
    LIFETIME_POLICIES,
    NEVER,
    PERFORMATIVES,
    Amqp10Error,
    Attach,
    Begin,
    Close,
    DeleteOnClose,
    Detach,
    End,
    LinkSource,
    LinkTarget,
    Modified,
    Open,
    ReceivedState,
    Rejected,
    TransactionCoordinator,
    decode_performative,
    encode_performative_frame,
)
from penstock.wire.amqp10.values import SYMBOL, Array, Described, Symbol, UInt, ULong

WHOLE = [
    Open("me"),
    Open(
        "me",
        hostname="vhost:/",
        max_frame_size=512,
        channel_max=1,
        idle_time_out=1000,
        offered_capabilities=("a", "b"),
        properties={Symbol("product"): "x"},
    ),
    Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=2),
    Begin(remote_channel=3, next_outgoing_id=0, incoming_window=1, outgoing_window=2, handle_max=9),
    Attach("l", 0, True),
    Attach(
        "l",
        7,
        False,
        snd_settle_mode=1,
        rcv_settle_mode=1,
        source=LinkSource(
            "/queue/q",
            durable=2,
            expiry_policy=NEVER,
            timeout=5,
            filter={Symbol("f"): Described(Symbol("f"), "x")},
            default_outcome=ACCEPTED,
            outcomes=("amqp:accepted:list",),
        ),
        target=LinkTarget(dynamic=True, dynamic_node_properties={}),
        unsettled={b"tag": None},
        initial_delivery_count=4,
        max_message_size=99,
    ),
    Attach("tx", 0, False, source=LinkSource(), target=TransactionCoordinator(("local",))),
    Detach(1, True, Amqp10Error("amqp:not-found", "no", {Symbol("a"): 1})),
    End(),
    End(Amqp10Error("amqp:not-allowed")),
    Close(),
]


@pytest.mark.parametrize("performative", WHOLE, ids=lambda one: type(one).__name__)
def test_what_is_written_is_read_back(performative: Any) -> None:
    written = encode_performative_frame(1, performative)
    assert (
        decode_performative(PERFORMATIVES, written, FRAME_HEADER_SIZE, len(written)) == performative
    )


@pytest.mark.parametrize(
    "state",
    [
        ACCEPTED,
        Rejected(Amqp10Error("x:y")),
        Modified(True, False, {Symbol("a"): 1}),
        ReceivedState(1, 2),
    ],
)
def test_states_are_read_back(state: Any) -> None:
    assert DELIVERY_STATES.read(DELIVERY_STATES.described(state)) == state


def test_a_lifetime_is_read_back() -> None:
    assert LIFETIME_POLICIES.read(LIFETIME_POLICIES.described(DeleteOnClose())) == DeleteOnClose()


def test_several_symbols_may_come_as_one() -> None:
    one = encode(Described(ULong(0x10), ["me", *[None] * 6, Symbol("single")]))
    assert decode_performative(PERFORMATIVES, one, 0, len(one)).offered_capabilities == ("single",)
    two = encode(Described(ULong(0x10), ["me", *[None] * 6, Array(SYMBOL, [Symbol("a")])]))
    assert decode_performative(PERFORMATIVES, two, 0, len(two)).offered_capabilities == ("a",)


def test_a_minimal_open_is_these_bytes() -> None:
    """Container id `me` and nothing else."""
    assert encode_performative_frame(0, Open("me")) == (
        b"\x00\x00\x00\x12\x02\x00\x00\x00\x00\x53\x10\xc0\x05\x01\xa1\x02me"
    )


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(Described(ULong(0x10), []), id="nothing where something must be"),
        pytest.param(Described(ULong(0x10), [None]), id="null where something must be"),
        pytest.param(Described(ULong(0x10), [b"me"]), id="bytes for a string"),
        pytest.param(Described(ULong(0x10), ["me", None, ULong(9)]), id="a ulong for a uint"),
        pytest.param(Described(ULong(0x10), ["me"] + [None] * 10), id="more than there is"),
        pytest.param(Described(ULong(0x10), {}), id="a map for a list"),
        pytest.param(Described(ULong(0x16), [UInt(0), True, "why"]), id="a text for an error"),
        pytest.param(
            Described(ULong(0x12), ["x", UInt(0), True, None, None, Described(ULong(0x29), [])]),
            id="a target for a source",
        ),
        pytest.param(Described(ULong(0x77), []), id="no performative"),
        pytest.param(Described(True, []), id="no descriptor"),
        pytest.param("open", id="not described"),
    ],
)
def test_what_does_not_fit_is_refused(value: Any) -> None:
    data = encode(value)
    with pytest.raises(DecodeError):
        decode_performative(PERFORMATIVES, data, 0, len(data))


def test_bytes_behind_a_performative_are_refused() -> None:
    data = encode(Described(ULong(0x17), [])) + b"\x40"
    with pytest.raises(DecodeError):
        decode_performative(PERFORMATIVES, data, 0, len(data))
