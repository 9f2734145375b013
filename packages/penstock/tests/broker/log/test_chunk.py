"""The chunk's format."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.contract import Message
from penstock.broker.log.chunk import (
    SPOOLED,
    decode_chunk,
    decode_chunk_header,
    encode_chunk,
    encode_chunk_header,
)
from penstock.core.errors import CorruptChunk
from tests.broker.log.given import fields, message

GOLDEN = (
    # magic, header crc, version 1, header length 64, payload crc, payload length, two rows
    "5053434b" "93d8568f" "0100" "4000" "9738f9f0" "78000000" "02000000"
    # base offset 7, oldest and newest timestamp 1000
    "0700000000000000" "e803000000000000" "e803000000000000"
    # two routes in nine bytes, six bytes of headers, three of bodies
    "02000000" "09000000" "06000000" "03000000"
    # timestamps, flags, message flags, route index
    "e803000000000000" "e803000000000000" "0040000000000000" "0103000000000000" "0000000001000000"
    # routes: offsets 0 4 9, then bytes
    "00000000" "04000000" "09000000" "00000000" "01780179" "0178027a7a" "00000000000000"
    # headers: offsets 0 3 6, then bytes
    "00000000" "03000000" "06000000" "00000000" "683131683232" "0000"
    # bodies: offsets 0 1 3, then bytes
    "00000000" "01000000" "03000000" "00000000" "616262" "0000000000"
)  # fmt: skip


def image(chunk_of: list[Message], base: int = 0, flags: dict[int, int] | None = None) -> bytes:
    chunk = encode_chunk(base, 1000, chunk_of, flags or {})
    return encode_chunk_header(chunk.header) + chunk.payload


def test_the_bytes_of_a_chunk_are_these() -> None:
    one = Message(b"\x01x\x01y", b"h11", b"a", 1)
    two = Message(b"\x01x\x02zz", b"h22", b"bb", 3)
    assert image([one, two], 7, {8: 64}).hex() == GOLDEN


def test_the_golden_bytes_are_read_back() -> None:
    chunk = decode_chunk(bytes.fromhex(GOLDEN))
    assert (chunk.base, chunk.count, chunk.end) == (7, 2, 9)
    assert chunk.timestamps == [1000, 1000]
    assert chunk.flags == b"\x00\x40"
    assert [fields(one) for one in chunk.messages()] == [
        (b"\x01x\x01y", b"h11", b"a", 1),
        (b"\x01x\x02zz", b"h22", b"bb", 3),
    ]


messages = st.builds(
    Message,
    st.sampled_from([b"\x00\x00", b"\x01x\x01y", b"\x00\x05a.b.c"]),
    st.binary(max_size=30),
    st.binary(max_size=100),
    st.integers(0, 31),
)


@given(st.lists(messages, min_size=1, max_size=40), st.integers(0, 2**62), st.data())
def test_whatever_is_encoded_is_decoded(
    some: list[Message], base: int, data: st.DataObject
) -> None:
    offsets = st.integers(base, base + len(some) - 1)
    flags = data.draw(st.dictionaries(offsets, st.integers(1, 127)))
    start = data.draw(st.integers(0, len(some)))
    chunk = decode_chunk(image(some, base, flags))
    assert [fields(one) for one in chunk.messages()] == [fields(one) for one in some]
    assert [fields(one) for one in chunk.messages(start)] == [fields(one) for one in some[start:]]
    assert list(chunk.flags) == [flags.get(base + i, 0) for i in range(len(some))]


@given(st.lists(messages, min_size=1, max_size=5))
def test_every_column_begins_at_a_multiple_of_eight(some: list[Message]) -> None:
    assert all(at % 8 == 0 for at in decode_chunk(image(some)).columns)


def test_a_spooled_message_is_kept_as_a_reference_to_its_offset() -> None:
    large = message(b"")
    large.spool = object()  # type: ignore[assignment]
    chunk = decode_chunk(image([message(), large], 40, {41: 1}))
    assert chunk.flags == bytes((0, SPOOLED | 1))
    assert chunk.messages()[1].body == (41).to_bytes(8, "little")


def test_the_chunk_just_encoded_gives_what_the_file_would() -> None:
    large = message(b"")
    large.spool = object()  # type: ignore[assignment]
    for some in ([message(b"a"), message(b"b")], [message(b"a"), large]):
        fresh = encode_chunk(3, 1000, some, {})
        stored = decode_chunk(encode_chunk_header(fresh.header) + fresh.payload)
        assert list(map(fields, fresh.messages())) == list(map(fields, stored.messages()))


def test_no_flipped_byte_goes_unnoticed() -> None:
    data = image([message(b"first"), message(b"second", b"other")])
    for at in range(len(data)):
        flipped = data[:at] + bytes((data[at] ^ 0x10,)) + data[at + 1 :]
        with pytest.raises(CorruptChunk):
            decode_chunk(flipped)


def test_no_chunk_is_read_from_a_part_of_one() -> None:
    data = image([message(b"first"), message(b"second", b"other")])
    for size in range(len(data)):
        with pytest.raises(CorruptChunk):
            decode_chunk(data[:size])


@given(st.binary(max_size=200))
def test_noise_is_no_header(noise: bytes) -> None:
    assert decode_chunk_header(noise) is None
