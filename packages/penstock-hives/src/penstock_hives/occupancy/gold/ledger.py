"""The occupancy ledger: from counts of a batch to the rows that it changes in the gold tables.

Counts are added; occupancy, rollups and statuses are recomputed from the first slot that a batch
changes. Each hive is independent of the others, so any division of the hives into shards gives the
same rows. The ledger only reads the database: rows are staged and merged elsewhere (`staging.py`).

The clock is the time of the last message. Time alone changes hives without messages, too: nightly
resets happen and sensors become stale. `pass_time` computes that.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock_hives.arrays import Numbers
from penstock_hives.occupancy.gold import anchors, status, tables
from penstock_hives.occupancy.gold.anchors import AnchorsByCause
from penstock_hives.occupancy.gold.catalogue import HiveCatalogue, HiveShard
from penstock_hives.occupancy.gold.staging import GoldRows
from penstock_hives.occupancy.gold.status import (
    NO_RECEIPTS,
    TREND_SLOTS,
    DoorReceipts,
    OccupancyChange,
    latest_change,
)
from penstock_hives.occupancy.gold.tables import NewHours
from penstock_hives.occupancy.rollups import concat_rollups, roll_up_days, roll_up_hours
from penstock_hives.occupancy.slots import (
    EMPTY,
    NO_LEVELS,
    SLOT_MICROS,
    SlotCounts,
    anchor_slots,
    compute_occupancy,
    merge_counts,
)
from penstock_store import Connection

NO_COUNTS: Final = SlotCounts(EMPTY, EMPTY, EMPTY, EMPTY)


@dataclass(frozen=True, slots=True)
class HiveFacts:
    """What a batch says of hives."""

    counts: SlotCounts = NO_COUNTS
    receipts: DoorReceipts = field(default_factory=lambda: NO_RECEIPTS)
    clock: int = 0  #: when its last message was received: microseconds

    def of(self, shard: HiveShard) -> HiveFacts:
        return HiveFacts(
            self.counts.take(shard.of(self.counts.hive)),
            self.receipts.take(shard.of(self.receipts.hive)),
            self.clock,
        )

    def to_columns(self) -> dict[str, Any]:
        """As lists of Arrow: one row of a Spark table."""
        parts = (("counts", SlotCounts), ("receipts", DoorReceipts))
        columns: dict[str, Any] = {
            f"{part}_{each.name}": [getattr(getattr(self, part), each.name).tobytes()]
            for part, kind in parts
            for each in fields(kind)
        }
        return {**columns, "clock": [self.clock]}

    @classmethod
    def from_rows(cls, rows: pa.RecordBatch) -> HiveFacts:
        """The facts of several rows together."""
        values: dict[str, Numbers] = {
            name: np.frombuffer(b"".join(rows[name].to_pylist()), np.int64)
            for name in FACT_SCHEMA.names[:-1]
        }
        counts, receipts = (
            [values[f"{part}_{each.name}"] for each in fields(kind)]
            for part, kind in (("counts", SlotCounts), ("receipts", DoorReceipts))
        )
        clock = max(rows["clock"].to_pylist(), default=0)
        return cls(merge_counts([SlotCounts(*counts)]), DoorReceipts(*receipts), clock)


FACT_SCHEMA: Final = pa.schema(
    [
        *((f"counts_{each.name}", pa.binary()) for each in fields(SlotCounts)),
        *((f"receipts_{each.name}", pa.binary()) for each in fields(DoorReceipts)),
        ("clock", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class OccupancyLedger:
    """Reads the tables of one generation; `search_path` selects it."""

    connection: Connection

    def apply(self, facts: HiveFacts, shard: HiveShard) -> GoldRows:
        """Changes of the hives of a shard by a batch, which has these facts of them."""
        manual = anchors.new_manual_counts(self.connection, facts.clock, shard)
        # A message that counts nothing, such as a copy, changes when a hive was heard of.
        heard = (facts.counts.hive, facts.receipts.hive, manual.anchors.hive)
        hives = np.unique(np.concatenate(heard))
        return self._changes(hives, facts, manual)

    def pass_time(self, hives: Numbers, clock: int, shard: HiveShard) -> GoldRows:
        """Changes of hives by time alone."""
        manual = anchors.new_manual_counts(self.connection, clock, shard)
        mine = np.isin(manual.anchors.hive, hives)
        manual = AnchorsByCause(manual.anchors.only(mine), manual.manual[mine])
        return self._changes(hives, HiveFacts(clock=clock), manual)

    def _changes(self, hives: Numbers, facts: HiveFacts, manual: AnchorsByCause) -> GoldRows:
        connection = self.connection
        catalogue = HiveCatalogue.read(connection, hives)
        counts = facts.counts.take(np.flatnonzero(np.isin(facts.counts.hive, catalogue.hive)))
        # Resets are at the start of a slot, and freshness is computed by slot.
        now = facts.clock // SLOT_MICROS * SLOT_MICROS
        freshness = status.read_freshness(connection, catalogue.hive, facts.receipts, now)
        resets, nights = anchors.new_nightly_resets(connection, catalogue, freshness, counts, now)
        new = manual.merged_with(resets)
        touched = merge_counts([counts, anchor_slots(new.anchors)])
        rows, hours, change = self._new_occupancy(catalogue, counts, new, touched)
        kpis = self._finished_days(catalogue, hours, touched, now)
        if kpis is not None:
            rows["kpi_day"] = kpis
        rows["hive_status"] = status.new_statuses(connection, catalogue, freshness, change, now)
        return {**rows, "nightly_reset": nights}

    def _new_occupancy(
        self,
        catalogue: HiveCatalogue,
        counts: SlotCounts,
        new: AnchorsByCause,
        touched: SlotCounts,
    ) -> tuple[dict[str, pa.Table], NewHours, OccupancyChange]:
        """Recompute from the first slot of each hive that counts or anchors touch."""
        if not len(touched):
            nothing = compute_occupancy(touched, new.anchors, NO_LEVELS)
            hours = roll_up_hours(nothing, NO_LEVELS, catalogue.calendars)
            return {}, NewHours(hours, EMPTY, EMPTY), latest_change(nothing, NO_LEVELS)
        connection, calendars = self.connection, catalogue.calendars
        hive = touched.hive[touched.firsts]
        # From the start of an hour, with the slots that a trend needs.
        since = calendars.hour(hive, touched.slot[touched.firsts] - TREND_SLOTS + 1)
        stored = tables.read_slots(connection, hive, since)
        applied = anchors.applied_since(connection, hive, since)
        before = tables.read_levels_before(connection, hive, stored.counts, applied)
        merged = applied.anchors.merged_with(new)
        every = merge_counts([stored.counts, counts, anchor_slots(merged.anchors)])
        occupancy = compute_occupancy(every, merged.anchors, before)

        by_hour = roll_up_hours(occupancy, before, calendars)
        midnight = calendars.midnight(hive, calendars.day(hive, since))
        earlier = tables.read_hours(connection, hive, midnight, since)
        yesterday = tables.read_day_start_levels(connection, hive, midnight)
        by_day = roll_up_days(concat_rollups([earlier, by_hour]), yesterday, calendars)
        rows = {
            "hive_offset": tables.correction_rows(merged, occupancy.correction),
            "occupancy_5min": tables.slot_rows(occupancy, stored),
            "occupancy_hour": tables.hour_rows(by_hour),
            "occupancy_day": tables.day_rows(by_day),
        }
        return rows, NewHours(by_hour, hive, since), latest_change(occupancy, before)

    def _finished_days(
        self, catalogue: HiveCatalogue, hours: NewHours, touched: SlotCounts, now: int
    ) -> pa.Table | None:
        """KPIs of days that are over and have none, or that changed."""
        hives, calendars = catalogue.hive, catalogue.calendars
        if not len(hives):
            return None
        today = calendars.day(hives, np.full(len(hives), now // SLOT_MICROS))
        first = tables.first_day_without_kpis(self.connection, hives)
        rows = np.searchsorted(hives, touched.hive[touched.firsts])
        earliest = touched.slot[touched.firsts]
        first[rows] = np.minimum(first[rows], calendars.day(hives[rows], earliest))
        over = first < today
        if not over.any():
            return None
        return tables.finished_kpis(
            self.connection, catalogue, hours, hives[over], first[over], today[over]
        )
