"""Connections, sessions and links between two ends of the engine, and what ends them."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.wire.amqp10.codec import encode
from penstock.wire.amqp10.errors import (
    DECODE_ERROR,
    FRAME_TOO_SMALL,
    FRAMING_ERROR,
    HANDLE_IN_USE,
    ILLEGAL_STATE,
    NOT_ALLOWED,
    NOT_FOUND,
    STOLEN,
    TRANSFER_LIMIT,
    UNATTACHED_HANDLE,
    WINDOW_VIOLATION,
    LinkFault,
)
from penstock.wire.amqp10.frames import HEARTBEAT_FRAME, encode_frame
from penstock.wire.amqp10.performatives import (
    ACCEPTED,
    RELEASED,
    SECOND,
    SETTLED,
    Amqp10Error,
    Attach,
    Begin,
    Detach,
    End,
    LinkSource,
    LinkTarget,
    Open,
    ReceivedState,
    encode_delivery_state,
    encode_performative_frame,
)
from penstock.wire.amqp10.transfers import (
    encode_disposition,
    encode_link_flow,
    encode_session_flow,
    encode_transfer_prefix,
)
from penstock.wire.amqp10.values import Described, Symbol, UInt, ULong
from tests.wire.amqp10.pair import Pair

# Deliveries.


def test_a_delivery_arrives_and_its_outcome_comes_back() -> None:
    pair = Pair()
    link = pair.sender()
    pair.far(link).grant(10)
    pair.run()
    assert link.credit == 10
    delivery = link.new(False, "mine")
    link.send(delivery, b"hello")
    pair.run()
    assert pair.there.payloads == [b"hello"]
    pair.there.told[-1][1].settle(ACCEPTED)
    pair.run()
    assert pair.here.told[-1] == ("outcome", delivery)
    assert (delivery.state, delivery.settled, delivery.context) == (ACCEPTED, True, "mine")
    assert not link.session.outgoing


def test_a_delivery_takes_as_many_transfers_as_it_needs() -> None:
    pair = Pair(frame_max=512)
    link = pair.sender()
    pair.far(link).grant(1)
    pair.run()
    body = bytes(range(256)) * 8
    link.send(link.new(False), body)
    pair.run()
    assert b"".join(pair.there.payloads) == body
    assert len(pair.there.payloads) == 5
    assert [one[3] for one in pair.there.told if one[0] == "transfer"] == [True] * 4 + [False]


def test_a_settled_delivery_is_not_spoken_of_again() -> None:
    pair = Pair()
    link = pair.sender(snd_settle_mode=SETTLED)
    pair.far(link).grant(1)
    pair.run()
    link.send(link.new(True), b"x")
    pair.run()
    delivery = pair.there.told[-1][1]
    assert delivery.settled
    delivery.settle(ACCEPTED)
    assert not pair.there.taken()


def test_a_receiver_of_the_second_mode_waits_for_the_sender_to_settle() -> None:
    pair = Pair()
    link = pair.sender(rcv_settle_mode=SECOND)
    pair.far(link).grant(1)
    pair.run()
    link.send(link.new(False), b"x")
    pair.run()
    delivery = pair.there.told[-1][1]
    delivery.settle(ACCEPTED)
    assert not delivery.settled
    pair.run()
    assert delivery.settled
    assert pair.there.told[-1] == ("settled", delivery)


def test_one_disposition_speaks_of_many() -> None:
    pair = Pair()
    link = pair.sender()
    pair.far(link).grant(10)
    pair.run()
    deliveries = [link.new(False) for _ in range(4)]
    for delivery in deliveries:
        link.send(delivery, b"x")
    pair.run()
    pair.here.connection.receive(encode_disposition(0, True, 1, 0xFFFFFFF0, True, b"\x40"))
    assert [delivery.settled for delivery in deliveries] == [False, True, True, True]
    state = encode_delivery_state(RELEASED)
    pair.here.connection.receive(encode_disposition(0, True, 0xFFFFFFF0, 0, True, state))
    assert deliveries[0].state == RELEASED


def test_a_state_that_is_no_outcome_settles_nothing() -> None:
    pair = Pair()
    link = pair.sender()
    pair.far(link).grant(1)
    pair.run()
    delivery = link.new(False)
    link.send(delivery, b"x")
    pair.run()
    state = encode_delivery_state(ReceivedState(0, 1))
    pair.here.connection.receive(encode_disposition(0, True, 0, 0, False, state))
    assert delivery.state == ReceivedState(0, 1)
    assert not delivery.settled


def test_an_aborted_delivery_is_told_as_such() -> None:
    pair = Pair()
    link = pair.sender()
    pair.far(link).grant(1)
    pair.run()
    delivery = link.new(False)
    link.send(delivery, b"half", more=True)
    link.abort(delivery)
    pair.run()
    assert pair.there.names()[-2:] == ["transfer", "abort"]
    assert not pair.there.connection.sessions[0].incoming


# Credit and windows.


def test_credit_is_what_the_receiver_says_less_what_is_on_its_way() -> None:
    pair = Pair()
    link = pair.sender()
    far = pair.far(link)
    far.grant(5)
    pair.run()
    link.send(link.new(True), b"x")  # the receiver has not seen it when it speaks next
    far.grant(5)
    back = pair.there.taken()
    pair.here.connection.receive(back)
    assert link.credit == 4


def test_drained_credit_is_gone_at_both_ends() -> None:
    pair = Pair()
    link = pair.sender()
    far = pair.far(link)
    far.grant(5, drain=True)
    pair.run()
    assert link.draining
    link.drained()
    pair.run()
    assert (link.credit, far.credit, far.delivery_count) == (0, 0, 5)
    assert pair.there.told[-1] == ("drained", far)


def test_an_echo_is_answered() -> None:
    pair = Pair()
    link = pair.sender()
    pair.far(link).send_flow(echo=True)
    back = pair.there.taken()
    pair.here.connection.receive(back)
    assert pair.here.taken()
    pair.here.connection.receive(encode_session_flow(0, 0, 9, 0, 9))
    assert not pair.here.taken()


def test_what_does_not_fit_the_window_waits_for_room() -> None:
    pair = Pair(frame_max=512)
    link = pair.sender()
    pair.far(link).grant(10)
    pair.run()
    session = link.session
    pair.here.connection.receive(encode_session_flow(0, 0, 2, 0, 9))
    body = b"x" * 2000
    link.send(link.new(False), body)
    link.send(link.new(False), b"second")
    assert session.waits
    pair.run()
    assert len(b"".join(pair.there.payloads)) < 1000
    pair.here.told.clear()
    pair.here.connection.receive(encode_session_flow(0, 2, 1, 0, 9))
    assert session.waits
    pair.here.connection.receive(encode_session_flow(0, 3, 100, 0, 9))
    assert pair.here.names() == ["room"]
    pair.run()
    assert b"".join(pair.there.payloads) == body + b"second"


def test_a_link_that_ends_takes_along_what_waited() -> None:
    pair = Pair()
    link = pair.sender()
    pair.far(link).grant(10)
    pair.run()
    pair.here.connection.receive(encode_session_flow(0, 0, 0, 0, 9))
    link.send(link.new(False), b"never")
    link.detach()
    pair.here.connection.receive(encode_session_flow(0, 0, 9, 0, 9))
    pair.run()
    assert not pair.there.payloads


def test_the_window_is_renewed_before_it_is_used_up() -> None:
    pair = Pair()
    link = pair.sender()
    far = pair.far(link)
    for _ in range(3):
        far.grant(2000)
        pair.run()
        for _ in range(2000):
            link.send(link.new(True), b"x")
        pair.run()
    assert len(pair.there.payloads) == 6000
    assert pair.here.connection.remote is not None
    assert not pair.here.connection.closed


# Links and sessions.


def test_a_link_that_is_refused_is_attached_and_detached() -> None:
    pair = Pair()
    pair.there.refuses = LinkFault(NOT_FOUND, "no such thing")
    link = pair.sender()
    assert link.remote is not None
    assert link.remote.target is None
    assert pair.here.told[-1] == ("detach", link, True, Amqp10Error(NOT_FOUND, "no such thing"))
    assert not link.session.links


def test_the_name_and_the_handle_of_a_link_are_free_when_it_is_gone() -> None:
    pair = Pair()
    session = pair.session()
    for _ in range(3):
        link = pair.sender(session)
        assert link.handle == 0
        link.detach()
        pair.run()
    assert not session.links


def test_a_name_that_is_attached_again_is_stolen() -> None:
    pair = Pair()
    session = pair.session()
    first = pair.sender(session, "same")
    second = pair.sender(session, "same")
    [stolen] = [one for one in pair.there.told if one[0] == "detach"]
    assert stolen[3].condition == STOLEN
    assert first is not second
    assert second.live


def test_links_of_either_direction_may_have_one_name() -> None:
    pair = Pair()
    session = pair.session()
    assert pair.sender(session, "both").live
    assert pair.receiver(session, "both").live


def test_a_session_that_ends_is_told_at_the_other_end() -> None:
    pair = Pair()
    session = pair.session()
    session.end(Amqp10Error(NOT_ALLOWED))
    pair.run()
    assert pair.there.told[-1][0] == "end"
    assert pair.there.told[-1][2] == Amqp10Error(NOT_ALLOWED)
    assert not pair.there.connection.sessions
    assert pair.session().channel == 0


def test_closing_finishes_both_ends() -> None:
    pair = Pair()
    pair.here.connection.close(Amqp10Error(NOT_ALLOWED, "enough"))
    pair.run()
    assert pair.there.told[-1] == ("close", Amqp10Error(NOT_ALLOWED, "enough"))
    assert pair.here.connection.finished
    assert pair.there.connection.finished


def test_a_sign_of_life_says_nothing() -> None:
    pair = Pair()
    before = list(pair.there.told)
    pair.there.connection.receive(HEARTBEAT_FRAME)
    assert pair.there.told == before
    assert not pair.there.taken()


def test_descriptors_may_be_symbols() -> None:
    pair = Pair()
    body = encode(Described(Symbol("amqp:begin:list"), [None, UInt(0), UInt(9), UInt(9)]))
    pair.there.connection.receive(encode_frame(3, body))
    assert pair.there.names()[-1] == "begin"
    flow = [UInt(0), UInt(9), UInt(0), UInt(9), None, None, None, None, None, True]
    pair.there.taken()
    pair.there.connection.receive(
        encode_frame(3, encode(Described(Symbol("amqp:flow:list"), flow)))
    )
    assert pair.there.taken()


# What a peer may do wrong.


def open_pair() -> tuple[Pair, Any]:
    """A link that the far end receives on, with credit for one."""
    pair = Pair()
    link = pair.sender()
    pair.far(link).grant(1)
    pair.run()
    return pair, link


def transfer(handle: int = 0, number: int = 0, *, more: bool = False) -> bytes:
    return encode_transfer_prefix(0, handle, number, number, False, more, 1) + b"x"


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        pytest.param(encode_frame(0, b"\x00\x53\x99\x45"), DECODE_ERROR, id="unknown performative"),
        pytest.param(encode_frame(0, b"\x40"), DECODE_ERROR, id="no performative"),
        pytest.param(
            encode_frame(0, b"\x00\x53\x12\xc0\xff\x01"), DECODE_ERROR, id="a list that lies"
        ),
        pytest.param(encode_frame(0, b"\x00" * 200), DECODE_ERROR, id="descriptors nested deep"),
        pytest.param(
            encode_frame(0, b"\x00\x53\x14\x45", 7), FRAMING_ERROR, id="unknown frame type"
        ),
        pytest.param(
            encode_frame(0, b"\x00\x53\x41\x45", 1), FRAMING_ERROR, id="SASL when it is over"
        ),
        pytest.param(b"\x00\x00\x00\x01\x02\x00\x00\x00", FRAMING_ERROR, id="a size that lies"),
        pytest.param(encode_frame(0, b"x" * 5000), FRAMING_ERROR, id="too large"),
        pytest.param(encode_performative_frame(0, Open("again")), ILLEGAL_STATE, id="open twice"),
        pytest.param(
            encode_performative_frame(
                0, Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
            ),
            ILLEGAL_STATE,
            id="begin twice",
        ),
        pytest.param(
            encode_performative_frame(
                900, Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1)
            ),
            FRAMING_ERROR,
            id="a channel over the limit",
        ),
        pytest.param(
            encode_performative_frame(
                5,
                Begin(remote_channel=9, next_outgoing_id=0, incoming_window=1, outgoing_window=1),
            ),
            NOT_ALLOWED,
            id="an answer to no begin",
        ),
        pytest.param(
            encode_transfer_prefix(6, 0, 0, 0, True, False, 0), NOT_ALLOWED, id="no session"
        ),
        pytest.param(encode_performative_frame(6, End()), NOT_ALLOWED, id="end of no session"),
        pytest.param(
            encode_performative_frame(
                0, Attach("x", 5000, True, source=LinkSource(), target=LinkTarget())
            ),
            FRAMING_ERROR,
            id="a handle over the limit",
        ),
        pytest.param(
            encode_performative_frame(
                0, Attach("x", 5, False, source=LinkSource(), target=LinkTarget())
            ),
            DECODE_ERROR,
            id="a sender without its count",
        ),
        pytest.param(
            encode_frame(0, encode(Described(ULong(0x14), [UInt(0)]))),
            DECODE_ERROR,
            id="no delivery id",
        ),
        pytest.param(
            encode_frame(0, encode(Described(ULong(0x14), [UInt(0), UInt(0), b"t" * 33]))),
            DECODE_ERROR,
            id="a tag that is too long",
        ),
    ],
)
def test_it_closes_the_connection(data: bytes, condition: str) -> None:
    pair, _ = open_pair()
    pair.there.connection.receive(data)
    assert pair.there.told[-1][0] == "close"
    assert pair.there.told[-1][1].condition == condition
    pair.run()
    assert pair.here.told[-1][1].condition == condition


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        pytest.param(transfer(7), UNATTACHED_HANDLE, id="a transfer"),
        pytest.param(encode_performative_frame(0, Detach(7)), UNATTACHED_HANDLE, id="a detach"),
        pytest.param(encode_link_flow(0, 0, 9, 0, 9, 7, 0, 1), UNATTACHED_HANDLE, id="a flow"),
        pytest.param(
            encode_performative_frame(
                0, Attach("other", 0, True, source=LinkSource(), target=LinkTarget())
            ),
            HANDLE_IN_USE,
            id="a handle in use",
        ),
        pytest.param(encode_session_flow(0, 77, 9, 0, 9), WINDOW_VIOLATION, id="from the future"),
    ],
)
def test_it_ends_the_session_and_nothing_more(data: bytes, condition: str) -> None:
    pair, _ = open_pair()
    pair.there.connection.receive(data)
    assert pair.there.told[-1][0] == "end"
    assert pair.there.told[-1][2].condition == condition
    pair.there.connection.receive(transfer(7))  # what was on its way is not looked at
    pair.run()
    assert pair.here.told[-1][0] == "end"
    assert pair.session().remote_channel >= 0


@pytest.mark.parametrize(
    ("data", "condition"),
    [
        pytest.param(transfer(0, 0) + transfer(0, 1), TRANSFER_LIMIT, id="without credit"),
        pytest.param(
            transfer(0, 0, more=True) + transfer(0, 1), ILLEGAL_STATE, id="one within another"
        ),
        pytest.param(
            encode_link_flow(0, 0, 9, 0, 9, 0, 1000, 0), TRANSFER_LIMIT, id="a count that runs away"
        ),
    ],
)
def test_it_detaches_the_link_and_nothing_more(data: bytes, condition: str) -> None:
    pair, link = open_pair()
    pair.there.connection.receive(data)
    assert pair.there.told[-1][0] == "detach"
    assert pair.there.told[-1][3].condition == condition
    pair.there.connection.receive(transfer(0, 5))  # what was on its way is not looked at
    pair.run()
    assert pair.here.told[-1][:2] == ("detach", link)
    assert pair.sender(link.session, "another").live


def test_a_transfer_to_a_link_that_sends_detaches_it() -> None:
    pair = Pair()
    link = pair.receiver()
    pair.there.connection.receive(transfer(link.handle))
    assert pair.there.told[-1][3].condition == NOT_ALLOWED


def test_a_delivery_that_is_not_settled_is_not_begun_again() -> None:
    pair = Pair()
    link = pair.sender()
    pair.far(link).grant(5)
    pair.run()
    pair.there.connection.receive(transfer() + transfer())
    assert pair.there.told[-1][2].condition == ILLEGAL_STATE


def test_frames_that_are_too_small_for_anything_are_refused() -> None:
    pair = Pair()
    pair.there.connection.remote = None
    pair.there.connection.receive(encode_performative_frame(0, Open("small", max_frame_size=100)))
    assert pair.there.told[-1][1].condition == FRAME_TOO_SMALL


def test_an_answer_that_does_not_fit_the_peers_frames_closes_the_connection() -> None:
    pair = Pair()
    session = pair.session()
    pair.there.connection.remote_frame_max = 512
    link = session.receiver("r")
    link.attach(Attach("r", 0, True, source=LinkSource("x" * 600), target=LinkTarget()))
    pair.run()
    assert pair.here.told[-1][1].condition == FRAME_TOO_SMALL


def test_nothing_is_said_after_the_end() -> None:
    pair, _ = open_pair()
    pair.there.connection.receive(b"\x00\x00\x00\x01\x02\x00\x00\x00")
    assert pair.there.connection.finished
    pair.there.taken()
    pair.there.connection.receive(transfer() * 10)
    assert not pair.there.taken()
