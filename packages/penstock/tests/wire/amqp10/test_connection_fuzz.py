"""Whatever bytes a peer sends, a connection answers or closes, and keeps nothing of them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.wire.amqp10.frames import encode_frame
from penstock.wire.amqp10.performatives import (
    ACCEPTED,
    RELEASED,
    Attach,
    Begin,
    Close,
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
    encode_aborted_transfer,
    encode_disposition,
    encode_link_flow,
    encode_next_transfer_prefix,
    encode_session_flow,
    encode_transfer_prefix,
)
from tests.wire.amqp10.pair import Pair

small = st.integers(0, 3)
words = st.one_of(small, st.sampled_from([0x7FFFFFFF, 0x80000000, 0xFFFFFFFF]))
states = st.sampled_from([None, ACCEPTED, RELEASED, ReceivedState(1, 1)])


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """A frame that a peer may send, at the right time or the wrong one."""
    channel = draw(small)
    match draw(st.integers(0, 13)):
        case 0:
            return encode_performative_frame(channel, Open("peer", max_frame_size=draw(words)))
        case 1:
            begin = Begin(
                remote_channel=draw(st.none() | small),
                next_outgoing_id=draw(words),
                incoming_window=draw(words),
                outgoing_window=draw(words),
                handle_max=draw(words),
            )
            return encode_performative_frame(channel, begin)
        case 2:
            attach = Attach(
                draw(st.sampled_from("abc")),
                draw(words),
                draw(st.booleans()),
                snd_settle_mode=draw(small),
                rcv_settle_mode=draw(small),
                source=draw(st.none() | st.just(LinkSource("x"))),
                target=draw(st.none() | st.just(LinkTarget("x"))),
                initial_delivery_count=draw(st.none() | words),
            )
            return encode_performative_frame(channel, attach)
        case 3:
            return encode_performative_frame(channel, Detach(draw(words), draw(st.booleans())))
        case 4:
            return encode_performative_frame(channel, End())
        case 5:
            numbers = [draw(words) for _ in range(7)]
            return encode_link_flow(
                channel, *numbers, drain=draw(st.booleans()), echo=draw(st.booleans())
            )
        case 6:
            return encode_session_flow(channel, *[draw(words) for _ in range(4)])
        case 7 | 8:
            payload = draw(st.binary(max_size=8))
            return (
                encode_transfer_prefix(
                    channel,
                    draw(small),
                    draw(words),
                    draw(words),
                    draw(st.booleans()),
                    draw(st.booleans()),
                    len(payload),
                )
                + payload
            )
        case 9:
            return encode_next_transfer_prefix(channel, draw(small), draw(st.booleans()), True, 0)
        case 10:
            return encode_disposition(
                channel,
                draw(st.booleans()),
                draw(words),
                draw(words),
                draw(st.booleans()),
                encode_delivery_state(draw(states)),
            )
        case 11:
            return encode_aborted_transfer(channel, draw(small))
        case 12:
            return encode_performative_frame(channel, Close())
        case _:
            return encode_frame(channel, draw(st.binary(max_size=40)), draw(small))


@settings(max_examples=300)
@given(st.lists(frames(), max_size=30), st.lists(st.tuples(st.integers(0, 400), small)))
def test_frames_in_any_order_never_break_a_connection(
    said: list[bytes], flips: list[tuple[int, int]]
) -> None:
    pair = Pair()
    link = pair.sender()
    pair.far(link).grant(3)
    receiver = pair.receiver(link.session)
    receiver.grant(3)
    pair.run()
    far = pair.far(receiver)
    for _ in range(2):
        far.send(far.new(False), b"open")
    pair.run()
    data = bytearray(b"".join(said))
    for place, bit in flips:
        if place < len(data):
            data[place] ^= 1 << bit
    connection = pair.there.connection
    connection.receive(bytes(data))
    for told in list(pair.there.told):
        if told[0] == "transfer":
            told[1].settle(ACCEPTED)
    assert connection.reader.waiting <= connection.frame_max
    assert len(connection.sessions) <= 8
    pair.there.taken()
    connection.close()
    connection.receive(encode_performative_frame(0, Close()))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_never_break_a_connection(data: bytes) -> None:
    pair = Pair()
    pair.there.connection.receive(data)
    assert pair.there.connection.reader.waiting <= 4096
