"""Arrow schemas: decoded messages, the silver tables, and quality flags.

A message is one row. A report with an impossible date is two: it counts, and it is a dead letter.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntFlag, StrEnum
from typing import Final

import pyarrow as pa

from penstock_hives.sensors.protocol import RejectReason

_UTC: Final = pa.timestamp("us", "UTC")


class SilverPart(StrEnum):
    """Which table of silver a row belongs to."""

    REPORT = "report"  #: counts: reports of totals, and events
    STATUS = "status"
    DEAD_LETTER = "dead_letter"
    STATE = "state"  #: what is known of a sensor after the batch
    NOTICE = "notice"  #: what its messages have told about a device


#: Why messages are dead letters beyond what the codecs say of their bytes (`RejectReason`).
UNKNOWN_SENSOR: Final = "unknown_sensor"
UNREADABLE: Final = "unreadable"  #: it made a decoder fail, which is a mistake of ours
IMPOSSIBLE_DATE: Final = "impossible_date"  #: no calendar has it; the report counts all the same
DEAD_LETTER_REASONS: Final = (
    *(reason.value for reason in RejectReason),
    *(UNKNOWN_SENSOR, UNREADABLE, IMPOSSIBLE_DATE),
)

#: What comes in, as the connector has it.
MESSAGE_SCHEMA: Final = pa.schema(
    [
        ("stream", pa.string()),
        ("offset", pa.int64()),
        ("timestamp", _UTC),
        ("routing_key", pa.string()),
        ("body", pa.binary()),
    ]
)
#: Fields of which only rows of one part have any: null as a whole in the others.
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
        # Of reports and events.
        ("kind", pa.string()),  # report, event
        ("report_type", pa.int32()),
        ("total_in", pa.int64()),
        ("total_out", pa.int64()),
        ("device_time", pa.timestamp("us")),  # the wall clock at the device, as it was sent
        ("device_utc", _UTC),  # what it means; the receipt if it means nothing
        ("at", _UTC),  # what is believed
        ("quality", pa.int32()),
        ("version", pa.int32()),  # 1 and 2 of reports, 0 of events
        ("counter", pa.int32()),
        ("proven_order", pa.string()),
        ("distance", pa.int32()),
        # Of the others.
        ("letter", DEAD_LETTER_TYPE),
        ("status", STATUS_TYPE),
    ]
)


def fill_with_nulls(
    schema: pa.Schema, columns: Mapping[str, pa.Array], rows: int
) -> pa.RecordBatch:
    """A batch of this schema: the columns given, and nulls."""
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def struct_column(kind: pa.StructType, columns: Mapping[str, pa.Array]) -> pa.Array:
    """One column of several."""
    return pa.StructArray.from_arrays([columns[field.name] for field in kind], fields=list(kind))


def repeated_text(text: str, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), rows)


_WHERE: Final = [
    DECODED_SCHEMA.field(name) for name in ("stream", "offset", "received_at", "sensor")
]
_HIVE: Final = DECODED_SCHEMA.field("hive_id")
_RAW: Final = DECODED_SCHEMA.field("raw")
_LAST: Final = [("day", pa.date32()), ("batch", pa.int64())]
#: What counts people, and what each adds.
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
#: In the order in which they are entered.
SILVER_TABLES: Final = {
    "silver.reports": SILVER_REPORT_SCHEMA,
    "silver.statuses": SILVER_STATUS_SCHEMA,
    "silver.dead_letters": SILVER_DEAD_LETTER_SCHEMA,
}


class Quality(IntFlag):
    WRAP = 1  #: a total went over its top and began at 0
    RESTART = 2  #: the device started again: its totals are all there is to count
    LOSS_POSSIBLE = 4  #: and what it had not sent by then is lost
    AMBIGUOUS = 8  #: both totals went over their tops at once, or so it looks
    DUPLICATE = 16  #: the same message once more: no delta
    LATE = 32  #: totals overtaken by later ones: no delta, but for what a restart had forgotten
    CORRUPT = 64  #: totals that cannot be: no delta, and the totals before stay what counts
    CLOCK_SUSPECT = 128  #: the device has no time that can be believed: `at` is the receipt
    FIRST = 256  #: the first totals of a sensor: there is nothing to compare them with
    CONFIRMED = 512  #: says the same as a report that was not believed, and so both are
    WRAP_ASSUMED = 1024  #: nobody knows yet where the total wrapped: up to 20 events wrong
    REORDERED = 2048  #: a byte order other than the profile's, which a start-up report has proved
    RECEIPT_DOUBTFUL = 4096  #: told a receipt when it cannot have been: the broker's stands


#: Rows that are kept for the record and count for nothing.
UNCOUNTED: Final = Quality.DUPLICATE | Quality.CORRUPT
