"""Parses deliveries out of a stream of bytes, many at a time.

A reader does this for every message, so messages are not parsed one by one. The consumer tag, which
nobody can guess, marks the deliveries. All parts (method, content header, a body of one frame) are
measured together, and a run is accepted if every delivery in it is complete and ends where the next
begins. Everything else, such as a body in several frames, is parsed frame by frame. The positions
of all parts are the offsets of one Arrow array over the block, in which exchange, routing key,
header and body alternate; a column is every n-th of its values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.core.basic_properties import MIN_HEADER_BYTES
from penstock.core.errors import UnexpectedFrame
from penstock.wire.amqp091.frames import (
    BASIC_DELIVER_PREFIX,
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    FRAME_HEADER_BYTES,
    FRAME_HEADER_STRUCT,
    FRAME_METHOD,
    FRAME_OVERHEAD,
    AmqpFrame,
    invalid_frame,
)
from penstock_spark.streams.backend import RECORD_SCHEMA, StreamRange
from penstock_spark.streams.byte_array import ByteArray, Indices
from penstock_spark.streams.offsets import HeaderOffsets, find_offsets, pop_offset

_NO_INDICES: Final = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True)
class DeliveryBlock:
    """The positions of the parts of messages in a block of bytes."""

    octets: ByteArray
    routes: Indices  #: the exchange's name and the routing key, two short strings
    headers: Indices
    header_ends: Indices
    bodies: Indices
    body_ends: Indices

    def __len__(self) -> int:
        return len(self.routes)


class DeliveryParser:
    """The deliveries of one consumer, the only one of its channel."""

    __slots__ = (
        *("_channel", "_header", "_mark", "_missing", "_pieces", "_rest", "_route", "_tag"),
        "tag",
    )

    def __init__(self, channel: int, consumer: bytes, rest: bytes = b"") -> None:
        self.tag = 0  #: of the last complete message
        self._channel = channel
        self._mark = BASIC_DELIVER_PREFIX + bytes((len(consumer),)) + consumer
        self._rest = rest
        # Of a delivery that is parsed frame by frame:
        self._tag = 0
        self._route: bytes | None = None
        self._header: bytes | None = None
        self._missing = 0  # bytes of the body
        self._pieces: list[bytes] = []

    def count(self, data: bytes) -> int:
        """The number of deliveries that begin in a piece of bytes, or slightly more."""
        return data.count(self._mark)

    def feed(self, data: bytes) -> tuple[list[DeliveryBlock], list[AmqpFrame]]:
        """The messages that are complete now, and the frames that are not part of a delivery."""
        octets = ByteArray(self._rest + data)
        runs = _DeliveryRuns(octets, self._mark, self._channel)
        found: list[DeliveryBlock] = []
        others: list[AmqpFrame] = []
        pos = 0
        while True:
            if self._route is None and (run := runs.at(pos)) is not None:
                delivered, pos, self.tag = run
                found.append(delivered)
            elif (frame := _frame(octets.data, pos)) is not None:
                pos += len(frame.payload) + FRAME_OVERHEAD
                if (whole := self._take(frame, others)) is not None:
                    found.append(whole)
            else:
                self._rest = bytes(octets.data[pos:])
                return found, others

    def _take(self, frame: AmqpFrame, others: list[AmqpFrame]) -> DeliveryBlock | None:
        """Parse one frame; returns the message if it is complete."""
        kind, channel, payload = frame
        if channel != self._channel or (
            kind == FRAME_METHOD and not payload.startswith(self._mark)
        ):
            others.append(frame)
            return None
        if kind == FRAME_METHOD and self._route is None:
            at = len(self._mark)
            self._tag = int.from_bytes(payload[at : at + 8], "big")
            self._route = payload[at + 9 :]
            return None
        if kind == FRAME_HEADER and self._route is not None and self._header is None:
            self._header = payload
            self._missing = int.from_bytes(payload[4:12], "big")
        elif kind == FRAME_BODY and self._header is not None and len(payload) <= self._missing:
            self._pieces.append(payload)
            self._missing -= len(payload)
        else:
            raise UnexpectedFrame(f"frame of type {kind} outside a delivery")
        return None if self._missing else self._whole()

    def _whole(self) -> DeliveryBlock:
        assert self._route is not None
        assert self._header is not None
        parts = (self._route, self._header, *self._pieces)
        self.tag = self._tag
        self._route = self._header = None
        self._pieces = []
        header, body = len(parts[0]), len(parts[0]) + len(parts[1])
        octets = ByteArray(b"".join(parts))
        positions = (0, header, body, body, octets.size)
        return DeliveryBlock(octets, *(np.array([place]) for place in positions))


class _DeliveryRuns:
    """Consecutive deliveries of a block."""

    __slots__ = ("_breaks", "_ends", "_mark", "_octets", "_parts", "_starts", "_whole")

    def __init__(self, octets: ByteArray, mark: bytes, channel: int) -> None:
        self._octets = octets
        self._mark = len(mark)
        self._starts = octets.find(mark) - FRAME_HEADER_BYTES
        if octets.size < FRAME_OVERHEAD:
            self._starts = _NO_INDICES
        self._whole, self._ends, self._parts = self._measure(self._starts, channel)
        follows = self._whole[1:] & (self._ends[:-1] == self._starts[1:])
        self._breaks = np.append(np.flatnonzero(~follows), len(self._starts) - 1)

    def at(self, pos: int) -> tuple[DeliveryBlock, int, int] | None:
        """The run at a position, where it ends, and the tag of its last delivery."""
        first = int(np.searchsorted(self._starts, pos))
        if first == len(self._starts) or self._starts[first] != pos or not self._whole[first]:
            return None
        last = int(self._breaks[np.searchsorted(self._breaks, first)])
        parts = (each[first : last + 1] for each in self._parts)
        tag = self._octets.i64[self._starts[last] + FRAME_HEADER_BYTES + self._mark]
        return DeliveryBlock(self._octets, *parts), int(self._ends[last]), int(tag)

    def _measure(
        self, starts: Indices, channel: int
    ) -> tuple[NDArray[np.bool_], Indices, tuple[Indices, ...]]:
        """Which are complete with a body of at most one frame, where they end, and their parts.

        The positions of others are undefined.
        """
        octets = self._octets
        u8, u32 = octets.u8, octets.u32
        whole = starts >= 0

        def frames(at: Indices, kind: int, least: int) -> tuple[Indices, Indices]:
            """The ends of payloads and frames, for valid ones."""
            nonlocal whole
            whole = whole & (at + FRAME_OVERHEAD + least <= octets.size)
            at = np.where(whole, at, 0)
            whole = whole & (u8[at] == kind) & (octets.u16[at + 1] == channel)
            stop = at + FRAME_HEADER_BYTES + u32[at + 3]
            whole = whole & (stop - at - FRAME_HEADER_BYTES >= least) & (stop < octets.size)
            stop = np.where(whole, stop, 0)
            whole = whole & (u8[stop] == FRAME_END)
            return stop, stop + 1

        method_end, header = frames(starts, FRAME_METHOD, self._mark + 11)
        route = starts + FRAME_HEADER_BYTES + self._mark + 9
        key = np.where(whole, route + 1 + u8[np.where(whole, route, 0)], 0)
        whole = whole & (key < method_end)
        whole = whole & (key + 1 + u8[np.where(whole, key, 0)] == method_end)
        header_end, body = frames(header, FRAME_HEADER, MIN_HEADER_BYTES)
        size = octets.i64[np.where(whole, header + FRAME_HEADER_BYTES + 4, 0)]
        # A message without a body ends here; any other has it in the next frame.
        empty = whole & (size == 0)
        whole = whole & ~empty
        body_end, end = frames(body, FRAME_BODY, 1)
        whole = whole & (body_end - body - FRAME_HEADER_BYTES == size)
        whole |= empty
        body_end = np.where(empty, body, body_end)
        parts = (
            route,
            header + FRAME_HEADER_BYTES,
            header_end,
            body + FRAME_HEADER_BYTES * ~empty,
            body_end,
        )
        return whole, np.where(empty, body, end), parts


def _frame(data: bytes | bytearray, pos: int) -> AmqpFrame | None:
    """The frame at a position, if it is complete."""
    if len(data) - pos < FRAME_OVERHEAD:
        return None
    kind, channel, size = FRAME_HEADER_STRUCT.unpack_from(data, pos)
    stop = pos + FRAME_HEADER_BYTES + size
    if stop >= len(data):
        return None
    if data[stop] != FRAME_END:
        raise invalid_frame(bytes(data), pos)
    return AmqpFrame(kind, channel, bytes(data[pos + FRAME_HEADER_BYTES : stop]))


_EXCHANGE, _KEY, _BEFORE, _BEHIND, _BODY = 0, 2, 4, 6, 8
_POSITIONS: Final = 10  # per message: the beginnings and ends of the five parts
_TIMESTAMP_TYPE: Final = RECORD_SCHEMA.field("timestamp").type


class DeliveryBatchBuilder:
    """Selects the messages of a range from deliveries."""

    def __init__(self, wanted: StreamRange) -> None:
        self._wanted = wanted
        self.early = 0  #: the number of deliveries before the range
        self.complete = False  #: the last message of the range, or a later one, was delivered

    def batch(self, delivered: DeliveryBlock) -> pa.RecordBatch | None:
        """The messages of the range; None if there are none."""
        octets = ByteArray(bytearray(delivered.octets.data))
        cuts = find_offsets(octets, delivered.headers, delivered.header_ends)
        properties = None
        if cuts is None:
            cuts, properties = _one_by_one(delivered)
        first, last = np.searchsorted(cuts.offsets, (self._wanted.start, self._wanted.stop))
        self.early += int(first)
        self.complete = bool(cuts.offsets[-1] >= self._wanted.stop - 1)
        if first >= last:
            return None
        fields = _fields(octets, delivered, cuts).slice(int(first) * _POSITIONS)
        rows = np.arange(last - first) * _POSITIONS
        if properties is None:
            properties = pc.binary_join_element_wise(
                fields.take(pa.array(rows + _BEFORE)), fields.take(pa.array(rows + _BEHIND)), b""
            )
        else:
            properties = properties.slice(int(first), len(rows))
        columns = [
            pa.array(cuts.offsets[first:last]),
            pa.nulls(len(rows), _TIMESTAMP_TYPE),
            _dictionary_column(fields.take(pa.array(rows + _EXCHANGE))),
            _dictionary_column(fields.take(pa.array(rows + _KEY))),
            properties,
            fields.take(pa.array(rows + _BODY)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=RECORD_SCHEMA)


def _fields(octets: ByteArray, delivered: DeliveryBlock, cuts: HeaderOffsets) -> pa.Array:
    u8 = octets.u8
    exchanges = delivered.routes + 1
    exchange_ends = exchanges + u8[delivered.routes]
    keys = exchange_ends + 1
    positions = np.empty((len(delivered), _POSITIONS), np.int32)
    for index, each in enumerate(
        (
            *(exchanges, exchange_ends, keys, keys + u8[exchange_ends]),
            *(delivered.headers, cuts.starts, cuts.stops, delivered.header_ends),
            *(delivered.bodies, delivered.body_ends),
        )
    ):
        positions[:, index] = each
    buffers = [None, pa.py_buffer(positions.ravel()), pa.py_buffer(octets.data)]
    return pa.Array.from_buffers(pa.binary(), positions.size - 1, buffers)


def _one_by_one(delivered: DeliveryBlock) -> tuple[HeaderOffsets, pa.Array]:
    """The offsets, and the content headers without them, if one has an unusual form."""
    data, starts, stops = delivered.octets.data, delivered.headers, delivered.header_ends
    taken = [
        pop_offset(bytes(data[start:stop]))
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
    ]
    offsets: Indices = np.array([offset for offset, _ in taken], np.int64)
    return HeaderOffsets(offsets, starts, starts), pa.array(
        [header for _, header in taken], pa.binary()
    )


def _dictionary_column(raw: pa.Array) -> pa.Array:
    encoded = raw.dictionary_encode()
    words = [each.decode("utf-8", "replace") for each in encoded.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(words, pa.string()))
