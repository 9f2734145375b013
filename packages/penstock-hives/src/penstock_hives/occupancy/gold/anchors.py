"""Anchors: nightly resets and manual counts, from which occupancy is counted.

A nightly reset is stored when it is due (`nightly_reset`), so a later change of opening hours does
not change past nights. A hive without data is not reset: its occupancy is unknown, not zero; its
resets follow when data arrive. `hive_offset` has the anchors that were applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from penstock_hives.arrays import Flags, Numbers, is_run_start
from penstock_hives.dates import date_of
from penstock_hives.occupancy.calendars import DAY_MICROS, ResetSchedule
from penstock_hives.occupancy.gold.catalogue import HiveCatalogue, HiveShard
from penstock_hives.occupancy.gold.columns import fetch_columns
from penstock_hives.occupancy.gold.status import HiveFreshness
from penstock_hives.occupancy.slots import EMPTY, SLOT_MICROS, Anchors, SlotCounts
from penstock_store import Connection

#: No nightly reset was applied.
NO_RESET: Final = -1
NEVER: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class AnchorsByCause:
    """Anchors, and which of them are manual counts."""

    anchors: Anchors
    manual: Flags

    @classmethod
    def of(cls, anchors: Anchors, manual: Flags) -> AnchorsByCause:
        """In order; a manual count replaces a nightly reset at the same time."""
        order = np.lexsort((~manual, anchors.at, anchors.hive))
        hive, at = anchors.hive[order], anchors.at[order]
        rows = order[is_run_start(hive) | is_run_start(at)]
        return cls(anchors.only(rows), manual[rows])

    def __len__(self) -> int:
        return len(self.anchors)

    def merged_with(self, other: AnchorsByCause) -> AnchorsByCause:
        hive, at, counted = (
            np.concatenate([getattr(self.anchors, name), getattr(other.anchors, name)])
            for name in ("hive", "at", "counted")
        )
        manual = np.concatenate([self.manual, other.manual])
        return AnchorsByCause.of(Anchors(hive, at, counted), manual)


@dataclass(frozen=True, slots=True)
class AppliedAnchors:
    """Anchors that were applied, and the difference that each made."""

    anchors: AnchorsByCause
    correction: Numbers


_COUNTED = """
    SELECT m.hive_id, m.at, m.counted::bigint
    FROM manual_count m
    WHERE m.at <= to_timestamp(%(now)s / 1000000.0)
      AND m.hive_id %% %(shards)s = %(shard)s
      AND NOT EXISTS (
        SELECT FROM hive_offset o
        WHERE o.hive_id = m.hive_id AND o.at = m.at AND o.cause = 'manual'
      )
"""
#: The nightly resets applied so far, and the first slot.
_SPANS = """
    SELECT t.hive_id,
           extract(epoch FROM first.slot)::bigint / 300,
           coalesce(extract(epoch FROM earliest.at)::bigint * 1000000, -1),
           coalesce(extract(epoch FROM latest.at)::bigint * 1000000, -1)
    FROM unnest(%(hives)s::bigint[]) AS t (hive_id)
    CROSS JOIN LATERAL (
        SELECT slot FROM occupancy_5min o WHERE o.hive_id = t.hive_id ORDER BY slot LIMIT 1
    ) AS first
    LEFT JOIN LATERAL (
        SELECT at FROM hive_offset o
        WHERE o.hive_id = t.hive_id AND cause = 'nightly' ORDER BY at LIMIT 1
    ) AS earliest ON true
    LEFT JOIN LATERAL (
        SELECT at FROM hive_offset o
        WHERE o.hive_id = t.hive_id AND cause = 'nightly' ORDER BY at DESC LIMIT 1
    ) AS latest ON true
"""
#: The time of a night that is stored counts, perhaps another one.
_PENDING_RESETS = """
    SELECT * FROM (
        SELECT t.hive_id, t.day::bigint, coalesce(n.at, to_timestamp(t.at / 1000000))
        FROM unnest(%(hives)s::bigint[], %(days)s::int[], %(ats)s::bigint[]) AS t (hive_id, day, at)
        LEFT JOIN nightly_reset n ON n.hive_id = t.hive_id AND n.day = '1970-01-01'::date + t.day
    ) AS due (hive_id, day, at)
    WHERE at <= to_timestamp(%(now)s / 1000000)
      AND NOT EXISTS (SELECT FROM hive_offset o WHERE o.hive_id = due.hive_id AND o.at = due.at)
"""
_SINCE = """
    SELECT o.hive_id, o.at, coalesce(m.counted, 0)::bigint, (o.cause = 'manual')::int::bigint,
           o.correction
    FROM unnest(%(hives)s::bigint[], %(since)s::bigint[]) AS t (hive_id, since)
    CROSS JOIN LATERAL (
        SELECT * FROM hive_offset o
        WHERE o.hive_id = t.hive_id AND o.at >= to_timestamp(t.since * 300)
        ORDER BY o.at
    ) AS o
    LEFT JOIN manual_count m ON m.hive_id = o.hive_id AND m.at = o.at AND o.cause = 'manual'
"""


def new_manual_counts(connection: Connection, now: int, shard: HiveShard) -> AnchorsByCause:
    kinds = {"hive": "number", "at": "time", "counted": "number"}
    given = {"now": now, "shard": shard.number, "shards": shard.shards}
    found = fetch_columns(connection, _COUNTED, kinds, given)
    return AnchorsByCause.of(Anchors(**found), np.ones(len(found["hive"]), bool))


def new_nightly_resets(
    connection: Connection,
    catalogue: HiveCatalogue,
    freshness: HiveFreshness,
    counts: SlotCounts,
    now: int,
) -> tuple[AnchorsByCause, pa.Table]:
    """Resets that are due: past, and the hive has data at or after that time.

    `counts` may be older than all stored slots, with resets between. The second value has all
    nights that are due, for the table `nightly_reset`.
    """
    kinds = dict.fromkeys(("hive", "first", "earliest", "latest"), "number")
    spans = fetch_columns(connection, _SPANS, kinds, {"hives": freshness.hive.tolist()})
    rows = zip(*(column.tolist() for column in spans.values()), strict=True)
    known = {
        hive: (first * SLOT_MICROS, earliest, latest) for hive, first, earliest, latest in rows
    }
    for hive, slot in zip(counts.hive[counts.firsts], counts.slot[counts.firsts], strict=True):
        first, earliest, latest = known.get(int(hive), (NEVER, NO_RESET, NO_RESET))
        known[int(hive)] = (min(first, int(slot) * SLOT_MICROS), earliest, latest)
    due = [
        (hive, day, at)
        for hive, until in zip(freshness.hive.tolist(), freshness.fresh_until.tolist(), strict=True)
        if hive in known
        for day, at in due_resets(catalogue.schedules[hive], min(now, until - 1), *known[hive])
    ]
    return _pending_resets(connection, due, now)


def applied_since(connection: Connection, hives: Numbers, slots: Numbers) -> AppliedAnchors:
    """The anchors applied from these slots on."""
    kinds = dict.fromkeys(("hive", "at", "counted", "manual", "correction"), "number")
    given = {"hives": hives.tolist(), "since": slots.tolist()}
    found = fetch_columns(connection, _SINCE, kinds | {"at": "time"}, given)
    correction, manual = found.pop("correction"), found.pop("manual") > 0
    order = np.lexsort((found["at"], found["hive"]))
    return AppliedAnchors(AnchorsByCause.of(Anchors(**found), manual), correction[order])


def due_resets(
    schedule: ResetSchedule, until: int, first: int, earliest: int, latest: int
) -> Iterator[tuple[int, int]]:
    """Resets after the first slot and not after `until`, before or after those applied."""
    spans = [(first, until)] if latest == NO_RESET else [(first, earliest - 1), (latest, until)]
    for after, to in spans:
        # Days of UTC: at most one day from the local one.
        for day in range(after // DAY_MICROS - 1, to // DAY_MICROS + 2):
            at = schedule.reset(date_of(day))
            if after < at <= to:
                yield day, at


def _pending_resets(
    connection: Connection, due: list[tuple[int, int, int]], now: int
) -> tuple[AnchorsByCause, pa.Table]:
    """Those of these resets that were not applied."""
    hives, days, ats = np.array(due, np.int64).reshape(-1, 3).T
    found = {"hive": EMPTY, "day": EMPTY, "at": EMPTY}
    if due:
        given = {"hives": hives.tolist(), "days": days.tolist(), "ats": ats.tolist(), "now": now}
        kinds = {"hive": "number", "day": "number", "at": "time"}
        found = fetch_columns(connection, _PENDING_RESETS, kinds, given)
    nights = pa.table(
        {
            "hive_id": hives,
            "day": pa.array(days.astype(np.int32)).cast(pa.date32()),
            "at": pa.array(ats).cast(pa.timestamp("us", "UTC")),
        }
    )
    nobody = np.zeros(len(found["hive"]), np.int64)
    anchors = Anchors(found["hive"], found["at"], nobody)
    return AnchorsByCause.of(anchors, nobody > 0), nights
