"""The chunk: the unit of writing, checking and reading in a segment.

A chunk is columnar, so that a range of a log becomes Arrow without touching each message. Numbers
are little-endian, and every column is padded to a multiple of eight bytes.

    header  64 bytes  magic "PSCK", crc32 of the 56 bytes after this field, version u16, header
                      length u16, payload crc32, payload length, count, base offset i64, oldest and
                      newest timestamp i64 (ms), routes, route bytes, header bytes, body bytes
    payload           timestamps     i64[count]
                      flags          u8[count]     of the log, such as SPOOLED
                      message flags  u8[count]     as in the contract
                      route index    i32[count]    into the distinct routes of the chunk
                      routes         i32[routes + 1] offsets, then bytes
                      headers        i32[count + 1] offsets, then bytes
                      bodies         i32[count + 1] offsets, then bytes

A message with a spooled body is flagged SPOOLED, and its offset, eight bytes, stands for the body:
`BodyFiles` finds the file by it. The owner of the log ensures that other bodies are small, as a
chunk addresses its bytes with 32 bits.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from mmap import mmap
from typing import Final, NamedTuple
from zlib import crc32

from penstock.broker.contract import Message
from penstock.core.errors import CorruptChunk

if sys.byteorder != "little":  # columns are copied as they are in memory
    raise ImportError("the log's format needs a little-endian machine")

CHUNK_MAGIC: Final = b"PSCK"
VERSION: Final = 1
HEADER_BYTES: Final = 64
#: Record flag: the body is the offset of a spooled message.
SPOOLED: Final = 128
#: The size limit of a chunk: large enough for one write, small enough to be read and checked
#: quickly.
CHUNK_BYTES: Final = 1 << 20
#: The least size of a message: its share of the fixed columns.
SMALLEST_MESSAGE: Final = 22

_SEAL = struct.Struct("<4sI")
_FIELDS = struct.Struct("<HHIIIqqqIIII")
_INTEGER = struct.Struct("<q")
_PADDING: Final = tuple(bytes(n) for n in (0, 7, 6, 5, 4, 3, 2, 1))


class ChunkHeader(NamedTuple):
    payload_crc: int
    payload_bytes: int
    rows: int
    base: int
    oldest: int
    newest: int
    routes: int
    route_bytes: int
    header_bytes: int
    body_bytes: int

    @property
    def end(self) -> int:
        return self.base + self.rows

    @property
    def file_bytes(self) -> int:
        return HEADER_BYTES + self.payload_bytes


class ChunkColumns(NamedTuple):
    """The offset of each column in the payload."""

    timestamps: int
    flags: int
    message_flags: int
    route_index: int
    route_offsets: int
    route_blob: int
    header_offsets: int
    header_blob: int
    body_offsets: int
    body_blob: int
    end: int


def chunk_columns(header: ChunkHeader) -> ChunkColumns:
    n = header.rows
    offsets = (4 * n + 11) & -8
    flags = 8 * n
    message_flags = flags + ((n + 7) & -8)
    route_index = message_flags + ((n + 7) & -8)
    route_offsets = route_index + ((4 * n + 7) & -8)
    route_blob = route_offsets + ((4 * header.routes + 11) & -8)
    header_offsets = route_blob + ((header.route_bytes + 7) & -8)
    header_blob = header_offsets + offsets
    body_offsets = header_blob + ((header.header_bytes + 7) & -8)
    body_blob = body_offsets + offsets
    end = body_blob + ((header.body_bytes + 7) & -8)
    return ChunkColumns(0, flags, message_flags, route_index, route_offsets, route_blob,
                   header_offsets, header_blob, body_offsets, body_blob, end)  # fmt: skip


class Chunk:
    """A valid chunk; messages are decoded on demand."""

    __slots__ = ("_messages", "base", "columns", "count", "end", "header", "payload")

    def __init__(
        self, header: ChunkHeader, payload: bytes, messages: list[Message] | None = None
    ) -> None:
        self.header = header
        self.payload = payload
        self.base = header.base
        self.count = header.rows
        self.end = header.end
        self.columns = chunk_columns(header)
        self._messages = messages

    @property
    def timestamps(self) -> list[int]:
        return memoryview(self.payload)[: 8 * self.count].cast("q").tolist()

    @property
    def flags(self) -> bytes:
        at = self.columns.flags
        return self.payload[at : at + self.count]

    def messages(self, start: int = 0) -> list[Message]:
        """The messages from the `start`-th on. Readers share them and must not change them."""
        messages = self._messages
        if messages is None:
            messages = self._messages = self._decode()
        return messages[start:] if start else messages

    def _decode(self) -> list[Message]:
        header, at, count = self.header, self.columns, self.count
        routes = list(self._blobs(header.routes, at.route_offsets, at.route_blob))
        index = self._integers(at.route_index, count)
        headers = self._blobs(count, at.header_offsets, at.header_blob)
        bodies = self._blobs(count, at.body_offsets, at.body_blob)
        flags = self.payload[at.message_flags : at.message_flags + count]
        return [
            Message(routes[route], content, body, flag)
            for route, content, body, flag in zip(index, headers, bodies, flags, strict=True)
        ]

    def _integers(self, at: int, count: int) -> list[int]:
        return memoryview(self.payload)[at : at + 4 * count].cast("i").tolist()

    def _blobs(self, count: int, offsets_at: int, blob_at: int) -> Iterator[bytes]:
        offsets = self._integers(offsets_at, count + 1)
        blob = self.payload[blob_at : blob_at + offsets[-1]]
        return (blob[a:b] for a, b in pairwise(offsets))


def encode_chunk(
    base: int, timestamp: int, messages: Sequence[Message], flags: Mapping[int, int]
) -> Chunk:
    """`flags` holds nonzero record flags by offset."""
    count = len(messages)
    bodies = [message.body for message in messages]
    headers = [message.header for message in messages]
    routes = [message.route for message in messages]
    marks = bytearray(count)
    for offset, flag in flags.items():
        if base <= offset < base + count:
            marks[offset - base] = flag
    whole: list[Message] | None = list(messages)
    if [message.spool for message in messages].count(None) != count:
        whole = None  # readers get the offset, not the message that was appended
        for i, message in enumerate(messages):
            if message.spool is not None:
                bodies[i] = _INTEGER.pack(base + i)
                marks[i] |= SPOOLED
    index = {route: i for i, route in enumerate(dict.fromkeys(routes))}
    route_index = (
        array("i", map(index.__getitem__, routes)).tobytes() if len(index) > 1 else bytes(4 * count)
    )
    route_offsets = array("i", accumulate(map(len, index), initial=0))
    header_offsets = array("i", accumulate(map(len, headers), initial=0))
    body_offsets = array("i", accumulate(map(len, bodies), initial=0))
    route_bytes, header_bytes, body_bytes = route_offsets[-1], header_offsets[-1], body_offsets[-1]
    byte_pad, index_pad = _PADDING[count & 7], _PADDING[4 * count & 7]
    offsets_pad = _PADDING[4 * (count + 1) & 7]
    payload = b"".join(
        (_INTEGER.pack(timestamp) * count, marks, byte_pad,
         bytes([message.flags for message in messages]), byte_pad, route_index, index_pad,
         route_offsets, _PADDING[4 * (len(index) + 1) & 7], *index, _PADDING[route_bytes & 7],
         header_offsets, offsets_pad, *headers, _PADDING[header_bytes & 7],
         body_offsets, offsets_pad, *bodies, _PADDING[body_bytes & 7])
    )  # fmt: skip
    header = ChunkHeader(
        crc32(payload), len(payload), count, base, timestamp, timestamp,
        len(index), route_bytes, header_bytes, body_bytes,
    )  # fmt: skip
    return Chunk(header, payload, whole)


def encode_chunk_header(header: ChunkHeader) -> bytes:
    fields = _FIELDS.pack(VERSION, HEADER_BYTES, *header)
    return _SEAL.pack(CHUNK_MAGIC, crc32(fields)) + fields


def decode_chunk_header(data: bytes | mmap, at: int = 0) -> ChunkHeader | None:
    """The header at that position, or None if there is no valid one."""
    raw = data[at : at + HEADER_BYTES]
    if len(raw) < HEADER_BYTES:
        return None
    magic, seal = _SEAL.unpack_from(raw)
    if magic != CHUNK_MAGIC or seal != crc32(raw[_SEAL.size :]):
        return None
    version, length, *fields = _FIELDS.unpack_from(raw, _SEAL.size)
    if version != VERSION or length != HEADER_BYTES:
        return None
    header = ChunkHeader(*fields)
    return header if header.rows and chunk_columns(header).end == header.payload_bytes else None


def decode_chunk(data: bytes) -> Chunk:
    """The chunk at the start of `data`; raises CorruptChunk."""
    header = decode_chunk_header(data)
    if header is None:
        raise CorruptChunk("damaged chunk header")
    payload = data[HEADER_BYTES : header.file_bytes]
    if len(payload) != header.payload_bytes or crc32(payload) != header.payload_crc:
        raise CorruptChunk(corrupt_chunk(header))
    return Chunk(header, payload)


def corrupt_chunk(header: ChunkHeader) -> str:
    return f"damaged chunk with offsets {header.base} to {header.end - 1}"
