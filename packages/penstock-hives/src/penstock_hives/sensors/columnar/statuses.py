"""Statuses, by the column."""

from __future__ import annotations

from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from penstock_hives.sensors.columnar.frames import (
    FrameBodies,
    RejectReasons,
    RowSelection,
    arrow_column,
    as_mask,
    read_fields,
)
from penstock_hives.sensors.protocol.status import STATUS_LENGTH

STATUS_SCHEMA: Final = pa.schema(
    [
        ("reason", pa.string()),
        ("startup", pa.int64()),  # Unix seconds; under 10⁹, seconds since the start
        ("battery", pa.int32()),
        ("sensor_state", pa.int32()),
        ("discarded_events", pa.int32()),
        ("signal", pa.int32()),
        ("firmware", pa.string()),
        ("configuration_id", pa.int64()),
    ]
)

STATUS_LAYOUT: Final = (
    ("startup", "u4"),
    ("battery", "u2"),
    ("sensor_state", "u2"),
    ("discarded_events", "u2"),
    ("signal", "i2"),
    ("firmware", "u4"),
    ("configuration_id", "u4"),
)


def decode_statuses(
    bodies: pa.Array | pa.ChunkedArray, *, little: RowSelection = None
) -> pa.RecordBatch:
    """A row for each body; `little` marks the rows of little-endian sensors."""
    frames = FrameBodies.of(bodies)
    reasons = RejectReasons.by_length(frames, STATUS_LENGTH, STATUS_LENGTH)
    fields = read_fields(frames.heads(STATUS_LENGTH), STATUS_LAYOUT, as_mask(little, len(frames)))
    columns = [
        _firmware(arrow_column(fields["firmware"], pa.int64(), reasons.bad))
        if each.name == "firmware"
        else arrow_column(fields[each.name], each.type, reasons.bad)
        for each in list(STATUS_SCHEMA)[1:]
    ]
    return pa.RecordBatch.from_arrays([reasons.column(), *columns], schema=STATUS_SCHEMA)


def _firmware(numbers: pa.Array) -> pa.Array:
    """As people write it. A fleet runs few versions: each is spelled once."""
    versions = pc.dictionary_encode(numbers)
    spelled = [
        ".".join(map(str, number.to_bytes(4, "big"))) for number in versions.dictionary.to_pylist()
    ]
    return pa.array(spelled, pa.string()).take(versions.indices)
