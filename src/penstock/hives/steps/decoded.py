"""The columns of decoded messages: one row for each message that came, of whatever part it is.

A report whose date cannot be is two: it counts, and a dead letter says what was wrong with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import pyarrow as pa

from penstock.hives.sensors.messages import Reason

_UTC: Final = pa.timestamp("us", "UTC")


class Part(StrEnum):
    """Which table of silver a row belongs to."""

    REPORT = "report"  #: counts: reports of totals, and events
    STATUS = "status"
    DEAD_LETTER = "dead_letter"
    STATE = "state"  #: what is known of a sensor after the batch
    NOTICE = "notice"  #: what its messages have told about a device


#: Why messages are dead letters beyond what the codecs say of their bytes (`Reason`).
UNKNOWN_SENSOR: Final = "unknown_sensor"
UNREADABLE: Final = "unreadable"  #: it made a decoder fail, which is a mistake of ours
IMPOSSIBLE_DATE: Final = "impossible_date"  #: no calendar has it; the report counts all the same
REASONS: Final = (
    *(reason.value for reason in Reason),
    *(UNKNOWN_SENSOR, UNREADABLE, IMPOSSIBLE_DATE),
)

#: What comes in, as the connector has it.
MESSAGES: Final = pa.schema(
    [
        ("stream", pa.string()),
        ("offset", pa.int64()),
        ("timestamp", _UTC),
        ("routing_key", pa.string()),
        ("body", pa.binary()),
    ]
)
#: Fields of which only rows of one part have any: null as a whole in the others.
LETTER: Final = pa.struct([("topic", pa.string()), ("reason", pa.string())])
STATUS: Final = pa.struct(
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
DECODED: Final = pa.schema(
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
        ("letter", LETTER),
        ("status", STATUS),
    ]
)


def filled(schema: pa.Schema, columns: Mapping[str, pa.Array], rows: int) -> pa.RecordBatch:
    """A batch of this schema: the columns given, and nulls."""
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def struct(kind: pa.StructType, columns: Mapping[str, pa.Array]) -> pa.Array:
    """One column of several."""
    return pa.StructArray.from_arrays([columns[field.name] for field in kind], fields=list(kind))


def repeated_text(text: str, rows: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), rows)
