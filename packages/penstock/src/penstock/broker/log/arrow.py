"""Ranges of a log as Arrow record batches, without touching each message in Python.

A chunk's columns have Arrow's layout, so a large chunk becomes a batch that points at its bytes.
Small chunks are joined column by column. Only distinct routes are split, with NumPy, once per
batch. A spooled body becomes a batch of its own, so that one large body is in memory at a time.

Every batch has its own dictionaries, which the IPC stream format allows. This is the only module of
the room that needs pyarrow. A batch takes a few milliseconds; the caller serves others between
batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import IO, Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.broker.log.chunk import SPOOLED, Chunk
from penstock.broker.log.log import Log
from penstock.core.errors import ContentTooLarge

Array = NDArray[Any]

#: Fewer rows are joined with the next chunk, …
BATCH_ROWS: Final = 16_384
#: … unless they have this many bytes.
BATCH_BYTES: Final = 16 << 20

#: The limit of 32-bit offsets.
MAX_BODY_BYTES: Final = (1 << 31) - 1

_TEXT = pa.dictionary(pa.int32(), pa.string())

ARROW_SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("exchange", _TEXT),
        ("routing_key", _TEXT),
        ("properties", pa.binary()),
        ("body", pa.binary()),
    ]
)


def record_batches(
    log: Log, start: int, stop: int, load: Callable[[int], bytes] | None = None
) -> Iterator[pa.RecordBatch]:
    """The messages from `start` to before `stop`; `load` reads a spooled body by its offset."""
    gathered: list[Chunk] = []
    rows = size = 0
    for chunk in log.chunks(start, stop):
        gathered.append(chunk)
        rows += chunk.count
        size += len(chunk.payload)
        if rows >= BATCH_ROWS or size >= BATCH_BYTES:
            yield from _resolved(gathered, start, stop, load)
            gathered = []
            rows = size = 0
    if gathered:
        yield from _resolved(gathered, start, stop, load)


def write_ipc(source: Iterable[pa.RecordBatch], sink: IO[bytes] | pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, ARROW_SCHEMA) as writer:
        for batch in source:
            writer.write_batch(batch)


def _resolved(
    chunks: list[Chunk], start: int, stop: int, load: Callable[[int], bytes] | None
) -> Iterator[pa.RecordBatch]:
    """The chunks as a batch, split at spooled bodies."""
    batch = _batch(chunks)
    first = max(start - chunks[0].base, 0)  # only the outer chunks can exceed the range
    last = batch.num_rows - max(chunks[-1].end - stop, 0)
    flags = _column(chunks, "flags", np.uint8, 1)
    for row in (np.flatnonzero(flags[first:last] & SPOOLED) + first).tolist():
        if row > first:
            yield batch.slice(first, row - first)
        yield _with_body(batch.slice(row, 1), load)
        first = row + 1
    if last > first:
        yield batch.slice(first, last - first)


def _with_body(row: pa.RecordBatch, load: Callable[[int], bytes] | None) -> pa.RecordBatch:
    offset = row.column("offset")[0].as_py()
    body = None if load is None else load(offset)
    if body is not None and len(body) > MAX_BODY_BYTES:
        raise ContentTooLarge(f"the body at offset {offset} is too large for an Arrow column")
    return row.set_column(
        ARROW_SCHEMA.get_field_index("body"), "body", pa.array([body], pa.binary())
    )


def _batch(chunks: list[Chunk]) -> pa.RecordBatch:
    counts = np.array([chunk.count for chunk in chunks])
    starts = np.cumsum(counts) - counts
    bases = np.array([chunk.base for chunk in chunks])
    rows = int(counts.sum())
    exchange, routing_key = _routes(chunks, counts)
    return pa.RecordBatch.from_arrays(
        [
            pa.array(np.arange(rows) + np.repeat(bases - starts, counts)),
            _fixed(
                ARROW_SCHEMA.field("timestamp").type, _column(chunks, "timestamps", np.int64, 8)
            ),
            exchange,
            routing_key,
            _binary(chunks, counts, "header"),
            _binary(chunks, counts, "body"),
        ],
        schema=ARROW_SCHEMA,
    )


def _fixed(kind: pa.DataType, values: Array) -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def _pieces(pieces: list[memoryview]) -> bytes | memoryview:
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _column(chunks: list[Chunk], name: str, kind: type[np.generic], width: int) -> Array:
    pieces = []
    for chunk in chunks:
        at = getattr(chunk.columns, name)
        pieces.append(memoryview(chunk.payload)[at : at + width * chunk.count])
    return np.frombuffer(_pieces(pieces), kind)


def _binary(chunks: list[Chunk], counts: Array, name: str) -> pa.Array:
    """A binary column, with `counts` values in each chunk."""
    offsets, blobs = [], []
    for chunk, count in zip(chunks, counts.tolist(), strict=True):
        view = memoryview(chunk.payload)
        at = getattr(chunk.columns, f"{name}_offsets")
        offsets.append(view[at : at + 4 * count + 4])
        at = getattr(chunk.columns, f"{name}_blob")
        blobs.append(view[at : at + getattr(chunk.header, f"{name}_bytes")])
    joined = np.frombuffer(_pieces(offsets), np.int32)
    if len(chunks) > 1:
        # Offsets of each chunk begin at zero: shift them, and drop all first ones but one.
        sizes = np.array([len(blob) for blob in blobs], np.int32)
        shifted = joined + np.repeat(np.cumsum(sizes) - sizes, counts + 1).astype(np.int32)
        joined = np.delete(shifted, np.cumsum(counts[:-1] + 1))
    buffers = [None, pa.py_buffer(joined), pa.py_buffer(_pieces(blobs))]
    return pa.Array.from_buffers(pa.binary(), len(joined) - 1, buffers)


def _routes(chunks: list[Chunk], counts: Array) -> tuple[pa.Array, pa.Array]:
    """Exchange and routing key of each message, dictionary-encoded."""
    listed = np.array([chunk.header.routes for chunk in chunks])
    index = _column(chunks, "route_index", np.int32, 4)
    if len(chunks) > 1:
        index = index + np.repeat(np.cumsum(listed) - listed, counts).astype(np.int32)
    # Chunks mostly have the same routes: split each once.
    routes = _binary(chunks, listed, "route").dictionary_encode()
    index = routes.indices.to_numpy()[index]
    exchanges, routing_keys = _split_routes(routes.dictionary)
    return _lookup(exchanges, index), _lookup(routing_keys, index)


def _lookup(text: pa.Array, index: Array) -> pa.DictionaryArray:
    """The text of each index, with every text once in the dictionary."""
    encoded = text.dictionary_encode()
    codes = encoded.indices.to_numpy()
    return pa.DictionaryArray.from_arrays(pa.array(codes[index]), encoded.dictionary)


def _split_routes(routes: pa.Array) -> tuple[pa.Array, pa.Array]:
    _, ends, blob = routes.buffers()
    offsets = np.frombuffer(ends, np.int32)[: len(routes) + 1]
    octets = np.frombuffer(blob, np.uint8)
    starts, stops = offsets[:-1], offsets[1:]
    exchange_bytes = octets[starts].astype(np.int32)
    key_starts = starts + exchange_bytes + 2
    return _text(octets, starts + 1, exchange_bytes), _text(octets, key_starts, stops - key_starts)


def _text(octets: Array, starts: Array, sizes: Array) -> pa.Array:
    """Strings by start and size; invalid UTF-8 is replaced."""
    offsets = np.zeros(len(sizes) + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    where = np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(octets[where])]
    text = pa.Array.from_buffers(pa.binary(), len(sizes), buffers)
    try:
        return text.cast(pa.string())
    except pa.ArrowInvalid:  # a client's mistake, and rare
        return pa.array([(raw.as_py()).decode("utf-8", "replace") for raw in text], pa.string())
