"""Deliveries into record batches, without touching single messages.

The parts of all messages of a block lie one behind the other in it. So their places are the offsets
of one Arrow array over the block, in which names, headers, bodies and what lies between them take
turns; a column is every so-manieth of its values.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.pipeline.amqp.deliveries import Delivered
from penstock.pipeline.amqp.octets import Octets, Places
from penstock.pipeline.amqp.offsets import Cuts, cut_offsets, take_offset
from penstock.pipeline.brokers.contract import MESSAGES, Range

_EXCHANGE, _KEY, _BEFORE, _BEHIND, _BODY = 0, 2, 4, 6, 8
_PLACES: Final = 10  # of a message: where each of the five begins and ends
_MOMENT: Final = MESSAGES.field("timestamp").type


class Gathering:
    """Takes out of what is delivered the messages of a range."""

    def __init__(self, wanted: Range) -> None:
        self._wanted = wanted
        self.early = 0  #: delivered, and before the range
        self.complete = False  #: the last of the range, or one behind it, has come

    def batch(self, delivered: Delivered) -> pa.RecordBatch | None:
        """The messages among them that are wanted; none are."""
        octets = Octets(bytearray(delivered.octets.data))
        cuts = cut_offsets(octets, delivered.headers, delivered.header_ends)
        properties = None
        if cuts is None:
            cuts, properties = _one_by_one(delivered)
        first, last = np.searchsorted(cuts.offsets, (self._wanted.start, self._wanted.stop))
        self.early += int(first)
        self.complete = bool(cuts.offsets[-1] >= self._wanted.stop - 1)
        if first >= last:
            return None
        fields = _fields(octets, delivered, cuts).slice(int(first) * _PLACES)
        rows = np.arange(last - first) * _PLACES
        if properties is None:
            properties = pc.binary_join_element_wise(
                fields.take(pa.array(rows + _BEFORE)), fields.take(pa.array(rows + _BEHIND)), b""
            )
        else:
            properties = properties.slice(int(first), len(rows))
        columns = [
            pa.array(cuts.offsets[first:last]),
            pa.nulls(len(rows), _MOMENT),
            _names(fields.take(pa.array(rows + _EXCHANGE))),
            _names(fields.take(pa.array(rows + _KEY))),
            properties,
            fields.take(pa.array(rows + _BODY)),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=MESSAGES)


def _fields(octets: Octets, delivered: Delivered, cuts: Cuts) -> pa.Array:
    u8 = octets.u8
    exchanges = delivered.routes + 1
    exchange_ends = exchanges + u8[delivered.routes]
    keys = exchange_ends + 1
    places = np.empty((len(delivered), _PLACES), np.int32)
    for index, each in enumerate(
        (
            *(exchanges, exchange_ends, keys, keys + u8[exchange_ends]),
            *(delivered.headers, cuts.starts, cuts.stops, delivered.header_ends),
            *(delivered.bodies, delivered.body_ends),
        )
    ):
        places[:, index] = each
    buffers = [None, pa.py_buffer(places.ravel()), pa.py_buffer(octets.data)]
    return pa.Array.from_buffers(pa.binary(), places.size - 1, buffers)


def _one_by_one(delivered: Delivered) -> tuple[Cuts, pa.Array]:
    """The offsets, and the content headers without them, where one is not as they usually are."""
    data, starts, stops = delivered.octets.data, delivered.headers, delivered.header_ends
    taken = [
        take_offset(bytes(data[start:stop]))
        for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
    ]
    offsets: Places = np.array([offset for offset, _ in taken], np.int64)
    return Cuts(offsets, starts, starts), pa.array([header for _, header in taken], pa.binary())


def _names(raw: pa.Array) -> pa.Array:
    """Text that comes again and again."""
    encoded = raw.dictionary_encode()
    words = [each.decode("utf-8", "replace") for each in encoded.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(encoded.indices, pa.array(words, pa.string()))
