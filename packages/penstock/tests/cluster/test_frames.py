"""The replication protocol's frames, whole, in pieces and damaged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.frames import (
    Change,
    ChangeKind,
    FrameDecoder,
    FrameType,
    decode_ack,
    decode_changes,
    decode_file_part,
    encode_ack,
    encode_change,
    encode_changes,
    encode_file_part,
    encode_json_frame,
)
from penstock.core.errors import FrameError

changes = st.lists(
    st.builds(
        Change,
        st.sampled_from(ChangeKind),
        st.text(max_size=20),
        st.integers(0, 2**60),
        st.binary(max_size=50),
    )
)


@given(changes, st.integers(0, 2**60), st.integers(0, 2**60), st.booleans(), st.integers(1, 30))
def test_changes_survive_the_wire(
    given_changes: list[Change], epoch: int, sequence: int, is_last: bool, piece: int
) -> None:
    encoded = encode_changes(
        epoch, sequence, is_last, b"".join(encode_change(*one) for one in given_changes)
    )
    decoder = FrameDecoder()
    frames = [
        frame
        for at in range(0, len(encoded), piece)
        for frame in decoder.feed(encoded[at : at + piece])
    ]
    assert [frame.type for frame in frames] == [FrameType.CHANGES]
    assert decode_changes(frames[0].payload) == (epoch, sequence, is_last, given_changes)


def test_parts_and_acknowledgements_survive_the_wire() -> None:
    data = encode_file_part(FrameType.DATA, "log/a", 7, b"xyz") + encode_ack(3, 9)
    part, ack = FrameDecoder().feed(data)
    assert decode_file_part(part.payload) == ("log/a", 7, b"xyz")
    assert decode_ack(ack.payload) == (3, 9)


@given(st.integers(4, 40), st.integers(1, 255))
def test_a_damaged_frame_is_refused(at: int, bits: int) -> None:
    encoded = bytearray(encode_json_frame(FrameType.HELLO, node="a", nonce="0123456789abcdef"))
    encoded[at] ^= bits
    with pytest.raises(FrameError):
        list(FrameDecoder().feed(bytes(encoded)))


def test_a_cut_change_is_refused() -> None:
    payload = encode_changes(1, 2, True, encode_change(ChangeKind.APPEND, "log/a", 0, b"0123"))[9:]
    assert decode_changes(payload).changes[0].data == b"0123"
    for cut in range(1, 24):
        with pytest.raises(FrameError):
            decode_changes(payload[:-cut])
