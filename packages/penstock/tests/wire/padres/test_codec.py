"""PADRES frames: every value survives, bytes are as they are said to be, nonsense is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import PenstockError, WireSyntaxError
from penstock.wire.padres.envelope import (
    EnvelopeKind,
    PadresEnvelope,
    decode_envelope,
    encode_envelope,
)
from penstock.wire.padres.fields import MAX_UNSIGNED
from penstock.wire.padres.frames import (
    CloseFrame,
    ConfirmFrame,
    ErrorFrame,
    HeartbeatFrame,
    MessageFrame,
    OpenFrame,
    PadresFrame,
    PeerRole,
    decode_frame,
    encode_frame,
    encode_message_frame,
)

texts = st.text(st.characters(exclude_categories=["Cs"]))
naturals = st.integers(0, MAX_UNSIGNED)
integers = st.integers(-(1 << 63), (1 << 63) - 1)
envelopes = st.builds(
    PadresEnvelope,
    st.sampled_from(EnvelopeKind),
    texts,
    id=texts,
    payload=st.binary(),
    priority=integers,
    ttl=integers,
    time=st.floats(allow_nan=False, allow_infinity=False),
    trace=texts,
    durable=st.booleans(),
    options=st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
    source=texts,
    tree=texts,
    target_brokers=st.lists(texts, max_size=3).map(tuple),
    tree_changes=naturals,
)
opens = st.builds(
    OpenFrame,
    st.sampled_from(PeerRole),
    *([texts] * 7),
    heartbeat=naturals,
    largest=naturals,
    durable=st.booleans(),
    software=texts,
    notify_subscriptions=st.booleans(),
)
frames: st.SearchStrategy[PadresFrame] = st.one_of(
    opens,
    st.builds(MessageFrame, envelopes, naturals),
    st.builds(ConfirmFrame, naturals, texts),
    st.builds(ErrorFrame, naturals, naturals, texts, integers),
    st.just(HeartbeatFrame()),
    st.builds(CloseFrame, naturals, texts),
)


@given(frames)
def test_a_frame_reads_back_as_it_was(frame: PadresFrame) -> None:
    written = encode_frame(frame)

    assert int.from_bytes(written[:4], "big") == len(written) - 4
    assert decode_frame(written[4:]) == frame


@given(frames, st.data())
def test_a_frame_that_is_cut_short_is_refused(frame: PadresFrame, data: st.DataObject) -> None:
    content = encode_frame(frame)[4:]
    kept = data.draw(st.integers(0, len(content) - 1))

    with pytest.raises(WireSyntaxError):
        decode_frame(content[:kept])


@given(st.binary(max_size=200))
def test_what_is_no_frame_is_refused_by_name(content: bytes) -> None:
    try:
        frame = decode_frame(content)
    except PenstockError:
        return
    assert decode_frame(encode_frame(frame)[4:]) == frame


@given(envelopes, naturals)
def test_an_envelope_that_is_encoded_already_makes_the_same_frame(
    envelope: PadresEnvelope, receipt: int
) -> None:
    assert encode_message_frame(encode_envelope(envelope), receipt) == encode_frame(
        MessageFrame(envelope, receipt)
    )


def test_a_publication_costs_three_bytes_beside_its_text() -> None:
    text = "[class,stock],[price,45]"

    assert (
        encode_envelope(PadresEnvelope(EnvelopeKind.PUBLISH, text))
        == b"\x04\x00\x18" + text.encode()
    )


@pytest.mark.parametrize(
    ("frame", "written"),
    [
        (HeartbeatFrame(), "00000001 05"),
        (CloseFrame(320, "bye"), "00000007 06 c002 03 627965"),
        (ConfirmFrame(300, "B1-M7"), "00000009 03 ac02 05 42312d4d37"),
        (ErrorFrame(1, 406, "no", 26), "00000008 04 01 9603 34 02 6e6f"),
        (ErrorFrame(1, 404, "no"), "00000008 04 01 9403 01 02 6e6f"),
        (
            MessageFrame(PadresEnvelope(EnvelopeKind.UNSUBSCRIBE, "B1-M7"), 2),
            "0000000a 02 02 06 00 05 42312d4d37",
        ),
        (
            MessageFrame(
                PadresEnvelope(
                    EnvelopeKind.PUBLISH, "[class,a]", payload=b"\x01", ttl=1, durable=False
                )
            ),
            "00000011 02 00 04 4a 09 5b636c6173732c615d 01 01 02",
        ),
    ],
)
def test_the_bytes_of_a_frame(frame: PadresFrame, written: str) -> None:
    assert encode_frame(frame) == bytes.fromhex(written)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("", "the octet at byte 0 is missing"),
        ("63", "unknown frame kind 99"),
        ("05 00", "frame of 2 bytes with fields of 1 bytes"),
        ("03 ffffffffffffffffffff01 00", "exceeds 64 bits"),
        ("03 ffffffffffffffffff7f 00", "exceeds 64 bits"),
        ("03 01 05 42", "the 5 bytes at byte 2 extend past the end"),
        ("03 01 01 ff", "not UTF-8"),
        ("01 07", "unknown role 7"),
        ("02 00 09 00 00", "unknown message kind 9"),
        ("02 00 04 8020 00", "unknown fields"),
        ("02 00 04 10 00 7ff0000000000000", "not finite"),
        ("02 00 04 8001 00 ff7f", "extends past the end"),
    ],
)
def test_what_is_wrong_with_a_frame_is_said(content: str, why: str) -> None:
    with pytest.raises(WireSyntaxError, match=why):
        decode_frame(bytes.fromhex(content))


@pytest.mark.parametrize(
    "envelope",
    [
        PadresEnvelope(EnvelopeKind.PUBLISH, "\ud800"),
        PadresEnvelope(EnvelopeKind.PUBLISH, "", tree_changes=-1),
    ],
)
def test_what_cannot_be_written_is_refused(envelope: PadresEnvelope) -> None:
    with pytest.raises(WireSyntaxError):
        encode_envelope(envelope)


def test_an_envelope_says_where_it_ends() -> None:
    written = encode_envelope(PadresEnvelope(EnvelopeKind.PUBLISH, "[class,a]", id="B1-M1"))

    assert decode_envelope(b"x" + written + b"y", 1)[1] == 1 + len(written)
