"""Read the tables of slots, hours and days, and make rows of them and of KPIs.

Only as far back as a batch reaches is read, and only new or changed slots are written. KPIs of a
day are written when the day is over at the hive, and again when a late row changes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock_hives.arrays import Numbers
from penstock_hives.occupancy.calendars import SLOTS_PER_HOUR
from penstock_hives.occupancy.gold.anchors import AnchorsByCause, AppliedAnchors
from penstock_hives.occupancy.gold.catalogue import HiveCatalogue
from penstock_hives.occupancy.gold.columns import fetch_columns
from penstock_hives.occupancy.gold.staging import NEW_COLUMN
from penstock_hives.occupancy.rollups import (
    DailyKpis,
    OccupancyRollup,
    compute_kpis,
    concat_rollups,
)
from penstock_hives.occupancy.slots import (
    SLOT_MICROS,
    OccupancyLevels,
    SlotCounts,
    SlotOccupancy,
    find_slots,
)
from penstock_store import Connection

_NUMBERS: Final = ("hive", "slot", "entries", "exits", "end", "peak")
_SLOTS: Final = """
    SELECT o.hive_id, o.slot, o.entries::bigint, o.exits::bigint,
           coalesce(o.occupancy_end, -1)::bigint, coalesce(o.peak, -1)::bigint
    FROM unnest(%(hives)s::bigint[], %(since)s::bigint[]) AS t (hive_id, since)
    CROSS JOIN LATERAL (
        SELECT * FROM occupancy_5min o
        WHERE o.hive_id = t.hive_id AND o.slot >= to_timestamp(t.since * 300)
        ORDER BY o.slot
    ) AS o
"""
_RAW_OCCUPANCY: Final = """
    SELECT hive_id, raw_occupancy::bigint
    FROM hive_status WHERE hive_id = ANY (%(hives)s::bigint[])
"""
#: Days are made of hours; an area is mean times length.
_HOURS: Final = """
    SELECT h.hive_id, h.slot, h.entries::bigint, h.exits::bigint,
           h.occupancy_end::bigint, h.peak::bigint, round(h.mean * 12)::bigint
    FROM unnest(%(hives)s::bigint[], %(since)s::bigint[], %(until)s::bigint[])
        AS t (hive_id, since, until)
    CROSS JOIN LATERAL (
        SELECT * FROM occupancy_hour h
        WHERE h.hive_id = t.hive_id
          AND h.slot >= to_timestamp(t.since * 300) AND h.slot < to_timestamp(t.until * 300)
        ORDER BY h.slot
    ) AS h
"""
_HOUR_BEFORE: Final = """
    SELECT t.hive_id, h.occupancy_end::bigint
    FROM unnest(%(hives)s::bigint[], %(since)s::bigint[]) AS t (hive_id, since)
    CROSS JOIN LATERAL (
        SELECT occupancy_end FROM occupancy_hour h
        WHERE h.hive_id = t.hive_id AND h.slot < to_timestamp(t.since * 300)
        ORDER BY h.slot DESC LIMIT 1
    ) AS h
"""


@dataclass(frozen=True, slots=True)
class StoredSlots:
    """Rows of `occupancy_5min`."""

    counts: SlotCounts
    end: Numbers
    peak: Numbers


def read_slots(connection: Connection, hives: Numbers, since: Numbers) -> StoredSlots:
    """All slots of these hives from the given ones on."""
    kinds = {name: "time" if name == "slot" else "number" for name in _NUMBERS}
    found = fetch_columns(connection, _SLOTS, kinds, _parameters(hives, since))
    found["slot"] //= SLOT_MICROS
    end, peak = found.pop("end"), found.pop("peak")
    return StoredSlots(SlotCounts(**found), end, peak)


def read_levels_before(
    connection: Connection, hives: Numbers, since: SlotCounts, applied: AppliedAnchors
) -> OccupancyLevels:
    """The levels before the first of these slots.

    The current level less all counts since, and less the corrections of anchors since.
    """
    current = fetch_columns(
        connection, _RAW_OCCUPANCY, {"hive": "number", "raw": "number"}, {"hives": hives.tolist()}
    )
    raw = _levels(current["hive"], current["raw"]).of(hives)
    for hive, change in (
        (since.hive, since.entries - since.exits),
        (applied.anchors.anchors.hive, applied.correction),
    ):
        np.subtract.at(raw, np.searchsorted(hives, hive), change)
    return OccupancyLevels(hives, raw)


def read_hours(
    connection: Connection, hives: Numbers, since: Numbers, until: Numbers
) -> OccupancyRollup:
    names = (*_NUMBERS, "area")
    kinds = {name: "time" if name == "slot" else "number" for name in names}
    given = _parameters(hives, since) | {"until": until.tolist()}
    found = fetch_columns(connection, _HOURS, kinds, given)
    name = found.pop("slot") // SLOT_MICROS
    length = np.full(len(name), SLOTS_PER_HOUR, np.int64)
    return concat_rollups([OccupancyRollup(name=name, peak_at=name, slots=length, **found)])


def read_day_start_levels(
    connection: Connection, hives: Numbers, since: Numbers
) -> OccupancyLevels:
    kinds = {"hive": "number", "end": "number"}
    found = fetch_columns(connection, _HOUR_BEFORE, kinds, _parameters(hives, since))
    return _levels(found["hive"], found["end"])


def _levels(hives: Numbers, raw: Numbers) -> OccupancyLevels:
    order = np.argsort(hives)
    return OccupancyLevels(hives[order], raw[order])


def _parameters(hives: Numbers, since: Numbers) -> dict[str, Any]:
    return {"hives": hives.tolist(), "since": since.tolist()}


_UTC: Final = pa.timestamp("us", "UTC")


def slot_rows(occupancy: SlotOccupancy, stored: StoredSlots) -> pa.Table:
    """New and changed rows; `stored` has all rows from the first one on."""
    counts, end, peak = occupancy.counts, occupancy.end, occupancy.peak
    row = find_slots(counts, stored.counts.hive, stored.counts.slot)
    changed, is_new = np.ones(len(counts), bool), np.ones(len(counts), bool)
    is_new[row] = False
    changed[row] = (
        (counts.entries[row] != stored.counts.entries)
        | (counts.exits[row] != stored.counts.exits)
        | (end[row] != stored.end)
        | (peak[row] != stored.peak)
    )
    columns = {
        "hive_id": counts.hive,
        "slot": _times(counts.slot),
        "entries": counts.entries,
        "exits": counts.exits,
        "occupancy_end": end,
        "peak": peak,
        NEW_COLUMN: is_new,
    }
    return pa.table(columns).filter(pa.array(changed))


def hour_rows(hours: OccupancyRollup) -> pa.Table:
    return _rollup(hours, {"slot": _times(hours.name)})


def day_rows(days: OccupancyRollup) -> pa.Table:
    return _rollup(days, {"day": _dates(days.name), "peak_at": _times(days.peak_at)})


def kpi_rows(kpis: DailyKpis, capacity: Numbers) -> pa.Table:
    percent = np.full(len(capacity), np.nan)
    np.divide(100.0 * kpis.mean, capacity, out=percent, where=capacity > 0)
    return pa.table(
        {
            "hive_id": kpis.hive,
            "day": _dates(kpis.day),
            "visits": kpis.visits,
            "mean_occupancy": pa.array(kpis.mean, from_pandas=True),
            "mean_percent": pa.array(percent, from_pandas=True),
            "peak": kpis.peak,
            "peak_hour": kpis.peak_hour,
            "coverage": pa.array(kpis.coverage, from_pandas=True),
        }
    )


def correction_rows(anchors: AnchorsByCause, correction: Numbers) -> pa.Table:
    return pa.table(
        {
            "hive_id": anchors.anchors.hive,
            "at": pa.array(anchors.anchors.at).cast(_UTC),
            "correction": correction,
            "cause": np.where(anchors.manual, "manual", "nightly"),
        }
    )


def _rollup(rollup: OccupancyRollup, name_columns: Mapping[str, pa.Array]) -> pa.Table:
    return pa.table(
        {
            "hive_id": rollup.hive,
            **name_columns,
            "entries": rollup.entries,
            "exits": rollup.exits,
            "occupancy_end": rollup.end,
            "peak": rollup.peak,
            "mean": rollup.mean,
        }
    )


def _times(slots: Numbers) -> pa.Array:
    return pa.array(slots * SLOT_MICROS).cast(_UTC)


def _dates(days: Numbers) -> pa.Array:
    return pa.array(days.astype(np.int32)).cast(pa.date32())


#: The day after the last one with KPIs, or the first day with data.
_UNFINISHED: Final = """
    SELECT t.hive_id, coalesce(finished.day + 1, first.day, '9999-01-01') - '1970-01-01'::date
    FROM unnest(%(hives)s::bigint[]) AS t (hive_id)
    LEFT JOIN LATERAL (
        SELECT day FROM kpi_day k WHERE k.hive_id = t.hive_id ORDER BY day DESC LIMIT 1
    ) AS finished ON true
    LEFT JOIN LATERAL (
        SELECT day FROM occupancy_day d WHERE d.hive_id = t.hive_id ORDER BY day LIMIT 1
    ) AS first ON true
"""


def first_day_without_kpis(connection: Connection, hives: Numbers) -> Numbers:
    """The first day without KPIs of each hive, as days since 1970."""
    kinds = {"hive": "number", "day": "number"}
    found = fetch_columns(connection, _UNFINISHED, kinds, {"hives": hives.tolist()})
    return found["day"][np.argsort(found["hive"])]


@dataclass(frozen=True, slots=True)
class NewHours:
    """Hours that were computed again: of some hives all from a slot on."""

    hours: OccupancyRollup
    hive: Numbers  #: in order
    since: Numbers

    def since_of(self, hives: Numbers) -> Numbers:
        """For hives without new hours, after all."""
        if not len(self.hive):
            return np.full(len(hives), _NEVER)
        row = np.minimum(np.searchsorted(self.hive, hives), len(self.hive) - 1)
        return np.where(self.hive[row] == hives, self.since[row], _NEVER)


_NEVER: Final = np.int64(1 << 40)


def finished_kpis(
    connection: Connection,
    catalogue: HiveCatalogue,
    new: NewHours,
    hives: Numbers,
    since: Numbers,
    until: Numbers,
) -> pa.Table | None:
    """KPIs of the days of these hives, from `since` and before `until`."""
    begin = catalogue.calendars.midnight(hives, since)
    end = catalogue.calendars.midnight(hives, until)
    renewed = new.since_of(hives)
    stored = read_hours(connection, hives, begin, np.minimum(end, renewed))
    row = np.searchsorted(hives, new.hours.hive)
    row = np.minimum(row, len(hives) - 1)
    of_hives = hives[row] == new.hours.hive
    earlier = of_hives & (new.hours.name < begin[row])
    within = of_hives & (new.hours.name >= begin[row]) & (new.hours.name < end[row])
    hours = concat_rollups([stored, new.hours.only(np.flatnonzero(within))])
    if not len(hours):
        return None
    before = read_day_start_levels(connection, hives, np.minimum(begin, renewed))
    # The last hour before the first day may be a new one.
    raw = before.of(hives)
    raw[row[earlier]] = new.hours.end[earlier]
    levels = OccupancyLevels(hives, raw)
    kpis = compute_kpis(hours, levels, catalogue.calendars, catalogue.opening_shares)
    return kpi_rows(kpis, catalogue.capacity_of(kpis.hive))
