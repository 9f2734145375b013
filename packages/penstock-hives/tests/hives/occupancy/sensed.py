"""Sensors and what they send, for tests of the steps: frames, batches of them, a fleet's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock_hives.occupancy.counts import ReportCounts, count_reports
from penstock_hives.occupancy.decoder import decode_messages
from penstock_hives.occupancy.profiles import SensorProfile, SensorProfiles
from penstock_hives.occupancy.schemas import DECODED_SCHEMA, MESSAGE_SCHEMA, SilverPart
from penstock_hives.occupancy.sensor_states import SENSOR_STATE_SCHEMA
from penstock_hives.sensors.fleet import Fleet
from penstock_hives.sensors.protocol import (
    FirmwareProfile,
    ReportType,
    ReportV1,
    SensorProtocol,
)

NOON = datetime(2026, 3, 9, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)

Message = dict[str, Any]


def sensor(serial: str = "s1", **said: Any) -> SensorProfile:
    firmware = said.pop("firmware", FirmwareProfile())
    given: dict[str, Any] = {
        "sensor_id": 1,
        "hive_id": 7,
        "time_zone": "UTC",
        "protocol": SensorProtocol.V1,
    } | said
    return SensorProfile(serial, firmware=firmware, **given)


def message(
    offset: int, body: bytes | None, key: str = "sensors.s1.report", **said: Any
) -> Message:
    at = said.get("at", NOON + offset * MINUTE)
    return {
        "stream": said.get("stream", "sensors"),
        "offset": offset,
        "timestamp": at,
        "routing_key": key,
        "body": body,
    }


def report(
    offset: int,
    total_in: int,
    total_out: int,
    kind: ReportType = ReportType.EVENTS,
    firmware: FirmwareProfile = FirmwareProfile(),  # noqa: B008
    **said: Any,
) -> Message:
    """A report v1 of a device in UTC whose clock is right, received as it was sent."""
    at = said.get("at", NOON + offset * MINUTE)
    clock = said.pop("clock", at.replace(tzinfo=None))
    body = ReportV1(kind, total_in, total_out, clock).encode(firmware)
    return message(offset, body, **said)


def batch(messages: Sequence[Message]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(messages), MESSAGE_SCHEMA)


def decoded(messages: Sequence[Message], profiles: SensorProfiles) -> list[dict[str, Any]]:
    """All rows, by offset."""
    rows = pa.Table.from_batches(
        decode_messages(batch(messages), profiles), DECODED_SCHEMA
    ).to_pylist()
    return sorted(rows, key=lambda row: (row["stream"], row["offset"]))


def counted(
    rows: pa.RecordBatch, profiles: SensorProfiles, state: pa.Table
) -> tuple[pa.Table, ReportCounts]:
    """The rows that count, and what they count."""
    parts = pa.Table.from_batches(decode_messages(rows, profiles), DECODED_SCHEMA)
    counting, statuses = (
        parts.filter(pc.equal(parts["part"], part.value))
        for part in (SilverPart.REPORT, SilverPart.STATUS)
    )
    return counting, count_reports(counting, statuses, profiles, state)


def after(state: pa.Table, new: pa.RecordBatch) -> pa.Table:
    """The states once a batch is in the database."""
    others = state.filter(pc.invert(pc.is_in(state["sensor"], value_set=new["sensor"])))
    return pa.concat_tables([others, pa.Table.from_batches([new])])


def run(
    batches: Iterable[pa.RecordBatch], profiles: SensorProfiles
) -> tuple[list[tuple[int, int, int, int, int]], pa.Table]:
    """Batch after batch: offset, deltas, missed and quality of every row; and the last states."""
    state = SENSOR_STATE_SCHEMA.empty_table()
    found = []
    for each in batches:
        rows, counts = counted(each, profiles, state)
        columns = (counts.delta_in, counts.delta_out, counts.missed, counts.quality)
        offsets = rows["offset"].to_pylist()
        found += list(zip(offsets, *(column.tolist() for column in columns), strict=True))
        state = after(state, counts.states)
    return sorted(found), state


def profiles_of(fleet: Fleet) -> SensorProfiles:
    zones = {hive.id: hive.time_zone for hive in fleet.hives}
    return SensorProfiles.of(
        SensorProfile(
            *(each.serial, each.id, each.hive_id, zones[each.hive_id], each.protocol),
            firmware=each.profile,
            direction_swapped=each.direction_swapped,
        )
        for each in fleet.sensors
    )


def messages_of(fleet: Fleet, until: datetime) -> Iterator[pa.RecordBatch]:
    """What arrives, as the connector has it."""
    offset = 0
    for window in fleet.windows(until):
        frames = window.frames
        end = offset + len(frames)
        yield pa.RecordBatch.from_arrays(
            [
                pa.repeat("sensors", len(frames)),
                pa.array(range(offset, end), pa.int64()),
                frames["timestamp"].cast(MESSAGE_SCHEMA.field("timestamp").type),
                frames["routing_key"].cast(pa.string()),
                frames["body"],
            ],
            schema=MESSAGE_SCHEMA,
        )
        offset = end
