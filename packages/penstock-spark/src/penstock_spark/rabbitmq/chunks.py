"""Chunks of a RabbitMQ stream: the positions of their messages, and their translation.

A chunk is a header and entries. Most entries are messages with their sizes; a publisher may also
have packed many into one entry, with or without compression. Chunks of other types have no
messages.

RabbitMQ stores a message that was published over AMQP 0-9-1 as AMQP 1.0: exchange and routing key
as annotations, properties and headers in their sections, the body as data. The sections before the
body are the *head*. A stream has few distinct heads, so each is translated once and messages are
not touched one by one. The result is what the broker sends to a consumer over AMQP 0-9-1.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from struct import Struct
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.core.basic_properties import HEADER_PREFIX, SHORTSTR_MAX
from penstock.core.compression import decompress
from penstock.core.errors import ContentTooLarge, FrameError
from penstock.core.units import MiB
from penstock.wire.amqp10.codec import decode_whole
from penstock.wire.amqp10.errors import DecodeError
from penstock.wire.amqp10.message import (
    DATA,
    HEADER,
    Amqp10Properties,
    MessageHead,
    decode_properties_section,
    read_head,
)
from penstock.wire.amqp10.values import Timestamp
from penstock_spark.streams.backend import RECORD_SCHEMA, StreamRange
from penstock_spark.streams.byte_array import ByteArray, Indices

_HEADER: Final = Struct(">BBHIqQQIIII")
_MAGIC: Final = 5
_MESSAGES: Final = 0
_SIZE: Final = Struct(">I")
_SUB_BATCH_BIT: Final = 1 << 31
#: A sub-batch: compression, number of messages, size before and after compression.
_SUB_BATCH: Final = Struct(">BHII")
_GZIP: Final = 1
#: The limit of the decompressed entries of a chunk, whose size the publisher states.
MAX_CHUNK_BYTES: Final = 128 * MiB
_CODECS: Final = {2: "snappy", 3: "lz4", 4: "zstd"}


class UnsupportedChunk(Exception):
    """A rare form that is not read here but over AMQP."""


@dataclass(frozen=True, slots=True)
class MessageBlock:
    """Messages of one or more chunks: their offsets, times and positions."""

    offsets: Indices
    moments_ms: Indices
    data: bytes
    starts: Indices
    stops: Indices

    def __len__(self) -> int:
        return len(self.starts)


class _Header(NamedTuple):
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
        raise FrameError(f"chunk of {len(content)} bytes is too short")
    found = _Header._make(_HEADER.unpack_from(content))
    if found.magic >> 4 != _MAGIC:
        raise FrameError(f"chunk with magic 0x{found.magic:02x}")
    return found


def chunk_offsets(content: bytes) -> range:
    header = _header(content)
    return range(header.first, header.first + header.records)


def decode_chunks(contents: Iterable[bytes]) -> MessageBlock | None:
    """The messages of consecutive chunks; None if there are none.

    A stream that was written slowly has few messages per chunk, so little is done per chunk.
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
    return MessageBlock(
        np.repeat(firsts - before, counts) + np.arange(len(stops)),
        np.repeat(np.array([each.moment for each in read]), counts),
        b"".join(each.content for each in read),
        starts,
        stops,
    )


class _Chunk(NamedTuple):
    """A chunk of single messages, and where each of them ends."""

    first: int
    moment: int
    content: bytes
    stops: list[int]


def _read(content: bytes) -> _Chunk | None:
    """None if the chunk has no messages."""
    header = _header(content)
    first, entries, records = header.first, header.entries, header.records
    if header.kind != _MESSAGES or not records:
        return None
    end = _HEADER.size + header.size
    data = memoryview(content)[_HEADER.size : end]
    if len(data) != header.size or zlib.crc32(data) != header.checksum:
        raise ConnectionResetError(f"checksum error in the chunk at offset {first}")
    stops = _stops(content, end, entries) if entries == records else None
    if stops is None:
        content = content[: _HEADER.size] + b"".join(_expanded_sub_batches(bytes(data), entries))
        stops = _stops(content, len(content), records)
    if stops is None:
        raise FrameError(f"the chunk at offset {first} does not contain its {records} messages")
    return _Chunk(first, header.moment, content, stops)


def _stops(content: bytes, end: int, count: int) -> list[int] | None:
    """Where each message ends; None if there are sub-batches."""
    at, unpack = _HEADER.size, _SIZE.unpack_from
    stops = []
    for _ in range(count):
        if at + _SIZE.size > end:
            return None
        at += _SIZE.size + unpack(content, at)[0]
        stops.append(at)  # far beyond the end for a sub-batch
    return stops if at == end else None


def _expanded_sub_batches(data: bytes, count: int) -> Iterator[bytes]:
    """The entries with sub-batches replaced by their messages."""
    at, left = 0, MAX_CHUNK_BYTES
    for _ in range(count):
        word = _SIZE.unpack_from(data, at)[0] if at + 4 <= len(data) else 0
        if not word & _SUB_BATCH_BIT:
            yield data[at : at + 4 + word]
            at += 4 + word
            continue
        how, _, plain_size, size = _SUB_BATCH.unpack_from(data, at)
        at += _SUB_BATCH.size
        left -= plain_size
        if left < 0:
            raise UnsupportedChunk(
                f"chunk of more than {MAX_CHUNK_BYTES:,} bytes before compression"
            )
        yield _decompressed(data[at : at + size], how >> 4 & 0x07, plain_size)
        at += size


def _decompressed(data: bytes, how: int, size: int) -> bytes:
    if how == 0:
        return data
    try:
        if how == _GZIP:
            return decompress(data, size, zlib.MAX_WBITS | 16)
        codec = _CODECS[how]
        return bytes(pa.decompress(data, size, codec, asbytes=True))
    except (KeyError, ValueError, OSError, ContentTooLarge, zlib.error) as error:
        raise UnsupportedChunk(f"sub-batch with compression {how}: {error}") from None


#: The largest number of sections before the body.
_SECTIONS: Final = 5
#: The prefix of a section: described value, small ulong.
_DESCRIBED: Final = 0x0053
#: Constructors with a size of one byte, of four bytes, and without a size.
_SMALL: Final = np.isin(np.arange(256), (0xA0, 0xC0, 0xC1))
_LARGE: Final = np.isin(np.arange(256), (0xB0, 0xD0, 0xD1))
_NOTHING: Final = 0x45
_LONG: Final = Struct(">q")
_DOUBLE: Final = Struct(">d")
_CACHED_HEADS: Final = 16_384
#: Allows reading a size after the last message.
_MARGIN: Final = bytes(8)


def record_batch(block: MessageBlock, wanted: StreamRange) -> pa.RecordBatch | None:
    """The messages of a block in the range; None if there are none.

    Raises `UnsupportedChunk` for a message that cannot be translated to AMQP 0-9-1.
    """
    first, last = np.searchsorted(block.offsets, (wanted.start, wanted.stop))
    if first >= last:
        return None
    starts, stops = block.starts[first:last], block.stops[first:last]
    heads, bodies = _bodies(ByteArray(block.data + _MARGIN), starts, stops)
    encoded = _binary(block.data, starts, heads).dictionary_encode()
    found = [_cached_translation(head) for head in encoded.dictionary.to_pylist()]
    columns = [
        pa.array(block.offsets[first:last]),
        pa.array(block.moments_ms[first:last]).cast(RECORD_SCHEMA.field("timestamp").type),
        _dictionary_column(encoded.indices, [each.exchange for each in found]),
        _dictionary_column(encoded.indices, [each.routing_key for each in found]),
        _properties(encoded.indices, [each.properties for each in found], stops - bodies),
        _binary(block.data, bodies, stops),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def _bodies(octets: ByteArray, starts: Indices, stops: Indices) -> tuple[Indices, Indices]:
    """Where the head of each message ends and its body begins."""
    u8, u16 = octets.u8, octets.u16
    at = starts
    for _ in range(_SECTIONS):
        kind = u8[at + 2]
        head = (u16[at] == _DESCRIBED) & (kind >= HEADER) & (kind < DATA)
        if not head.any():
            break
        at = np.where(head, np.minimum(_ends(octets, at), stops), at)
    if ((u16[at] != _DESCRIBED) | (u8[at + 2] != DATA)).any():
        raise UnsupportedChunk("body is not a data section")
    if (_ends(octets, at) != stops).any():
        raise UnsupportedChunk("body of several sections")
    return at, at + np.where(_SMALL[u8[at + 3]], 5, 8)


def _ends(octets: ByteArray, at: Indices) -> Indices:
    """Where the sections at these positions end; -1 for an unknown constructor."""
    form = octets.u8[at + 3]
    small = at + 5 + octets.u8[at + 4].astype(np.int64)
    large = at + 8 + octets.u32[at + 4].astype(np.int64)
    return np.select(
        [_SMALL[form], _LARGE[form], form == _NOTHING], [small, large, at + 4], default=-1
    )


def _binary(data: bytes, starts: Indices, stops: Indices) -> pa.Array:
    """The bytes between these positions: every second value of one array."""
    positions = np.empty(len(starts) * 2, np.int32)
    positions[0::2], positions[1::2] = starts, stops
    buffers = [None, pa.py_buffer(positions), pa.py_buffer(data)]
    alternating = pa.Array.from_buffers(pa.binary(), len(positions) - 1, buffers)
    return alternating.take(pa.array(np.arange(len(starts)) * 2))


def _dictionary_column(indices: pa.Array, words: list[str]) -> pa.Array:
    """Different heads may have the same text."""
    found = pa.array(words, pa.string()).dictionary_encode()
    return pa.DictionaryArray.from_arrays(found.indices.take(indices), found.dictionary)


def _properties(indices: pa.Array, found: list[bytes], sizes: Indices) -> pa.Array:
    """The content headers, with the size of the body inserted."""
    size = sizes.astype(">i8").view(np.uint8)
    positions = np.arange(0, len(sizes) * 8 + 1, 8, dtype=np.int32)
    buffers = [None, pa.py_buffer(positions), pa.py_buffer(size)]
    numbers = pa.Array.from_buffers(pa.binary(), len(sizes), buffers)
    behind = pa.array(found, pa.binary()).take(indices)
    return pc.binary_join_element_wise(pa.scalar(HEADER_PREFIX, pa.binary()), numbers, behind, b"")


@dataclass(frozen=True, slots=True)
class _AmqpMessage:
    exchange: str
    routing_key: str
    properties: bytes  #: the content header of AMQP 0-9-1 from its flags on


@lru_cache(_CACHED_HEADS)
def _cached_translation(head: bytes) -> _AmqpMessage:
    try:
        sections = read_head(head)
        assert sections is not None  # it is complete
        return _translate(sections)
    except DecodeError as error:
        raise UnsupportedChunk(f"invalid message: {error}") from None


def _translate(head: MessageHead) -> _AmqpMessage:
    annotations = decode_whole(head.message_annotations) if head.message_annotations else {}
    values = decode_whole(head.application_properties) if head.application_properties else {}
    properties = (
        decode_properties_section(head.properties) if head.properties else Amqp10Properties()
    )
    kind, application = values.pop("x-basic-type", None), values.pop("x-basic-app-id", None)
    user = None if properties.user_id is None else properties.user_id.decode("utf-8", "replace")
    # In the order of the flags, from the highest bit down.
    fields = (
        _short(properties.content_type),
        _short(properties.content_encoding),
        _table(values) if values else None,
        _octet(annotations.get("x-basic-delivery-mode")),
        _octet(annotations.get("x-basic-priority")),
        _short(properties.correlation_id),
        _short(properties.reply_to),
        _short(annotations.get("x-basic-expiration")),
        _short(properties.message_id),
        None if properties.creation_time is None else _LONG.pack(properties.creation_time // 1000),
        _short(kind),
        _short(user),
        _short(application),
    )
    flags = sum(0x8000 >> index for index, field in enumerate(fields) if field is not None)
    header = flags.to_bytes(2, "big") + b"".join(filter(None, fields))
    return _AmqpMessage(
        str(annotations.get("x-exchange", "")), str(annotations.get("x-routing-key", "")), header
    )


def _table(values: Mapping[Any, Any]) -> bytes:
    named = sorted(
        ((str(name), value) for name, value in values.items()), key=itemgetter(0)
    )  # as RabbitMQ has them
    entries = b"".join(_required(name) + _field(value) for name, value in named)
    return len(entries).to_bytes(4, "big") + entries


def _field(value: Any) -> bytes:
    """A header value as a field of AMQP 0-9-1, with the types that RabbitMQ uses."""
    match value:
        case None:
            return b"V"
        case bool():
            return b"t" + value.to_bytes(1, "big")
        case bytes():
            return b"x" + len(value).to_bytes(4, "big") + value
        case Timestamp():
            return b"T" + _LONG.pack(value // 1000)
        case str():
            content = value.encode()
            return b"S" + len(content).to_bytes(4, "big") + content
        case int() if -(1 << 63) <= value < 1 << 63:
            return b"l" + _LONG.pack(value)
        case float():
            return b"d" + _DOUBLE.pack(value)
    raise UnsupportedChunk(f"header of type {type(value).__name__}")


def _short(value: Any) -> bytes | None:
    return None if value is None else _required(value)


def _required(value: Any) -> bytes:
    if not isinstance(value, str) or len(content := value.encode()) > SHORTSTR_MAX:
        raise UnsupportedChunk(f"{type(value).__name__} instead of a short string")
    return bytes((len(content),)) + content


def _octet(value: Any) -> bytes | None:
    return None if value is None else bytes((value,))
