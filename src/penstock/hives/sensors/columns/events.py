"""Events, by the column."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from penstock.hives.sensors.columns.bodies import Bodies, Chosen, as_mask, fields_in
from penstock.hives.sensors.columns.reasons import Reasons, column
from penstock.hives.sensors.messages.event import LENGTH, EventType
from penstock.hives.sensors.messages.reason import Reason

EVENTS: Final = pa.schema(
    [
        ("reason", pa.string()),
        ("type", pa.int16()),  # 0 exit, 1 entry, 2 status
        ("distance", pa.int32()),
        ("device_utc", pa.timestamp("us", "UTC")),
        ("counter", pa.int16()),
    ]
)

LAYOUT: Final = (("type", "u1"), ("distance", "u2"), ("counter", "u1"), ("device_utc", "u4"))
_KNOWN: Final = np.isin(np.arange(256), list(EventType))
_MICROS: Final = 1_000_000


def decode_events(bodies: pa.Array | pa.ChunkedArray, *, little: Chosen = None) -> pa.RecordBatch:
    """A row for each body; `little` marks the rows of little-endian sensors."""
    frames = Bodies.of(bodies)
    reasons = Reasons.by_length(frames, LENGTH, LENGTH)
    fields = fields_in(frames.heads(LENGTH), LAYOUT, as_mask(little, len(frames)))
    reasons.give(Reason.UNKNOWN_TYPE, ~_KNOWN[fields["type"]])
    fields["device_utc"] *= _MICROS
    columns = [column(fields[each.name], each.type, reasons.bad) for each in list(EVENTS)[1:]]
    return pa.RecordBatch.from_arrays([reasons.column(), *columns], schema=EVENTS)
