"""Columns into the tables of gold: only rows that are new, or other than they were."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from psycopg.sql import SQL, Identifier

from penstock.hives.gold.anchors import Caused
from penstock.hives.gold.slots import Known
from penstock.hives.steps.kpis import Kpis
from penstock.hives.steps.occupancy import SLOT, Occupancy, find
from penstock.hives.steps.rollups import Stretches
from penstock.store import Connection, Staging, discard, merge, stage
from penstock.store.bulk import fill
from penstock.store.copy import HEADER, TRAILER, encode

Numbers = NDArray[np.int64]

_UTC: Final = pa.timestamp("us", "UTC")
_SLOT_KINDS: Final = ("int8", "timestamptz", *("int4",) * 4)
#: Rows made into bytes at a time.
_ROWS: Final = 16_384


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes in one transaction, by way of staging tables that bear its batch's name."""

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
        """Insert rows, or update those that differ. Of `owner`s that are gone rows are dropped."""
        if not table.num_rows:
            return
        names = table.schema.names
        changes = {name: f"excluded.{name}" for name in names if name not in keys}
        changes.update(update or {})
        staging = stage(self.connection, self.flow, self.batch, target, names)
        fill(self.connection, staging, table.to_batches(), part=0)
        if owner:
            self._drop_orphans(staging, owner)
        was = ", ".join(f"target.{name}" for name in changes)
        becomes = ", ".join(changes.values())
        differs = f"({was}) IS DISTINCT FROM ({becomes}) AND {where}"
        merge(self.connection, staging, target, keys, changes, where=differs)
        discard(self.connection, staging)

    def append(self, target: str, table: pa.Table, kinds: Sequence[str]) -> None:
        """Insert rows none of which is there: straight into the table, in half the time."""
        if not table.num_rows:
            return
        names = SQL(", ").join(map(Identifier, table.schema.names))
        statement = SQL("COPY {} ({}) FROM STDIN (FORMAT BINARY)").format(Identifier(target), names)
        with self.connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.write(HEADER)
            for batch in table.to_batches(max_chunksize=_ROWS):
                copy.write(encode(batch, kinds))
            copy.write(TRAILER)

    def slots(self, occupancy: Occupancy, known: Known) -> None:
        """All slots from the first that is known on, so that others are known to be new."""
        counts, end, peak = occupancy.counts, occupancy.end, occupancy.peak
        row = find(counts, known.counts.hive, known.counts.slot)
        new, changed = np.ones(len(counts), bool), np.zeros(len(counts), bool)
        new[row] = False
        changed[row] = (
            (counts.entries[row] != known.counts.entries)
            | (counts.exits[row] != known.counts.exits)
            | (end[row] != known.end)
            | (peak[row] != known.peak)
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

    def hours(self, hours: Stretches) -> None:
        named = {"slot": _times(hours.name)}
        self.merge("occupancy_hour", ["hive_id", "slot"], _rollup(hours, named))

    def days(self, days: Stretches) -> None:
        table = _rollup(days, {"day": _dates(days.name)})
        table = table.append_column("peak_at", _times(days.peak_at))
        self.merge("occupancy_day", ["hive_id", "day"], table)

    def kpis(self, kpis: Kpis, capacity: Numbers) -> None:
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

    def corrections(self, caused: Caused, correction: Numbers) -> None:
        anchors = caused.anchors
        columns = {
            "hive_id": anchors.hive,
            "at": pa.array(anchors.at).cast(_UTC),
            "correction": correction,
            "cause": np.where(caused.manual, "manual", "nightly"),
        }
        self.merge("hive_offset", ["hive_id", "at"], pa.table(columns))

    def _drop_orphans(self, staging: Staging, owner: str) -> None:
        self.connection.execute(
            SQL("DELETE FROM {} AS t WHERE NOT EXISTS (SELECT FROM {} WHERE id = t.{})").format(
                staging.identifier, Identifier(owner), Identifier(f"{owner}_id")
            )
        )


def _rollup(stretches: Stretches, named: Mapping[str, pa.Array]) -> pa.Table:
    return pa.table(
        {
            "hive_id": stretches.hive,
            **named,
            "entries": stretches.entries,
            "exits": stretches.exits,
            "occupancy_end": stretches.end,
            "peak": stretches.peak,
            "mean": stretches.mean,
        }
    )


def _times(slots: Numbers) -> pa.Array:
    return pa.array(slots * SLOT).cast(_UTC)


def _dates(days: Numbers) -> pa.Array:
    return pa.array(days.astype(np.int32)).cast(pa.date32())
