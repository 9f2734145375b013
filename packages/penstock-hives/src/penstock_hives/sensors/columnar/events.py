"""Events, by the column."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from penstock_hives.sensors.columnar.frames import (
    FrameBodies,
    RejectReasons,
    RowSelection,
    arrow_column,
    as_mask,
    read_fields,
)
from penstock_hives.sensors.protocol.event import EVENT_LENGTH, EventType
from penstock_hives.sensors.protocol.frame import RejectReason

EVENT_SCHEMA: Final = pa.schema(
    [
        ("reason", pa.string()),
        ("type", pa.int16()),  # 0 exit, 1 entry, 2 status
        ("distance", pa.int32()),
        ("device_utc", pa.timestamp("us", "UTC")),
        ("counter", pa.int16()),
    ]
)

EVENT_LAYOUT: Final = (("type", "u1"), ("distance", "u2"), ("counter", "u1"), ("device_utc", "u4"))
_KNOWN: Final = np.isin(np.arange(256), list(EventType))
_MICROS: Final = 1_000_000


def decode_events(
    bodies: pa.Array | pa.ChunkedArray, *, little: RowSelection = None
) -> pa.RecordBatch:
    """A row for each body; `little` marks the rows of little-endian sensors."""
    frames = FrameBodies.of(bodies)
    reasons = RejectReasons.by_length(frames, EVENT_LENGTH, EVENT_LENGTH)
    fields = read_fields(frames.heads(EVENT_LENGTH), EVENT_LAYOUT, as_mask(little, len(frames)))
    reasons.give(RejectReason.UNKNOWN_TYPE, ~_KNOWN[fields["type"]])
    fields["device_utc"] *= _MICROS
    columns = [
        arrow_column(fields[each.name], each.type, reasons.bad) for each in list(EVENT_SCHEMA)[1:]
    ]
    return pa.RecordBatch.from_arrays([reasons.column(), *columns], schema=EVENT_SCHEMA)
