"""Arrow schemas: decoded messages, the silver tables, and quality flags.

A message is one row. A report with an impossible date is also a dead letter.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntFlag, StrEnum
from typing import Final

import pyarrow as pa

_UTC: Final = pa.timestamp("us", "UTC")


class SilverPart(StrEnum):
    """Which table of silver a row belongs to."""

    REPORT = "report"  #: reports of totals, and events
    STATUS = "status"
    DEAD_LETTER = "dead_letter"


#: Reasons of dead letters besides those of the codecs (`RejectReason`).
UNKNOWN_SENSOR: Final = "unknown_sensor"
UNREADABLE: Final = "unreadable"  #: a decoder failed on it: a defect of ours
IMPOSSIBLE_DATE: Final = "impossible_date"  #: not in the calendar; the report still counts

#: Messages as the connector returns them.
MESSAGE_SCHEMA: Final = pa.schema(
    [
        ("stream", pa.string()),
        ("offset", pa.int64()),
        ("timestamp", _UTC),
        ("routing_key", pa.string()),
        ("body", pa.binary()),
    ]
)
#: Structs of one part: null in rows of the other parts.
DEAD_LETTER_TYPE: Final = pa.struct([("topic", pa.string()), ("reason", pa.string())])
STATUS_TYPE: Final = pa.struct(
    [
        ("startup", pa.int64()),
        ("started_at", _UTC),
        ("battery", pa.int32()),
        ("sensor_state", pa.int32()),
        ("discarded_events", pa.int32()),
        ("signal", pa.int32()),
        ("firmware", pa.string()),
        ("configuration_id", pa.int64()),
    ]
)
DECODED_SCHEMA: Final = pa.schema(
    [
        ("part", pa.string()),
        ("stream", pa.string()),
        ("offset", pa.int64()),
        ("received_at", _UTC),
        ("sensor", pa.string()),  # its serial, from the topic
        ("hive_id", pa.int64()),
        ("raw", pa.binary()),
        # Reports and events.
        ("kind", pa.string()),  # report, event
        ("report_type", pa.int32()),
        ("total_in", pa.int64()),
        ("total_out", pa.int64()),
        ("device_time", pa.timestamp("us")),  # local time of the device, as sent
        ("device_utc", _UTC),  # the same in UTC; the time of receipt if it is not valid
        ("at", _UTC),  # the device's time if it is plausible, else the time of receipt
        ("quality", pa.int32()),
        ("version", pa.int32()),  # 1 and 2: reports, 0: events
        ("counter", pa.int32()),
        ("proven_order", pa.string()),
        ("distance", pa.int32()),
        # Other parts.
        ("dead_letter", DEAD_LETTER_TYPE),
        ("status", STATUS_TYPE),
    ]
)


def fill_with_nulls(
    schema: pa.Schema, columns: Mapping[str, pa.Array], rows: int
) -> pa.RecordBatch:
    """A batch of this schema: the given columns, the others null."""
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def struct_column(kind: pa.StructType, columns: Mapping[str, pa.Array]) -> pa.Array:
    return pa.StructArray.from_arrays([columns[field.name] for field in kind], fields=list(kind))


def repeated_text(text: str, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), rows)


_WHERE: Final = [
    DECODED_SCHEMA.field(name) for name in ("stream", "offset", "received_at", "sensor")
]
_HIVE: Final = DECODED_SCHEMA.field("hive_id")
_RAW: Final = DECODED_SCHEMA.field("raw")
_LAST: Final = [("day", pa.date32()), ("batch", pa.int64())]
#: Reports and events, and what each adds.
SILVER_REPORT_SCHEMA: Final = pa.schema(
    [
        *(*_WHERE, _HIVE),
        *(
            DECODED_SCHEMA.field(name)
            for name in ("kind", "report_type", "device_time", "at", "quality")
        ),
        *(DECODED_SCHEMA.field(name) for name in ("counter", "distance", "total_in", "total_out")),
        *((name, pa.int32()) for name in ("delta_in", "delta_out", "missed")),
        *(_RAW, *_LAST),
    ]
)
SILVER_STATUS_SCHEMA: Final = pa.schema([*_WHERE, _HIVE, *STATUS_TYPE, _RAW, *_LAST])
SILVER_DEAD_LETTER_SCHEMA: Final = pa.schema([*_WHERE, *DEAD_LETTER_TYPE, _RAW, *_LAST])
#: In the order of their commits.
SILVER_TABLES: Final = {
    "silver.reports": SILVER_REPORT_SCHEMA,
    "silver.statuses": SILVER_STATUS_SCHEMA,
    "silver.dead_letters": SILVER_DEAD_LETTER_SCHEMA,
}


class Quality(IntFlag):
    WRAP = 1  #: a total passed its greatest value and started at 0
    RESTART = 2  #: the device restarted: its totals are the delta
    LOSS_POSSIBLE = 4  #: events before the restart that were not reported are lost
    AMBIGUOUS = 8  #: both totals seem to have wrapped at once
    DUPLICATE = 16  #: a copy of an earlier message: no delta
    LATE = 32  #: totals older than later ones: no delta, except events from before a restart
    CORRUPT = 64  #: impossible totals: no delta; the totals before remain the reference
    CLOCK_SUSPECT = 128  #: the device's time is not plausible: `at` is the time of receipt
    FIRST = 256  #: the first totals of a sensor: no reference to compare with
    CONFIRMED = 512  #: confirms a report that was suspect: both count
    WRAP_ASSUMED = 1024  #: the wrap point is not known yet: up to 20 events wrong
    REORDERED = 2048  #: byte order differs from the profile, as proved by a start-up report
    RECEIPT_DOUBTFUL = 4096  #: `x-received-at` is not plausible: the broker's time is used


#: Rows that are stored and count nothing.
UNCOUNTED: Final = Quality.DUPLICATE | Quality.CORRUPT
