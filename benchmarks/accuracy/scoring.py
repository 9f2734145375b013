"""A fleet through decoding and counting, day by day, and its score against the fleet's own ledger.

The error of a sensor is how far the sums, in and out, are from what a perfect reader of all frames
that arrived could know; what devices themselves forgot is told apart. So are sensors of which no
reader can know: a total has wrapped unseen, and nothing until the end has shown where.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from benchmarks.accuracy.naive import Naive
from benchmarks.accuracy.troubles import Trouble
from penstock_hives.occupancy import sensor_states
from penstock_hives.occupancy.counts import count_reports
from penstock_hives.occupancy.decoder import decode_messages
from penstock_hives.occupancy.profiles import SensorProfile, SensorProfiles
from penstock_hives.occupancy.schemas import DECODED_SCHEMA, MESSAGE_SCHEMA, Quality, SilverPart
from penstock_hives.occupancy.sensor_states import SENSOR_STATE_SCHEMA
from penstock_hives.sensors.fleet import Fleet

Numbers = NDArray[np.int64]

MONTH_DAYS: Final = 30
SEEN: Final = (Quality.WRAP, Quality.WRAP_ASSUMED, Quality.AMBIGUOUS, Quality.RESTART)
#: Five minutes each: half a day is a batch.
_SLOTS: Final = 144


@dataclass(frozen=True, slots=True)
class Score:
    trouble: str
    sensors: int
    reports: int
    events: float  #: by sensor and month, as are all below
    lost: float
    errors: NDArray[np.float64]  #: of each sensor
    open: NDArray[np.bool_]  #: of which frames do not tell
    naive: NDArray[np.float64]
    seen: dict[Quality, int]  #: how many reports had these qualities


def score(trouble: Trouble, *, start: datetime, days: int, sensors: int, seed: int) -> Score:
    fleet = Fleet(start=start, seed=seed, sensors=sensors, quirks=trouble.quirks)
    profiles = profiles_of(fleet)
    naive = Naive(profiles)
    state = SENSOR_STATE_SCHEMA.empty_table()
    seen = dict.fromkeys(SEEN, 0)
    reports = 0
    for messages in _messages(fleet, start + timedelta(days=days)):
        decoded = pa.Table.from_batches(decode_messages(messages, profiles), DECODED_SCHEMA)
        rows, statuses = (
            decoded.filter(pc.equal(decoded["part"], part.value)).combine_chunks()
            for part in (SilverPart.REPORT, SilverPart.STATUS)
        )
        found = count_reports(rows, statuses, profiles, state)
        naive.count(rows.filter(rows["total_in"].is_valid()).sort_by("offset"))
        others = pc.invert(pc.is_in(state["sensor"], value_set=found.states["sensor"]))
        state = pa.concat_tables([state.filter(others), pa.Table.from_batches([found.states])])
        reports += len(rows)
        for quality in seen:
            seen[quality] += int((found.quality & int(quality) != 0).sum())

    ledger = fleet.ledger()
    known, counted, lost = (_both(ledger, name) for name in ("known", "counted", "lost"))
    places = profiles.rows(state["sensor"].combine_chunks())
    sums = np.zeros_like(known)
    sums[:, places] = [np.asarray(state["sum_in"]), np.asarray(state["sum_out"])]
    a_month = MONTH_DAYS / days
    totals = np.asarray(pc.not_equal(profiles.table["protocol"], "event").combine_chunks())
    return Score(
        trouble=trouble.name,
        sensors=len(profiles),
        reports=reports,
        events=counted.sum() / len(profiles) * a_month,
        lost=lost.sum() / len(profiles) * a_month,
        errors=np.abs(sums - known).sum(axis=0) * a_month,
        open=_open(state, profiles),
        naive=np.abs(naive.sums - known).sum(axis=0)[totals] * a_month,
        seen=seen,
    )


def _open(state: pa.Table, profiles: SensorProfiles) -> NDArray[np.bool_]:
    held = sensor_states.load_states(state, profiles.serials)
    assumed: NDArray[np.bool_] = held.assumed_in + held.assumed_out > 0
    return assumed


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


def _messages(fleet: Fleet, until: datetime) -> Iterator[pa.RecordBatch]:
    offset = 0
    for window in fleet.windows(until, slots=_SLOTS):
        frames = window.frames
        columns = {
            "stream": pa.repeat("sensors", len(frames)),
            "offset": pa.array(np.arange(offset, offset + len(frames))),
            "timestamp": frames["timestamp"].cast(MESSAGE_SCHEMA.field("timestamp").type),
            "routing_key": frames["routing_key"].cast(pa.string()),
            "body": frames["body"],
        }
        offset += len(frames)
        yield pa.RecordBatch.from_pydict(columns, MESSAGE_SCHEMA)


def _both(ledger: pa.RecordBatch, name: str) -> Numbers:
    return np.stack([np.asarray(ledger[f"{name}_{way}"]) for way in ("in", "out")])
