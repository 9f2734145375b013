"""Decode messages into rows; reject what is not a message as a dead letter.

A message with an unknown topic or sensor, a wrong length, type or checksum is a dead letter with
its reason and its bytes. A report with an impossible date is a row and a dead letter. If a decoder
raises an unexpected error, the batch is halved until the message is found; that message is a dead
letter.

The time of receipt is the broker's, or that of the header `x-received-at` if it is plausible: not
more than five minutes after the broker's and not more than three years before. Without both
(RabbitMQ adds none by default) it is the device's time.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock_hives.arrays import Flags, Numbers
from penstock_hives.occupancy.device_clock import (
    SECOND_MICROS,
    DeviceTimes,
    resolve_utc_clocks,
    resolve_wall_clocks,
)
from penstock_hives.occupancy.profiles import SensorProfiles
from penstock_hives.occupancy.schemas import (
    DEAD_LETTER_TYPE,
    DECODED_SCHEMA,
    IMPOSSIBLE_DATE,
    STATUS_TYPE,
    UNKNOWN_SENSOR,
    UNREADABLE,
    Quality,
    SilverPart,
    fill_with_nulls,
    repeated_text,
    struct_column,
)
from penstock_hives.sensors.columnar import (
    decode_events,
    decode_reports,
    decode_statuses,
    parse_topics,
)
from penstock_hives.sensors.protocol import SensorMessageKind
from penstock_hives.sensors.protocol.messages import MIN_STARTUP_TIME
from penstock_hives.sensors.publisher import RECEIVED_AT_HEADER

_UTC: Final = pa.timestamp("us", "UTC")


def decode_messages(messages: pa.RecordBatch, profiles: SensorProfiles) -> Iterator[pa.RecordBatch]:
    """Batches of `DECODED_SCHEMA`, each of one part; a row for each message.

    Reports with impossible dates have a dead letter as well.
    """
    try:
        yield from list(_decode(messages, profiles))
    except Exception:
        if len(messages) == 1:
            yield _dead_letters(messages, np.zeros(1, np.int64), pa.array([UNREADABLE]))
            return
        middle = len(messages) // 2
        for half in (messages.slice(0, middle), messages.slice(middle)):
            yield from decode_messages(half, profiles)


def _decode(messages: pa.RecordBatch, profiles: SensorProfiles) -> Iterator[pa.RecordBatch]:
    topics = parse_topics(messages["routing_key"])
    sensors = profiles.rows(topics["serial"])
    invalid = np.asarray(topics["reason"].is_valid())
    unknown = ~invalid & (sensors < 0)
    for kind, decode in _DECODERS.items():
        rows = np.flatnonzero(
            np.asarray(pc.equal(topics["kind"], kind.value).fill_null(False)) & ~unknown
        )
        if len(rows):
            yield from decode(_MessageRows(messages, topics, sensors, rows, profiles))
    rows = np.flatnonzero(invalid | unknown)
    if len(rows):
        yield _dead_letters(messages, rows, topics["reason"].take(rows).fill_null(UNKNOWN_SENSOR))


class _MessageRows:
    """The messages of one kind, with their sensors."""

    def __init__(
        self,
        messages: pa.RecordBatch,
        topics: pa.RecordBatch,
        sensors: Numbers,
        rows: Numbers,
        profiles: SensorProfiles,
    ) -> None:
        every = len(rows) == len(messages)
        self.profiles = profiles
        self.messages = messages if every else messages.take(pa.array(rows))
        self.sensors = sensors[rows]
        self.serials = topics["serial"] if every else topics["serial"].take(pa.array(rows))
        doubts = DOUBTFUL in messages.schema.names
        self.doubtful = np.asarray(self.messages[DOUBTFUL]) if doubts else np.zeros(len(rows), bool)

    def received(self, default: Numbers) -> Numbers:
        """Times of receipt, or the default where a message has none."""
        known, absent = _values(self.messages["timestamp"])
        return np.where(absent, default, known) if absent.any() else known

    @property
    def bodies(self) -> pa.Array:
        return self.messages["body"]

    @property
    def little(self) -> Flags:
        little: Flags = self.profiles.little[self.sensors]
        return little

    def to_rows(
        self, part: SilverPart, reason: pa.Array, received: Numbers, columns: dict[str, Any]
    ) -> Iterator[pa.RecordBatch]:
        """Rows of this part, and dead letters of those that have a reason."""
        count = len(self.sensors)
        batch = fill_with_nulls(
            DECODED_SCHEMA,
            {
                "part": repeated_text(part.value, count),
                "stream": self.messages["stream"],
                "offset": self.messages["offset"],
                "received_at": pa.array(received).cast(_UTC),
                "sensor": self.serials,
                "hive_id": pa.array(self.profiles.hive_ids[self.sensors]),
                "raw": self.bodies,
                **columns,
            },
            count,
        )
        if reason.null_count == count:
            yield batch
            return
        bad = np.flatnonzero(np.asarray(reason.is_valid()))
        yield batch.filter(reason.is_null())
        yield _dead_letters(self.messages, bad, reason.take(pa.array(bad)), self.serials)


def _reports(chosen: _MessageRows) -> Iterator[pa.RecordBatch]:
    plain = chosen.profiles.plain[chosen.sensors]
    frames = decode_reports(chosen.bodies, little=chosen.little, plain=plain)
    wall, undated = _values(frames["device_time"])
    received = chosen.received(wall)
    times = _report_times(chosen, frames, wall, undated, received)
    columns = {
        "kind": repeated_text("report", len(frames)),
        "report_type": frames["type"].cast(pa.int32()),
        **{name: frames[name] for name in ("total_in", "total_out", "device_time", "counter")},
        "version": frames["version"].cast(pa.int32()),
        "proven_order": frames["proven_order"],
        **_time_columns(times, chosen.doubtful),
    }
    yield from chosen.to_rows(SilverPart.REPORT, frames["reason"], received, columns)
    undated_rows = np.flatnonzero(undated & np.asarray(frames["reason"].is_null()))
    if len(undated_rows):
        reason = repeated_text(IMPOSSIBLE_DATE, len(undated_rows))
        yield _dead_letters(chosen.messages, undated_rows, reason, chosen.serials)


def _report_times(
    chosen: _MessageRows, frames: pa.RecordBatch, wall: Numbers, undated: Flags, received: Numbers
) -> DeviceTimes:
    """Reports v1 have local time in the zone of the hive, reports v2 have UTC."""
    zones, zone_of = chosen.profiles.zones
    local = resolve_wall_clocks(wall, undated, received, zones, zone_of[chosen.sensors])
    if frames["device_utc"].null_count == len(frames):
        return local
    utc, is_v1 = _values(frames["device_utc"])
    v2 = resolve_utc_clocks(utc, np.zeros(len(utc), bool), received)
    return DeviceTimes(
        np.where(is_v1, local.utc, v2.utc),
        np.where(is_v1, local.at, v2.at),
        np.where(is_v1, local.suspect, v2.suspect),
    )


def _events(chosen: _MessageRows) -> Iterator[pa.RecordBatch]:
    frames = decode_events(chosen.bodies, little=chosen.little)
    utc, _ = _values(frames["device_utc"])
    received = chosen.received(utc)
    has_counter = chosen.profiles.event_counter[chosen.sensors]
    times = resolve_utc_clocks(utc, np.zeros(len(utc), bool), received)
    columns = {
        "kind": repeated_text("event", len(frames)),
        "report_type": frames["type"].cast(pa.int32()),
        "distance": frames["distance"],
        "version": pa.array(np.zeros(len(frames), np.int32)),
        "counter": pc.if_else(pa.array(has_counter), frames["counter"].cast(pa.int32()), None),
        **_time_columns(times, chosen.doubtful),
    }
    yield from chosen.to_rows(SilverPart.REPORT, frames["reason"], received, columns)


def _statuses(chosen: _MessageRows) -> Iterator[pa.RecordBatch]:
    frames = decode_statuses(chosen.bodies, little=chosen.little)
    startup, _ = _values(frames["startup"])
    received = chosen.received(startup * SECOND_MICROS)
    started = np.where(
        startup < MIN_STARTUP_TIME, received - startup * SECOND_MICROS, startup * SECOND_MICROS
    )
    fields = {name: frames[name] for name in frames.schema.names}
    fields["started_at"] = pa.array(started).cast(_UTC)
    columns = {"status": struct_column(STATUS_TYPE, fields)}
    yield from chosen.to_rows(SilverPart.STATUS, frames["reason"], received, columns)


_DECODERS: Final = {
    SensorMessageKind.REPORT: _reports,
    SensorMessageKind.EVENT: _events,
    SensorMessageKind.STATUS: _statuses,
}


def _dead_letters(
    messages: pa.RecordBatch, rows: Numbers, reason: pa.Array, serials: pa.Array | None = None
) -> pa.RecordBatch:
    rejected = messages.take(pa.array(rows))
    topic = rejected["routing_key"].cast(pa.string())
    columns = {
        "part": repeated_text(SilverPart.DEAD_LETTER.value, len(rows)),
        "stream": rejected["stream"],
        "offset": rejected["offset"],
        "received_at": rejected["timestamp"].cast(_UTC),
        "raw": rejected["body"],
        "dead_letter": struct_column(DEAD_LETTER_TYPE, {"topic": topic, "reason": reason}),
    }
    if serials is not None:
        columns["sensor"] = serials.take(pa.array(rows))
    return fill_with_nulls(DECODED_SCHEMA, columns, len(rows))


def _time_columns(times: DeviceTimes, doubtful: Flags) -> dict[str, pa.Array]:
    quality = np.where(times.suspect, np.int32(Quality.CLOCK_SUSPECT), np.int32(0))
    quality |= np.where(doubtful, np.int32(Quality.RECEIPT_DOUBTFUL), np.int32(0))
    return {
        "device_utc": pa.array(times.utc).cast(_UTC),
        "at": pa.array(times.at).cast(_UTC),
        "quality": pa.array(quality),
    }


def _values(column: pa.Array) -> tuple[Numbers, Flags]:
    """The values of a column as integers, and which are null."""
    absent = np.asarray(column.is_null())
    return np.asarray(column.cast(pa.int64()).fill_null(0)), absent


#: How far the sender's clock may be ahead of the broker's.
MAX_AHEAD: Final = timedelta(minutes=5)
#: How old a message may be: the years that analytics compare.
MAX_BEHIND: Final = timedelta(days=3 * 365)
#: Column of messages whose `x-received-at` is not plausible, besides those of `MESSAGE_SCHEMA`.
DOUBTFUL: Final = "doubtful"
_DIGITS: Final = r"^\d{1,15}$"


def resolve_receipt_times(messages: pa.Table) -> pa.Table:
    """Replace the column `headers` by its time of receipt in the column `timestamp`."""
    if "headers" not in messages.schema.names:
        return messages
    headers = messages["headers"].combine_chunks()
    messages = messages.drop_columns(["headers"])
    text = pc.map_lookup(headers, pa.scalar(RECEIVED_AT_HEADER), "first")
    millis = pc.if_else(pc.match_substring_regex(text, _DIGITS), text, None).cast(pa.int64())
    if millis.null_count == len(millis):
        return messages
    broker = np.asarray(messages["timestamp"].cast(_UTC).cast(pa.int64()))
    header, absent = np.asarray(millis.fill_null(0)) * 1000, np.asarray(millis.is_null())
    ahead, behind = (int(limit / timedelta(microseconds=1)) for limit in (MAX_AHEAD, MAX_BEHIND))
    doubtful = ~absent & ((header > broker + ahead) | (header < broker - behind))
    times = pa.array(np.where(absent | doubtful, broker, header)).cast(_UTC)
    index = messages.schema.get_field_index("timestamp")
    messages = messages.set_column(index, "timestamp", times)
    if doubtful.any():
        messages = messages.append_column(DOUBTFUL, pa.array(doubtful))
    return messages
