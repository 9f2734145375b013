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
from penstock_hives.sensors.protocol.status import MIN_STARTUP_TIME
from penstock_hives.sensors.publisher import RECEIVED_AT_HEADER

_UTC: Final = pa.timestamp("us", "UTC")


def decode_messages(messages: pa.RecordBatch, profiles: SensorProfiles) -> Iterator[pa.RecordBatch]:
    """Batches of `DECODED_SCHEMA`, a row for each message; each batch is of one part.

    Reports with impossible dates have their dead letters besides.
    """
    try:
        yield from list(_decode(messages, profiles))
    except Exception:
        if len(messages) == 1:
            everything = np.zeros(1, np.int64)
            yield _dead(messages, everything, pa.array([UNREADABLE]))
            return
        middle = len(messages) // 2
        for half in (messages.slice(0, middle), messages.slice(middle)):
            yield from decode_messages(half, profiles)


def _decode(messages: pa.RecordBatch, profiles: SensorProfiles) -> Iterator[pa.RecordBatch]:
    topics = parse_topics(messages["routing_key"])
    places = profiles.places(topics["serial"])
    strange = np.asarray(topics["reason"].is_valid())
    unknown = ~strange & (places < 0)
    for kind, reader in _READERS.items():
        rows = np.flatnonzero(
            np.asarray(pc.equal(topics["kind"], kind.value).fill_null(False)) & ~unknown
        )
        if len(rows):
            yield from reader(_MessageRows(messages, topics, places, rows, profiles))
    rows = np.flatnonzero(strange | unknown)
    if len(rows):
        yield _dead(messages, rows, topics["reason"].take(rows).fill_null(UNKNOWN_SENSOR))


class _MessageRows:
    """The messages of one kind, and whose they are."""

    def __init__(
        self,
        messages: pa.RecordBatch,
        topics: pa.RecordBatch,
        places: Numbers,
        rows: Numbers,
        profiles: SensorProfiles,
    ) -> None:
        every = len(rows) == len(messages)
        self.profiles = profiles
        self.messages = messages if every else messages.take(pa.array(rows))
        self.places = places[rows]
        self.serials = topics["serial"] if every else topics["serial"].take(pa.array(rows))
        doubts = DOUBTFUL in messages.schema.names
        self.doubtful = np.asarray(self.messages[DOUBTFUL]) if doubts else np.zeros(len(rows), bool)

    def received(self, otherwise: Numbers) -> Numbers:
        """When they came, or the time that stands for it where nobody has said."""
        known, absent = _values(self.messages["timestamp"])
        return np.where(absent, otherwise, known) if absent.any() else known

    @property
    def bodies(self) -> pa.Array:
        return self.messages["body"]

    @property
    def little(self) -> Flags:
        little: Flags = self.profiles.little[self.places]
        return little

    def good(
        self, part: SilverPart, reason: pa.Array, received: Numbers, columns: dict[str, Any]
    ) -> Iterator[pa.RecordBatch]:
        """The rows of this part, and as dead letters those that have a reason."""
        count = len(self.places)
        batch = fill_with_nulls(
            DECODED_SCHEMA,
            {
                "part": repeated_text(part.value, count),
                "stream": self.messages["stream"],
                "offset": self.messages["offset"],
                "received_at": pa.array(received).cast(_UTC),
                "sensor": self.serials,
                "hive_id": pa.array(self.profiles.hive_ids[self.places]),
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
        yield _dead(self.messages, bad, reason.take(pa.array(bad)), self.serials)


def _reports(chosen: _MessageRows) -> Iterator[pa.RecordBatch]:
    plain = chosen.profiles.plain[chosen.places]
    found = decode_reports(chosen.bodies, little=chosen.little, plain=plain)
    wall, silent = _values(found["device_time"])
    received = chosen.received(wall)
    moments = _moments(chosen, found, wall, silent, received)
    columns = {
        "kind": repeated_text("report", len(found)),
        "report_type": found["type"].cast(pa.int32()),
        **{name: found[name] for name in ("total_in", "total_out", "device_time", "counter")},
        "version": found["version"].cast(pa.int32()),
        "proven_order": found["proven_order"],
        **_times(moments, chosen.doubtful),
    }
    yield from chosen.good(SilverPart.REPORT, found["reason"], received, columns)
    dateless = np.flatnonzero(silent & np.asarray(found["reason"].is_null()))
    if len(dateless):
        why = repeated_text(IMPOSSIBLE_DATE, len(dateless))
        yield _dead(chosen.messages, dateless, why, chosen.serials)


def _moments(
    chosen: _MessageRows, found: pa.RecordBatch, wall: Numbers, silent: Flags, received: Numbers
) -> DeviceTimes:
    """Of v1 by the zone of the hive, of v2 by what it says itself."""
    zones, zone_of = chosen.profiles.zones
    moments = resolve_wall_clocks(wall, silent, received, zones, zone_of[chosen.places])
    if found["device_utc"].null_count == len(found):
        return moments
    utc, first = _values(found["device_utc"])
    second = resolve_utc_clocks(utc, np.zeros(len(utc), bool), received)
    return DeviceTimes(
        np.where(first, moments.utc, second.utc),
        np.where(first, moments.at, second.at),
        np.where(first, moments.suspect, second.suspect),
    )


def _events(chosen: _MessageRows) -> Iterator[pa.RecordBatch]:
    found = decode_events(chosen.bodies, little=chosen.little)
    utc, _ = _values(found["device_utc"])
    received = chosen.received(utc)
    counts = chosen.profiles.event_counter[chosen.places]
    columns = {
        "kind": repeated_text("event", len(found)),
        "report_type": found["type"].cast(pa.int32()),
        "distance": found["distance"],
        "version": pa.array(np.zeros(len(found), np.int32)),
        "counter": pc.if_else(pa.array(counts), found["counter"].cast(pa.int32()), None),
        **_times(resolve_utc_clocks(utc, np.zeros(len(utc), bool), received), chosen.doubtful),
    }
    yield from chosen.good(SilverPart.REPORT, found["reason"], received, columns)


def _statuses(chosen: _MessageRows) -> Iterator[pa.RecordBatch]:
    found = decode_statuses(chosen.bodies, little=chosen.little)
    startup, _ = _values(found["startup"])
    received = chosen.received(startup * SECOND_MICROS)
    started = np.where(
        startup < MIN_STARTUP_TIME, received - startup * SECOND_MICROS, startup * SECOND_MICROS
    )
    fields = {name: found[name] for name in found.schema.names}
    fields["started_at"] = pa.array(started).cast(_UTC)
    columns = {"status": struct_column(STATUS_TYPE, fields)}
    yield from chosen.good(SilverPart.STATUS, found["reason"], received, columns)


_READERS: Final = {
    SensorMessageKind.REPORT: _reports,
    SensorMessageKind.EVENT: _events,
    SensorMessageKind.STATUS: _statuses,
}


def _dead(
    messages: pa.RecordBatch, rows: Numbers, reason: pa.Array, serials: pa.Array | None = None
) -> pa.RecordBatch:
    letters = messages.take(pa.array(rows))
    columns = {
        "part": repeated_text(SilverPart.DEAD_LETTER.value, len(rows)),
        "stream": letters["stream"],
        "offset": letters["offset"],
        "received_at": letters["timestamp"].cast(_UTC),
        "raw": letters["body"],
        "letter": struct_column(
            DEAD_LETTER_TYPE, {"topic": letters["routing_key"].cast(pa.string()), "reason": reason}
        ),
    }
    if serials is not None:
        columns["sensor"] = serials.take(pa.array(rows))
    return fill_with_nulls(DECODED_SCHEMA, columns, len(rows))


def _times(moments: DeviceTimes, doubtful: Flags) -> dict[str, pa.Array]:
    quality = np.where(moments.suspect, np.int32(Quality.CLOCK_SUSPECT), np.int32(0))
    quality |= np.where(doubtful, np.int32(Quality.RECEIPT_DOUBTFUL), np.int32(0))
    return {
        "device_utc": pa.array(moments.utc).cast(_UTC),
        "at": pa.array(moments.at).cast(_UTC),
        "quality": pa.array(quality),
    }


def _values(column: pa.Array) -> tuple[Numbers, Flags]:
    """The numbers of a column, and which are null."""
    absent = np.asarray(column.is_null())
    return np.asarray(column.cast(pa.int64()).fill_null(0)), absent


#: So far may the sender's clock be ahead of the broker's.
MAX_AHEAD: Final = timedelta(minutes=5)
#: So old may what is sent be: what a year is compared with, and the one before that.
MAX_BEHIND: Final = timedelta(days=3 * 365)
#: A message whose word was not taken has it set; a column beside those of `MESSAGES`.
DOUBTFUL: Final = "doubtful"
_DIGITS: Final = r"^\d{1,15}$"
_MOMENT: Final = pa.timestamp("us", "UTC")


def resolve_receipt_times(messages: pa.Table) -> pa.Table:
    """Messages with the time they were received, and without headers."""
    if "headers" not in messages.schema.names:
        return messages
    headers = messages["headers"].combine_chunks()
    messages = messages.drop_columns(["headers"])
    text = pc.map_lookup(headers, pa.scalar(RECEIVED_AT_HEADER), "first")
    told = pc.if_else(pc.match_substring_regex(text, _DIGITS), text, None).cast(pa.int64())
    if told.null_count == len(told):
        return messages
    kept = np.asarray(messages["timestamp"].cast(_MOMENT).cast(pa.int64()))
    says, silent = np.asarray(told.fill_null(0)) * 1000, np.asarray(told.is_null())
    late, early = (int(limit / timedelta(microseconds=1)) for limit in (MAX_AHEAD, MAX_BEHIND))
    doubtful = ~silent & ((says > kept + late) | (says < kept - early))
    times = pa.array(np.where(silent | doubtful, kept, says)).cast(_MOMENT)
    place = messages.schema.get_field_index("timestamp")
    messages = messages.set_column(place, "timestamp", times)
    if doubtful.any():
        messages = messages.append_column(DOUBTFUL, pa.array(doubtful))
    return messages
