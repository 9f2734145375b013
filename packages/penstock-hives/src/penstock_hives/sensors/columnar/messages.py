"""Columnar decoders for events, statuses and topics."""

from __future__ import annotations

from typing import Final

import numpy as np
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
from penstock_hives.sensors.protocol.frame import MalformedFrame, RejectReason
from penstock_hives.sensors.protocol.messages import EVENT_LENGTH, STATUS_LENGTH, EventType
from penstock_hives.sensors.protocol.topic import SensorTopic

EVENT_SCHEMA: Final = pa.schema(
    [
        ("reason", pa.string()),
        ("type", pa.int16()),  # 0 exit, 1 entry, 2 status
        ("distance", pa.int32()),
        ("device_utc", pa.timestamp("us", "UTC")),
        ("counter", pa.int16()),
    ]
)
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
TOPIC_SCHEMA: Final = pa.schema(
    [("reason", pa.string()), ("serial", pa.string()), ("kind", pa.string())]
)
EVENT_LAYOUT: Final = (("type", "u1"), ("distance", "u2"), ("counter", "u1"), ("device_utc", "u4"))
STATUS_LAYOUT: Final = (
    ("startup", "u4"),
    ("battery", "u2"),
    ("sensor_state", "u2"),
    ("discarded_events", "u2"),
    ("signal", "i2"),
    ("firmware", "u4"),
    ("configuration_id", "u4"),
)
_KNOWN_EVENT: Final = np.isin(np.arange(256), list(EventType))
_MICROS: Final = 1_000_000


def decode_events(
    bodies: pa.Array | pa.ChunkedArray, *, little: RowSelection = None
) -> pa.RecordBatch:
    """A row for each body; `little` marks the rows of little-endian sensors."""
    frames = FrameBodies.of(bodies)
    reasons = RejectReasons.by_length(frames, EVENT_LENGTH, EVENT_LENGTH)
    fields = read_fields(frames.heads(EVENT_LENGTH), EVENT_LAYOUT, as_mask(little, len(frames)))
    reasons.set(RejectReason.UNKNOWN_TYPE, ~_KNOWN_EVENT[fields["type"]])
    fields["device_utc"] *= _MICROS
    columns = [
        arrow_column(fields[each.name], each.type, reasons.bad) for each in list(EVENT_SCHEMA)[1:]
    ]
    return pa.RecordBatch.from_arrays([reasons.column(), *columns], schema=EVENT_SCHEMA)


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
    """As text. A fleet runs few versions: each is formatted once."""
    versions = pc.dictionary_encode(numbers)
    texts = [
        ".".join(map(str, number.to_bytes(4, "big"))) for number in versions.dictionary.to_pylist()
    ]
    return pa.array(texts, pa.string()).take(versions.indices)


def parse_topics(names: pa.Array | pa.ChunkedArray) -> pa.RecordBatch:
    """Serial and kind of each topic or routing key. Each distinct name is parsed once."""
    if isinstance(names, pa.ChunkedArray):
        names = names.combine_chunks()
    if not pa.types.is_dictionary(names.type):
        names = pc.dictionary_encode(names, null_encoding="encode")
    parsed = [_parse(name) for name in names.dictionary.to_pylist()]
    parsed.append((RejectReason.UNKNOWN_TOPIC.value, None, None))
    rows = pc.fill_null(names.indices.cast(pa.int64()), len(parsed) - 1)
    columns = [pa.array(each, pa.string()).take(rows) for each in zip(*parsed, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=TOPIC_SCHEMA)


def _parse(name: str | None) -> tuple[str | None, str | None, str | None]:
    try:
        topic = SensorTopic.parse(name or "")
    except MalformedFrame as error:
        return error.reason.value, None, None
    return None, topic.serial, topic.kind.value
