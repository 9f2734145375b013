"""Chunks of a stream taken apart: where their messages lie, however they were packed."""

from __future__ import annotations

import gzip
import zlib
from struct import pack

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import FrameError
from penstock_spark.rabbitmq.chunks import (
    MessageBlock,
    UnsupportedChunk,
    chunk_offsets,
    decode_chunks,
)

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
MOMENT = 1_700_000_000_123


def plain(message: bytes) -> bytes:
    return pack(">I", len(message)) + message


def packed(messages: list[bytes], how: int = 0, data: bytes | None = None) -> bytes:
    """An entry of many."""
    inside = b"".join(map(plain, messages))
    content = inside if data is None else data
    return pack(">BHII", 0x80 | how << 4, len(messages), len(inside), len(content)) + content


def chunk(entries: list[bytes], records: int, first: int = 0, kind: int = 0) -> bytes:
    data = b"".join(entries)
    header = pack(
        ">BBHIqQQIIII",
        *(0x50, kind, len(entries), records, MOMENT, 1, first),
        *(zlib.crc32(data), len(data), 0, 0),
    )
    return header + data


def messages(block: MessageBlock | None) -> list[tuple[int, bytes]]:
    assert block is not None
    places = zip(block.offsets, block.starts, block.stops, strict=True)
    return [(int(offset), block.data[start:stop]) for offset, start, stop in places]


@given(st.lists(st.binary(max_size=40), min_size=1, max_size=20), st.integers(0, 2**40))
def test_messages_behind_their_sizes(bodies: list[bytes], first: int) -> None:
    block = decode_chunks([chunk([plain(body) for body in bodies], len(bodies), first)])

    assert messages(block) == list(enumerate(bodies, first))
    assert block is not None
    assert set(block.moments_ms.tolist()) == {MOMENT}


@pytest.mark.parametrize("how", [0, GZIP, LZ4, ZSTD])
def test_entries_of_many_among_single_ones(how: int) -> None:
    many = [b"one", b"", b"three" * 50]
    inside = b"".join(map(plain, many))
    codecs = {LZ4: "lz4", ZSTD: "zstd"}
    data = {0: None, GZIP: gzip.compress(inside)}.get(how)
    if how in codecs:
        data = pa.compress(inside, codecs[how], asbytes=True)
    entries = [plain(b"before"), packed(many, how, data), plain(b"behind")]

    found = messages(decode_chunks([chunk(entries, 5, 10)]))

    assert found == list(enumerate([b"before", *many, b"behind"], 10))


def test_chunks_that_follow_one_another_are_one_block() -> None:
    chunks = [
        chunk([plain(b"a"), plain(b"bc")], 2, 0),
        chunk([plain(b"a note")], 1, 2, kind=1),
        chunk([], 0, 5),
        chunk([packed([b"", b"e"])], 2, 5),
        chunk([plain(b"d" * 9)], 1, 7),
    ]

    block = decode_chunks(chunks)

    assert messages(block) == [(0, b"a"), (1, b"bc"), (5, b""), (6, b"e"), (7, b"d" * 9)]


def test_a_chunk_tells_its_offsets() -> None:
    assert chunk_offsets(chunk([plain(b"a"), plain(b"b")], 2, 40)) == range(40, 42)


def test_the_brokers_own_notes_hold_no_messages() -> None:
    assert decode_chunks([chunk([plain(b"a note")], 1, kind=2)]) is None


def test_a_damaged_chunk_is_asked_for_again() -> None:
    whole = chunk([plain(b"message")], 1)

    with pytest.raises(ConnectionResetError, match="checksum error"):
        decode_chunks([whole[:-1] + b"!"])
    with pytest.raises(ConnectionResetError, match="checksum error"):
        decode_chunks([whole[:-1]])


def test_what_is_no_chunk_is_said_to_be_none() -> None:
    with pytest.raises(FrameError, match="7 bytes"):
        decode_chunks([b"nothing"])
    with pytest.raises(FrameError, match="0x48"):
        decode_chunks([b"HTTP/1.1 400 Bad Request" * 3])
    with pytest.raises(FrameError, match="3 messages"):
        decode_chunks([chunk([plain(b"one"), plain(b"two")], 3)])


@pytest.mark.parametrize("how", [GZIP, ZSTD, 7])
def test_packing_that_cannot_be_undone_is_left_to_amqp(how: int) -> None:
    with pytest.raises(UnsupportedChunk):
        decode_chunks([chunk([packed([b"a", b"b"], how, b"not packed like that")], 2)])


def test_an_entry_that_decompresses_to_more_than_it_says_is_left_to_amqp() -> None:
    bomb = gzip.compress(bytes(10_000_000))
    with pytest.raises(UnsupportedChunk, match="more than 10"):
        decode_chunks([chunk([packed([b"a", b"b"], GZIP, bomb)], 2)])


@pytest.mark.parametrize("how", [GZIP, SNAPPY, LZ4, ZSTD])
def test_an_entry_that_says_it_is_huge_is_not_made_room_for(how: int) -> None:
    huge = pack(">BHII", 0x80 | how << 4, 2, 4_000_000_000, 4) + b"tiny"
    with pytest.raises(UnsupportedChunk, match="more than 134,217,728 bytes"):
        decode_chunks([chunk([huge], 2)])
