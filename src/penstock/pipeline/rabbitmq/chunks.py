"""Chunks of a stream, as RabbitMQ keeps them: where the messages in one lie.

A chunk is a header and entries. Most entries are messages, each behind its size; a publisher may
also have packed many into one entry, compressed or not. Chunks of other kinds are the broker's own
notes and hold no messages.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.core.errors import FrameError
from penstock.pipeline.amqp.octets import Places

_HEADER: Final = Struct(">BBHIqQQIIII")
_MAGIC: Final = 5
_MESSAGES: Final = 0
_SIZE: Final = Struct(">I")
_PACKED: Final = 1 << 31
#: How an entry of many is packed, how many it holds, their size before and after.
_PACK: Final = Struct(">BHII")
_GZIP: Final = 1
_CODECS: Final = {2: "snappy", 3: "lz4", 4: "zstd"}


class Unusual(Exception):
    """Something that is rarely done and not read here; AMQP shows it."""


@dataclass(frozen=True, slots=True)
class Block:
    """Messages of one or more chunks: of each its offset, when it came, and where it lies."""

    offsets: Places
    moments_ms: Places
    data: bytes
    starts: Places
    stops: Places

    def __len__(self) -> int:
        return len(self.starts)


def join(blocks: Sequence[Block]) -> Block:
    """One block with the messages of all; there is at least one."""
    if len(blocks) == 1:
        return blocks[0]
    sizes = np.array([len(each.data) for each in blocks])
    moved = np.repeat(np.cumsum(sizes) - sizes, [len(each) for each in blocks])
    return Block(
        np.concatenate([each.offsets for each in blocks]),
        np.concatenate([each.moments_ms for each in blocks]),
        b"".join(each.data for each in blocks),
        np.concatenate([each.starts for each in blocks]) + moved,
        np.concatenate([each.stops for each in blocks]) + moved,
    )


def read_chunk(content: bytes) -> Block | None:
    """The messages of a chunk; none if it is one of the broker's own."""
    if len(content) < _HEADER.size:
        raise FrameError(f"a chunk of {len(content)} bytes")
    magic, kind, entries, records, moment, _, first, checksum, size, _, _ = _HEADER.unpack_from(
        content
    )
    if magic >> 4 != _MAGIC:
        raise FrameError(f"a chunk that begins with 0x{magic:02x}")
    if kind != _MESSAGES:
        return None
    data = content[_HEADER.size : _HEADER.size + size]
    if len(data) != size or zlib.crc32(data) != checksum:
        raise ConnectionResetError(f"the chunk at offset {first} came damaged")
    places = _plain(data, entries) if entries == records else None
    if places is None:
        data = b"".join(_unpacked(data, entries))
        places = _plain(data, records)
    if places is None:
        raise FrameError(f"the chunk at offset {first} does not hold its {records} messages")
    starts, stops = places
    offsets = np.arange(first, first + records)
    return Block(offsets, np.full(records, moment), data, starts, stops)


def _plain(data: bytes, count: int) -> tuple[Places, Places] | None:
    """Where each message begins and ends; None if there are packed entries."""
    at, end, unpack = 0, len(data), _SIZE.unpack_from
    stops = []
    for _ in range(count):
        if at + 4 > end:
            return None
        at += 4 + unpack(data, at)[0]
        stops.append(at)  # far behind the end, if the entry is a packed one
    if at != end:
        return None
    found = np.array(stops, np.int64)
    starts = np.empty(count, np.int64)
    starts[:1], starts[1:] = 4, found[:-1] + 4
    return starts, found


def _unpacked(data: bytes, count: int) -> Iterator[bytes]:
    """The same with all messages behind their sizes."""
    at = 0
    for _ in range(count):
        word = _SIZE.unpack_from(data, at)[0] if at + 4 <= len(data) else 0
        if not word & _PACKED:
            yield data[at : at + 4 + word]
            at += 4 + word
            continue
        how, _, plain_size, size = _PACK.unpack_from(data, at)
        at += _PACK.size
        yield _decompressed(data[at : at + size], how >> 4 & 0x07, plain_size)
        at += size


def _decompressed(data: bytes, how: int, size: int) -> bytes:
    if how == 0:
        return data
    try:
        if how == _GZIP:
            return zlib.decompress(data, zlib.MAX_WBITS | 16)
        codec = _CODECS[how]
        return bytes(pa.decompress(data, size, codec, asbytes=True))
    except (KeyError, ValueError, OSError, zlib.error) as error:
        raise Unusual(f"entries packed in way {how}: {error}") from None
