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
    """What need not be asked of the database again; of a transaction that failed, nothing is."""

    places: HiveCatalogue | None = None
    clock: int = 0
    #: The slot up to which all hives were looked at, not only those with news.
    looked: int = -1


@dataclass(frozen=True, slots=True)
class LedgerUpdate:
    """What became of a batch."""

    changed: list[HiveStatus]
    memory: LedgerCache


class OccupancyLedger:
    """The tables of one generation, in one transaction (`search_path` says which)."""

    __slots__ = ("_connection", "_flow", "_generation")

    def __init__(self, connection: Connection, flow: str, generation: int = 0) -> None:
        self._connection = connection
        self._flow = flow
        self._generation = generation
        connection.execute(_LOCK, (generation,))

    def entered(self, batch: int) -> bool:
        return AppliedBatches(self._connection).applied(self._flow, batch)

    def enter(self, batch: int, facts: BatchFacts, memory: LedgerCache) -> LedgerUpdate:
        """A batch that is not marked. What changed of how hives stand."""
        writer = self._writer(batch)
        writer.merge(
            "sensor_state",
            ["sensor_id"],
            facts.states.drop_columns(["sensor"]).append_column("batch", _same(batch, facts)),
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
        clock = max(memory.clock or status.last_received(self._connection), facts.clock)
        entered = self._settle(writer, facts.counts, clock, memory)
        AppliedBatches(self._connection).mark(self._flow, batch, facts.rows)
        return entered

    def advance_clock(self, clock: int, memory: LedgerCache) -> LedgerUpdate:
        """What time alone does, up to then."""
        return self._settle(self._writer(0), NO_COUNTS, max(clock, memory.clock), memory)

    def standings(self) -> list[HiveStatus]:
        return status.read_statuses(self._connection)

    def _writer(self, batch: int) -> GoldWriter:
        # Another generation's staging tables are others.
        name = f"{self._flow}-{self._generation}" if self._generation else self._flow
        return GoldWriter(self._connection, name, batch)

    def _settle(
        self, writer: GoldWriter, counts: SlotCounts, clock: int, memory: LedgerCache
    ) -> LedgerUpdate:
        places = HiveCatalogue.read(self._connection, memory.places)
        counts = counts.only(np.isin(counts.hive, places.hive))
        # Nights begin with a slot, and silence is told to the slot: within one, only hives with
        # news can change.
        slot = clock // SLOT_MICROS
        now = slot * SLOT_MICROS
        every = slot > memory.looked or places is not memory.places
        counted = anchors.new_manual_counts(self._connection, clock)
        news = np.union1d(counts.hive, counted.anchors.hive)
        looked = places.hive if every else news
        heard = status.read_freshness(self._connection, looked, now, every=every)
        nights = anchors.new_nightly_resets(self._connection, places, heard, counts, now)
        caused = counted.with_(nights)
        inside = self._reckon(writer, places, counts, caused)
        self._finish_days(
            writer, places, merge_counts([counts, anchor_slots(caused.anchors)]), now, memory
        )
        changed = status.update_statuses(self._connection, places, heard, inside, now)
        return LedgerUpdate(changed, LedgerCache(places, clock, max(slot, memory.looked)))

    def _reckon(
        self, writer: GoldWriter, places: HiveCatalogue, counts: SlotCounts, new: AnchorsByCause
    ) -> OccupancyChange:
        """Occupancy of all that counts and anchors touch; how full the hives are then."""
        touched = merge_counts([counts, anchor_slots(new.anchors)])
        if not len(touched):
            return latest_change(compute_occupancy(touched, new.anchors, NO_LEVELS), NO_LEVELS)
        hive = touched.hive[touched.firsts]
        # A whole hour, and the slots a trend looks back on.
        since = places.calendars.hour(hive, touched.slot[touched.firsts] - TREND_SLOTS + 1)
        known = tables.read_slots(self._connection, hive, since)
        corrected = anchors.applied_since(self._connection, hive, since)
        before = tables.read_levels_before(self._connection, hive, known.counts, corrected)
        caused = corrected.caused.with_(new)
        every = merge_counts([known.counts, counts, anchor_slots(caused.anchors)])
        occupancy = compute_occupancy(every, caused.anchors, before)
        writer.slots(occupancy, known)
        writer.corrections(caused, occupancy.correction)

        by_hour = roll_up_hours(occupancy, before, places.calendars)
        writer.hours(by_hour)
        midnight = places.calendars.midnight(hive, places.calendars.day(hive, since))
        earlier = tables.read_hours(self._connection, hive, midnight, since)
        yesterday = tables.read_day_start_levels(self._connection, hive, midnight)
        writer.days(roll_up_days(concat_rollups([earlier, by_hour]), yesterday, places.calendars))
        return latest_change(occupancy, before)

    def _finish_days(
        self,
        writer: GoldWriter,
        places: HiveCatalogue,
        touched: SlotCounts,
        now: int,
        memory: LedgerCache,
    ) -> None:
        """KPIs of days that are over: that ended since all hives were looked at, or changed."""
        today = places.calendars.day(places.hive, np.full(len(places.hive), now // SLOT_MICROS))
        if memory.looked >= 0 and memory.places is places:
            looked = np.full(len(places.hive), memory.looked)
            first = np.minimum(today, places.calendars.day(places.hive, looked))
        else:
            first = tables.first_day_without_kpis(self._connection, places.hive)
        rows = np.searchsorted(places.hive, touched.hive[touched.firsts])
        earliest = touched.slot[touched.firsts]
        first[rows] = np.minimum(first[rows], places.calendars.day(places.hive[rows], earliest))
        over = first < today
        tables.write_finished_kpis(writer, places, places.hive[over], first[over], today[over])


def _same(batch: int, facts: BatchFacts) -> list[list[int]]:
    return [[batch] * facts.states.num_rows]


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
#: How many there were: table `dead_letter_count`.
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
    rows: int = 0  #: messages they were made from

    @property
    def clock(self) -> int:
        """When the last of it came: microseconds; 0, if nothing did."""
        columns = (self.states["received_at"], self.statuses["received_at"])
        return max(pc.max(column.cast(pa.int64())).as_py() or 0 for column in columns)
