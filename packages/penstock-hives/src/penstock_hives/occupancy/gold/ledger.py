"""The occupancy ledger: apply the facts of a batch in one transaction, with the batch id.

Counts are added; occupancy, rollups and statuses are recomputed from the first slot that a batch
changes. A batch whose id is recorded was applied. An advisory lock allows one writer at a time.

The clock is the time of the last message. Between batches `advance_clock` moves it, so that nightly
resets happen and sensors become stale without messages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock_hives.occupancy.gold import anchors, status, tables
from penstock_hives.occupancy.gold.anchors import AnchorsByCause
from penstock_hives.occupancy.gold.catalogue import HiveCatalogue
from penstock_hives.occupancy.gold.status import (
    TREND_SLOTS,
    HiveStatus,
    OccupancyChange,
    latest_change,
)
from penstock_hives.occupancy.gold.tables import GoldWriter
from penstock_hives.occupancy.rollups import concat_rollups, roll_up_days, roll_up_hours
from penstock_hives.occupancy.sensor_states import SENSOR_STATE_SCHEMA
from penstock_hives.occupancy.slots import (
    EMPTY,
    NO_LEVELS,
    SLOT_MICROS,
    SlotCounts,
    anchor_slots,
    compute_occupancy,
    merge_counts,
)
from penstock_store import AppliedBatches, Connection

_LOCK: Final = "SELECT pg_advisory_xact_lock(hashtextextended('penstock_hives.occupancy.gold', %s))"


@dataclass(frozen=True, slots=True)
class LedgerCache:
    """What is not read from the database again; unchanged by a failed transaction."""

    hives: HiveCatalogue | None = None
    clock: int = 0
    #: The slot up to which all hives were checked, not only those with new data.
    checked_slot: int = -1


@dataclass(frozen=True, slots=True)
class LedgerUpdate:
    changed: list[HiveStatus]
    cache: LedgerCache


class OccupancyLedger:
    """The tables of one generation, in one transaction; `search_path` selects the generation."""

    __slots__ = ("_connection", "_flow", "_generation")

    def __init__(self, connection: Connection, flow: str, generation: int = 0) -> None:
        self._connection = connection
        self._flow = flow
        self._generation = generation
        connection.execute(_LOCK, (generation,))

    def is_applied(self, batch: int) -> bool:
        return AppliedBatches(self._connection).applied(self._flow, batch)

    def apply(self, batch: int, facts: BatchFacts, cache: LedgerCache) -> LedgerUpdate:
        writer = self._writer(batch)
        batch_column = [[batch] * facts.states.num_rows]
        writer.merge(
            "sensor_state",
            ["sensor_id"],
            facts.states.drop_columns(["sensor"]).append_column("batch", batch_column),
            owner="sensor",
        )
        writer.merge(
            "sensor_status",
            ["sensor_id"],
            facts.statuses,
            owner="sensor",
            where="excluded.received_at >= target.received_at",
        )
        writer.merge(
            "dead_letter_count",
            ["day", "stream", "reason"],
            facts.dead_letters,
            {
                "count": "target.count + excluded.count",
                "last_at": "greatest(target.last_at, excluded.last_at)",
            },
        )
        clock = max(cache.clock or status.last_received(self._connection), facts.clock)
        update = self._update(writer, facts.counts, clock, cache)
        AppliedBatches(self._connection).mark(self._flow, batch, facts.rows)
        return update

    def advance_clock(self, clock: int, cache: LedgerCache) -> LedgerUpdate:
        """Apply what changes with time alone."""
        return self._update(self._writer(0), NO_COUNTS, max(clock, cache.clock), cache)

    def read_statuses(self) -> list[HiveStatus]:
        return status.read_statuses(self._connection)

    def _writer(self, batch: int) -> GoldWriter:
        # Each generation has its own staging tables.
        name = f"{self._flow}-{self._generation}" if self._generation else self._flow
        return GoldWriter(self._connection, name, batch)

    def _update(
        self, writer: GoldWriter, counts: SlotCounts, clock: int, cache: LedgerCache
    ) -> LedgerUpdate:
        catalogue = HiveCatalogue.read(self._connection, cache.hives)
        counts = counts.only(np.isin(counts.hive, catalogue.hive))
        # Resets are at the start of a slot, and freshness is computed by slot: within a slot only
        # hives with new data can change.
        slot = clock // SLOT_MICROS
        now = slot * SLOT_MICROS
        every = slot > cache.checked_slot or catalogue is not cache.hives
        manual = anchors.new_manual_counts(self._connection, clock)
        checked = catalogue.hive if every else np.union1d(counts.hive, manual.anchors.hive)
        freshness = status.read_freshness(self._connection, checked, now, every=every)
        resets = anchors.new_nightly_resets(self._connection, catalogue, freshness, counts, now)
        new = manual.merged_with(resets)
        touched = merge_counts([counts, anchor_slots(new.anchors)])
        change = self._update_occupancy(writer, catalogue, counts, new, touched)
        self._finish_days(writer, catalogue, touched, now, cache)
        changed = status.update_statuses(self._connection, catalogue, freshness, change, now)
        return LedgerUpdate(changed, LedgerCache(catalogue, clock, max(slot, cache.checked_slot)))

    def _update_occupancy(
        self,
        writer: GoldWriter,
        catalogue: HiveCatalogue,
        counts: SlotCounts,
        new: AnchorsByCause,
        touched: SlotCounts,
    ) -> OccupancyChange:
        """Recompute from the first slot of each hive that counts or anchors touch."""
        if not len(touched):
            return latest_change(compute_occupancy(touched, new.anchors, NO_LEVELS), NO_LEVELS)
        calendars = catalogue.calendars
        hive = touched.hive[touched.firsts]
        # From the start of an hour, with the slots that a trend needs.
        since = calendars.hour(hive, touched.slot[touched.firsts] - TREND_SLOTS + 1)
        stored = tables.read_slots(self._connection, hive, since)
        applied = anchors.applied_since(self._connection, hive, since)
        before = tables.read_levels_before(self._connection, hive, stored.counts, applied)
        merged = applied.anchors.merged_with(new)
        every = merge_counts([stored.counts, counts, anchor_slots(merged.anchors)])
        occupancy = compute_occupancy(every, merged.anchors, before)
        writer.slots(occupancy, stored)
        writer.corrections(merged, occupancy.correction)

        by_hour = roll_up_hours(occupancy, before, calendars)
        writer.hours(by_hour)
        midnight = calendars.midnight(hive, calendars.day(hive, since))
        earlier = tables.read_hours(self._connection, hive, midnight, since)
        yesterday = tables.read_day_start_levels(self._connection, hive, midnight)
        writer.days(roll_up_days(concat_rollups([earlier, by_hour]), yesterday, calendars))
        return latest_change(occupancy, before)

    def _finish_days(
        self,
        writer: GoldWriter,
        catalogue: HiveCatalogue,
        touched: SlotCounts,
        now: int,
        cache: LedgerCache,
    ) -> None:
        """KPIs of days that ended since all hives were checked, or that changed."""
        hives, calendars = catalogue.hive, catalogue.calendars
        today = calendars.day(hives, np.full(len(hives), now // SLOT_MICROS))
        if cache.checked_slot >= 0 and cache.hives is catalogue:
            checked = np.full(len(hives), cache.checked_slot)
            first = np.minimum(today, calendars.day(hives, checked))
        else:
            first = tables.first_day_without_kpis(self._connection, hives)
        rows = np.searchsorted(hives, touched.hive[touched.firsts])
        earliest = touched.slot[touched.firsts]
        first[rows] = np.minimum(first[rows], calendars.day(hives[rows], earliest))
        over = first < today
        tables.write_finished_kpis(writer, catalogue, hives[over], first[over], today[over])


_UTC: Final = pa.timestamp("us", "UTC")
#: The last status of each sensor: table `sensor_status`.
SENSOR_STATUS_SCHEMA: Final = pa.schema(
    [
        ("sensor_id", pa.int64()),
        ("received_at", _UTC),
        ("started_at", _UTC),
        ("battery_mv", pa.int32()),
        ("sensor_state", pa.int32()),
        ("discarded_events", pa.int32()),
        ("signal_dbm", pa.int32()),
        ("firmware", pa.string()),
        ("configuration_id", pa.int64()),
        ("raw", pa.binary()),
    ]
)
#: Dead letters by day: table `dead_letter_count`.
DEAD_LETTER_COUNT_SCHEMA: Final = pa.schema(
    [
        ("day", pa.date32()),
        ("stream", pa.string()),
        ("reason", pa.string()),
        ("count", pa.int64()),
        ("last_at", _UTC),
    ]
)
NO_COUNTS: Final = SlotCounts(EMPTY, EMPTY, EMPTY, EMPTY)


@dataclass(frozen=True, slots=True)
class BatchFacts:
    counts: SlotCounts = NO_COUNTS
    states: pa.Table = field(default_factory=SENSOR_STATE_SCHEMA.empty_table)
    statuses: pa.Table = field(default_factory=SENSOR_STATUS_SCHEMA.empty_table)
    dead_letters: pa.Table = field(default_factory=DEAD_LETTER_COUNT_SCHEMA.empty_table)
    rows: int = 0  #: messages of the batch

    @property
    def clock(self) -> int:
        """When the last message was received: microseconds; 0 without messages."""
        columns = (self.states["received_at"], self.statuses["received_at"])
        return max(pc.max(column.cast(pa.int64())).as_py() or 0 for column in columns)
