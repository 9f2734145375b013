"""Rows as they arrive, packed as a stream would keep them: time, routing key, body."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.lib.stride_tricks import sliding_window_view

from penstock.hives.sensors.columns.bodies import Rows
from penstock.hives.sensors.fleet.damage import damage
from penstock.hives.sensors.fleet.encoding import LENGTHS, Bytes, Encoder
from penstock.hives.sensors.fleet.sent import Fate, Form, Sent, picked
from penstock.hives.sensors.messages.topic import Kind, SensorTopic

FRAMES: Final = pa.schema(
    [
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("routing_key", pa.dictionary(pa.int32(), pa.string())),
        ("body", pa.binary()),
    ]
)
_KINDS: Final = (Kind.REPORT, Kind.EVENT, Kind.STATUS)
#: Which of the kinds each form is.
_KIND_OF: Final = np.array([0, 0, 1, 2], np.int32)


class Packer:
    def __init__(self, serials: Sequence[str], encoder: Encoder) -> None:
        self._encoder = encoder
        self._keys = pa.array(
            [SensorTopic(serial, kind).routing_key for serial in serials for kind in _KINDS]
        )

    def pack(self, sent: Sent) -> pa.RecordBatch:
        """In the order given."""
        key = sent["sensor"] * np.int32(len(_KINDS)) + _KIND_OF[sent["form"]]
        return pa.RecordBatch.from_arrays(
            [
                pa.array(sent["arrives"]).cast(FRAMES.field("timestamp").type),
                pa.DictionaryArray.from_arrays(pa.array(key), self._keys),
                self._bodies(sent),
            ],
            schema=FRAMES,
        )

    def _bodies(self, sent: Sent) -> pa.Array:
        encoded = [
            (rows, self._encoder.encode(form, picked(sent, rows)))
            for form in Form
            if len(rows := np.flatnonzero(sent["form"] == form))
        ]
        lengths = LENGTHS[sent["form"]]
        harmed = dict(self._harmed(sent, encoded))
        for row, body in harmed.items():
            lengths[row] = len(body)
        ends = np.zeros(len(sent) + 1, np.int32)
        np.cumsum(lengths, out=ends[1:])
        # Room at the end, so that a window over the last bytes exists for every length.
        data = np.zeros(ends[-1] + LENGTHS.max(), np.uint8)
        for rows, bodies in encoded:
            whole = sent["fate"][rows] != Fate.DAMAGED
            windows = sliding_window_view(data, bodies.shape[1], writeable=True)
            windows[ends[rows[whole]]] = bodies[whole]
        for row, body in harmed.items():
            data[ends[row] : ends[row + 1]] = np.frombuffer(body, np.uint8)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.binary(), len(sent), buffers)

    def _harmed(
        self, sent: Sent, encoded: Sequence[tuple[Rows, Bytes]]
    ) -> Iterator[tuple[int, bytes]]:
        """What has become of damaged frames, by row; they are few."""
        for rows, bodies in encoded:
            for place in np.flatnonzero(sent["fate"][rows] == Fate.DAMAGED):
                row = int(rows[place])
                form, dice = Form(sent["form"][row]), int(sent["dice"][row])
                yield row, damage(form, bodies[place].tobytes(), dice)
