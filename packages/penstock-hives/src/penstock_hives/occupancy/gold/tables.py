"""Read and write the tables of slots, hours, days and KPIs.

Only as far back as a batch reaches is read, and only new or changed rows are written. KPIs of a day
are written when the day is over at the hive, and again when a late row changes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from psycopg.sql import SQL, Identifier

from penstock_hives.arrays import Numbers
from penstock_hives.occupancy.calendars import SLOTS_PER_HOUR
from penstock_hives.occupancy.gold.anchors import AnchorsByCause, AppliedAnchors
from penstock_hives.occupancy.gold.catalogue import HiveCatalogue
from penstock_hives.occupancy.gold.columns import fetch_columns
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
from penstock_store import (
    Connection,
    StagingTable,
    create_staging_table,
    drop_staging_table,
    merge_rows,
)
from penstock_store.binary_copy import HEADER, TRAILER, encode_rows
from penstock_store.bulk_load import copy_rows

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
_SLOT_KINDS: Final = ("int8", "timestamptz", *("int4",) * 4)
#: Rows that are encoded at a time.
_ROWS: Final = 16_384


@dataclass(frozen=True, slots=True)
class GoldWriter:
    """Writes in one transaction, through staging tables named after the batch."""

    connection: Connection
    flow: str
    batch: int

    def merge(
        self,
        target: str,
        keys: Sequence[str],
        table: pa.Table,
        update: Mapping[str, str] | None = None,
        *,
        owner: str = "",
        where: str = "true",
    ) -> None:
        """Insert rows, or update those that differ; rows of deleted `owner`s are dropped."""
        if not table.num_rows:
            return
        names = table.schema.names
        changes = {name: f"excluded.{name}" for name in names if name not in keys}
        changes.update(update or {})
        staging = create_staging_table(self.connection, self.flow, self.batch, target, names)
        copy_rows(self.connection, staging, table.to_batches(), part=0)
        if owner:
            self._drop_orphans(staging, owner)
        was = ", ".join(f"target.{name}" for name in changes)
        becomes = ", ".join(changes.values())
        differs = f"({was}) IS DISTINCT FROM ({becomes}) AND {where}"
        merge_rows(self.connection, staging, target, keys, changes, where=differs)
        drop_staging_table(self.connection, staging)

    def append(self, target: str, table: pa.Table, kinds: Sequence[str]) -> None:
        """Insert rows that are all new: directly into the table, in half the time."""
        if not table.num_rows:
            return
        names = SQL(", ").join(map(Identifier, table.schema.names))
        statement = SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(Identifier(target), names)
        with self.connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.write(HEADER)
            for batch in table.to_batches(max_chunksize=_ROWS):
                copy.write(encode_rows(batch, kinds))
            copy.write(TRAILER)

    def slots(self, occupancy: SlotOccupancy, stored: StoredSlots) -> None:
        """`stored` has all rows from the first one on, so other rows are new."""
        counts, end, peak = occupancy.counts, occupancy.end, occupancy.peak
        row = find_slots(counts, stored.counts.hive, stored.counts.slot)
        new, changed = np.ones(len(counts), bool), np.zeros(len(counts), bool)
        new[row] = False
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
        }
        table = pa.table(columns)
        self.append("occupancy_5min", table.filter(pa.array(new)), _SLOT_KINDS)
        self.merge("occupancy_5min", ["hive_id", "slot"], table.filter(pa.array(changed)))

    def hours(self, hours: OccupancyRollup) -> None:
        name_column = {"slot": _times(hours.name)}
        self.merge("occupancy_hour", ["hive_id", "slot"], _rollup(hours, name_column))

    def days(self, days: OccupancyRollup) -> None:
        table = _rollup(days, {"day": _dates(days.name)})
        table = table.append_column("peak_at", _times(days.peak_at))
        self.merge("occupancy_day", ["hive_id", "day"], table)

    def kpis(self, kpis: DailyKpis, capacity: Numbers) -> None:
        percent = np.full(len(capacity), np.nan)
        np.divide(100.0 * kpis.mean, capacity, out=percent, where=capacity > 0)
        columns = {
            "hive_id": kpis.hive,
            "day": _dates(kpis.day),
            "visits": kpis.visits,
            "mean_occupancy": pa.array(kpis.mean, from_pandas=True),
            "mean_percent": pa.array(percent, from_pandas=True),
            "peak": kpis.peak,
            "peak_hour": kpis.peak_hour,
            "coverage": pa.array(kpis.coverage, from_pandas=True),
        }
        self.merge("kpi_day", ["hive_id", "day"], pa.table(columns))

    def corrections(self, anchors: AnchorsByCause, correction: Numbers) -> None:
        columns = {
            "hive_id": anchors.anchors.hive,
            "at": pa.array(anchors.anchors.at).cast(_UTC),
            "correction": correction,
            "cause": np.where(anchors.manual, "manual", "nightly"),
        }
        self.merge("hive_offset", ["hive_id", "at"], pa.table(columns))

    def _drop_orphans(self, staging: StagingTable, owner: str) -> None:
        self.connection.execute(
            SQL("DELETE FROM {} AS t WHERE NOT EXISTS (SELECT FROM {} WHERE id = t.{})").format(
                staging.identifier, Identifier(owner), Identifier(f"{owner}_id")
            )
        )


def _rollup(rollup: OccupancyRollup, name_column: Mapping[str, pa.Array]) -> pa.Table:
    return pa.table(
        {
            "hive_id": rollup.hive,
            **name_column,
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


def write_finished_kpis(
    writer: GoldWriter, catalogue: HiveCatalogue, hives: Numbers, since: Numbers, until: Numbers
) -> None:
    if not len(hives):
        return
    begin = catalogue.calendars.midnight(hives, since)
    end = catalogue.calendars.midnight(hives, until)
    hours = read_hours(writer.connection, hives, begin, end)
    if not len(hours):
        return
    before = read_day_start_levels(writer.connection, hives, begin)
    kpis = compute_kpis(hours, before, catalogue.calendars, catalogue.opening_shares)
    writer.kpis(kpis, catalogue.capacity_of(kpis.hive))
