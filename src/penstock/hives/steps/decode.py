"""From messages to rows: every message becomes one, and what is wrong with it is its own matter.

A message that is none (its topic, its sensor, its length, its type, its checksum) is a dead letter
with the reason and all its bytes. A report whose date no calendar has is a row, for its counts are
good, and a dead letter as well, so that somebody finds the device. Should a decoder fail on
something nobody thought of, the batch is halved until the one message is found; it is a dead letter
as well, and the others are rows.

A broker that does not say when a message came (RabbitMQ, unless told to) leaves that to the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.hives.sensors.columns import (
    decode_events,
    decode_reports,
    decode_statuses,
    parse_topics,
)
from penstock.hives.sensors.messages import Kind
from penstock.hives.sensors.messages.status import EARLIEST
from penstock.hives.steps.clocks import SECOND, Moments, believe, choose
from penstock.hives.steps.decoded import (
    DECODED,
    IMPOSSIBLE_DATE,
    LETTER,
    STATUS,
    UNKNOWN_SENSOR,
    UNREADABLE,
    Part,
    filled,
    repeated_text,
    struct,
)
from penstock.hives.steps.profiles import Profiles
from penstock.hives.steps.quality import Quality
from penstock.hives.steps.receipts import DOUBTFUL

Numbers = NDArray[np.int64]
Flags = NDArray[np.bool_]

_UTC: Final = pa.timestamp("us", "UTC")


def decode_messages(messages: pa.RecordBatch, profiles: Profiles) -> Iterator[pa.RecordBatch]:
    """Batches of `DECODED`, a row for each message; each batch is of one part.

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


def _decode(messages: pa.RecordBatch, profiles: Profiles) -> Iterator[pa.RecordBatch]:
    topics = parse_topics(messages["routing_key"])
    places = profiles.places(topics["serial"])
    strange = np.asarray(topics["reason"].is_valid())
    unknown = ~strange & (places < 0)
    for kind, reader in _READERS.items():
        rows = np.flatnonzero(
            np.asarray(pc.equal(topics["kind"], kind.value).fill_null(False)) & ~unknown
        )
        if len(rows):
            yield from reader(_Chosen(messages, topics, places, rows, profiles))
    rows = np.flatnonzero(strange | unknown)
    if len(rows):
        yield _dead(messages, rows, topics["reason"].take(rows).fill_null(UNKNOWN_SENSOR))


class _Chosen:
    """The messages of one kind, and whose they are."""

    def __init__(
        self,
        messages: pa.RecordBatch,
        topics: pa.RecordBatch,
        places: Numbers,
        rows: Numbers,
        profiles: Profiles,
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
        self, part: Part, reason: pa.Array, received: Numbers, columns: dict[str, Any]
    ) -> Iterator[pa.RecordBatch]:
        """The rows of this part, and as dead letters those that have a reason."""
        count = len(self.places)
        batch = filled(
            DECODED,
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


def _reports(chosen: _Chosen) -> Iterator[pa.RecordBatch]:
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
    yield from chosen.good(Part.REPORT, found["reason"], received, columns)
    dateless = np.flatnonzero(silent & np.asarray(found["reason"].is_null()))
    if len(dateless):
        why = repeated_text(IMPOSSIBLE_DATE, len(dateless))
        yield _dead(chosen.messages, dateless, why, chosen.serials)


def _moments(
    chosen: _Chosen, found: pa.RecordBatch, wall: Numbers, silent: Flags, received: Numbers
) -> Moments:
    """Of v1 by the zone of the hive, of v2 by what it says itself."""
    zones, zone_of = chosen.profiles.zones
    moments = choose(wall, silent, received, zones, zone_of[chosen.places])
    if found["device_utc"].null_count == len(found):
        return moments
    utc, first = _values(found["device_utc"])
    second = believe(utc, np.zeros(len(utc), bool), received)
    return Moments(
        np.where(first, moments.utc, second.utc),
        np.where(first, moments.at, second.at),
        np.where(first, moments.suspect, second.suspect),
    )


def _events(chosen: _Chosen) -> Iterator[pa.RecordBatch]:
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
        **_times(believe(utc, np.zeros(len(utc), bool), received), chosen.doubtful),
    }
    yield from chosen.good(Part.REPORT, found["reason"], received, columns)


def _statuses(chosen: _Chosen) -> Iterator[pa.RecordBatch]:
    found = decode_statuses(chosen.bodies, little=chosen.little)
    startup, _ = _values(found["startup"])
    received = chosen.received(startup * SECOND)
    started = np.where(startup < EARLIEST, received - startup * SECOND, startup * SECOND)
    fields = {name: found[name] for name in found.schema.names}
    fields["started_at"] = pa.array(started).cast(_UTC)
    columns = {"status": struct(STATUS, fields)}
    yield from chosen.good(Part.STATUS, found["reason"], received, columns)


_READERS: Final = {Kind.REPORT: _reports, Kind.EVENT: _events, Kind.STATUS: _statuses}


def _dead(
    messages: pa.RecordBatch, rows: Numbers, reason: pa.Array, serials: pa.Array | None = None
) -> pa.RecordBatch:
    letters = messages.take(pa.array(rows))
    columns = {
        "part": repeated_text(Part.DEAD_LETTER.value, len(rows)),
        "stream": letters["stream"],
        "offset": letters["offset"],
        "received_at": letters["timestamp"].cast(_UTC),
        "raw": letters["body"],
        "letter": struct(
            LETTER, {"topic": letters["routing_key"].cast(pa.string()), "reason": reason}
        ),
    }
    if serials is not None:
        columns["sensor"] = serials.take(pa.array(rows))
    return filled(DECODED, columns, len(rows))


def _times(moments: Moments, doubtful: Flags) -> dict[str, pa.Array]:
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
