"""Chunks of a stream, as RabbitMQ keeps them: where the messages in one lie.

A chunk is a header and entries. Most entries are messages, each behind its size; a publisher may
also have packed many into one entry, compressed or not. Chunks of other kinds are the broker's own
notes and hold no messages.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from struct import Struct
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from penstock.core.compression import inflate
from penstock.core.errors import ContentTooLarge, FrameError
from penstock.core.units import MiB
from penstock.pipeline.amqp.octets import Places

_HEADER: Final = Struct(">BBHIqQQIIII")
_MAGIC: Final = 5
_MESSAGES: Final = 0
_SIZE: Final = Struct(">I")
_PACKED: Final = 1 << 31
#: How an entry of many is packed, how many it holds, their size before and after.
_PACK: Final = Struct(">BHII")
_GZIP: Final = 1
#: Of the packed entries of a chunk, decompressed. A publisher says how large they are.
CHUNK_BYTES: Final = 128 * MiB
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


class _Header(NamedTuple):
    """What is said of a chunk before its entries."""

    magic: int  #: and the version
    kind: int
    entries: int
    records: int
    moment: int
    epoch: int
    first: int
    checksum: int
    size: int
    trailer: int
    reserved: int


def _header(content: bytes) -> _Header:
    if len(content) < _HEADER.size:
        raise FrameError(f"a chunk of {len(content)} bytes")
    found = _Header._make(_HEADER.unpack_from(content))
    if found.magic >> 4 != _MAGIC:
        raise FrameError(f"a chunk that begins with 0x{found.magic:02x}")
    return found


def extent(content: bytes) -> range:
    """The offsets of what a chunk holds."""
    header = _header(content)
    return range(header.first, header.first + header.records)


def read_chunks(contents: Iterable[bytes]) -> Block | None:
    """The messages of chunks that follow one another; None if there are none.

    A stream that was written slowly has few messages in a chunk: what is done for each is little.
    """
    read = [each for content in contents if (each := _read(content)) is not None]
    if not read:
        return None
    counts = np.array([len(each.stops) for each in read])
    before = np.cumsum(counts) - counts
    sizes = np.array([len(each.content) for each in read])
    bases = np.cumsum(sizes) - sizes
    stops = np.fromiter(chain.from_iterable(each.stops for each in read), np.int64, counts.sum())
    stops += np.repeat(bases, counts)
    starts = np.empty_like(stops)
    starts[1:] = stops[:-1] + _SIZE.size
    starts[before] = bases + _HEADER.size + _SIZE.size
    firsts = np.array([each.first for each in read])
    return Block(
        np.repeat(firsts - before, counts) + np.arange(len(stops)),
        np.repeat(np.array([each.moment for each in read]), counts),
        b"".join(each.content for each in read),
        starts,
        stops,
    )


class _Chunk(NamedTuple):
    """A chunk whose entries are single messages, and where in it each of them ends."""

    first: int
    moment: int
    content: bytes
    stops: list[int]


def _read(content: bytes) -> _Chunk | None:
    """None if the chunk is one of the broker's own, or empty."""
    header = _header(content)
    first, entries, records = header.first, header.entries, header.records
    if header.kind != _MESSAGES or not records:
        return None
    end = _HEADER.size + header.size
    data = memoryview(content)[_HEADER.size : end]
    if len(data) != header.size or zlib.crc32(data) != header.checksum:
        raise ConnectionResetError(f"the chunk at offset {first} came damaged")
    stops = _stops(content, end, entries) if entries == records else None
    if stops is None:
        content = content[: _HEADER.size] + b"".join(_unpacked(bytes(data), entries))
        stops = _stops(content, len(content), records)
    if stops is None:
        raise FrameError(f"the chunk at offset {first} does not hold its {records} messages")
    return _Chunk(first, header.moment, content, stops)


def _stops(content: bytes, end: int, count: int) -> list[int] | None:
    """Where each message ends; None if there are packed entries."""
    at, unpack = _HEADER.size, _SIZE.unpack_from
    stops = []
    for _ in range(count):
        if at + _SIZE.size > end:
            return None
        at += _SIZE.size + unpack(content, at)[0]
        stops.append(at)  # far behind the end, if the entry is a packed one
    return stops if at == end else None


def _unpacked(data: bytes, count: int) -> Iterator[bytes]:
    """The same with all messages behind their sizes."""
    at, left = 0, CHUNK_BYTES
    for _ in range(count):
        word = _SIZE.unpack_from(data, at)[0] if at + 4 <= len(data) else 0
        if not word & _PACKED:
            yield data[at : at + 4 + word]
            at += 4 + word
            continue
        how, _, plain_size, size = _PACK.unpack_from(data, at)
        at += _PACK.size
        left -= plain_size
        if left < 0:
            raise Unusual(f"a chunk that is packed from more than {CHUNK_BYTES:,} bytes")
        yield _decompressed(data[at : at + size], how >> 4 & 0x07, plain_size)
        at += size


def _decompressed(data: bytes, how: int, size: int) -> bytes:
    if how == 0:
        return data
    try:
        if how == _GZIP:
            return inflate(data, size, zlib.MAX_WBITS | 16)
        codec = _CODECS[how]
        return bytes(pa.decompress(data, size, codec, asbytes=True))
    except (KeyError, ValueError, OSError, ContentTooLarge, zlib.error) as error:
        raise Unusual(f"entries packed in way {how}: {error}") from None
