"""Anchors: nightly resets and manual counts, from which occupancy is counted.

A nightly reset is stored when it is due (`nightly_reset`), so a later change of opening hours does
not change past nights. A hive without data is not reset: its occupancy is unknown, not zero; its
resets follow when data arrive. `hive_offset` has the anchors that were applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np

from penstock_hives.arrays import Flags, Numbers
from penstock_hives.occupancy.calendars import DAY_MICROS, ResetSchedule, from_day_number
from penstock_hives.occupancy.gold.catalogue import HiveCatalogue
from penstock_hives.occupancy.gold.columns import fetch_columns
from penstock_hives.occupancy.gold.status import HiveFreshness
from penstock_hives.occupancy.slots import EMPTY, SLOT_MICROS, Anchors, SlotCounts, starts_run
from penstock_store import Connection

#: Of nights: none was made.
NO_RESET: Final = -1
NEVER: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class AnchorsByCause:
    """Anchors, with which of them are counts of heads."""

    anchors: Anchors
    manual: Flags

    @classmethod
    def of(cls, anchors: Anchors, manual: Flags) -> AnchorsByCause:
        """In order; of a night and a count at the same moment the count is kept."""
        order = np.lexsort((~manual, anchors.at, anchors.hive))
        hive, at = anchors.hive[order], anchors.at[order]
        kept = order[starts_run(hive) | starts_run(at)]
        return cls(anchors.only(kept), manual[kept])

    def __len__(self) -> int:
        return len(self.anchors)

    def with_(self, other: AnchorsByCause) -> AnchorsByCause:
        hive, at, counted = (
            np.concatenate([getattr(self.anchors, name), getattr(other.anchors, name)])
            for name in ("hive", "at", "counted")
        )
        manual = np.concatenate([self.manual, other.manual])
        return AnchorsByCause.of(Anchors(hive, at, counted), manual)


@dataclass(frozen=True, slots=True)
class AppliedAnchors:
    """Anchors that were reckoned with, and what each has added to what was reckoned until then."""

    caused: AnchorsByCause
    correction: Numbers


_COUNTED = """
    SELECT m.hive_id, m.at, m.counted::bigint
    FROM manual_count m
    WHERE m.at <= to_timestamp(%(now)s / 1000000.0)
      AND NOT EXISTS (
        SELECT FROM hive_offset o
        WHERE o.hive_id = m.hive_id AND o.at = m.at AND o.cause = 'manual'
      )
"""
#: The nights reckoned with so far, and the first slot there is.
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
_INSERT_RESETS = """
    INSERT INTO nightly_reset (hive_id, day, at)
    SELECT hive_id, '1970-01-01'::date + day, to_timestamp(at / 1000000)
    FROM unnest(%(hives)s::bigint[], %(days)s::int[], %(ats)s::bigint[]) AS t (hive_id, day, at)
    ON CONFLICT (hive_id, day) DO NOTHING
"""
_PENDING_RESETS = """
    SELECT hive_id, at
    FROM unnest(%(hives)s::bigint[], %(days)s::int[]) AS t (hive_id, day)
    JOIN nightly_reset n USING (hive_id)
    WHERE n.day = '1970-01-01'::date + t.day AND n.at <= to_timestamp(%(now)s / 1000000)
      AND NOT EXISTS (SELECT FROM hive_offset o WHERE o.hive_id = n.hive_id AND o.at = n.at)
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


def new_manual_counts(connection: Connection, now: int) -> AnchorsByCause:
    """Heads that were counted and not reckoned with yet."""
    kinds = {"hive": "number", "at": "time", "counted": "number"}
    found = fetch_columns(connection, _COUNTED, kinds, {"now": now})
    return AnchorsByCause.of(Anchors(**found), np.ones(len(found["hive"]), bool))


def new_nightly_resets(
    connection: Connection,
    places: HiveCatalogue,
    heard: HiveFreshness,
    counts: SlotCounts,
    now: int,
) -> AnchorsByCause:
    """Nights that are due: over, and the hive was heard of then or after.

    `counts` may reach back before all that was known, and nights lie between.
    """
    kinds = dict.fromkeys(("hive", "first", "earliest", "latest"), "number")
    spans = fetch_columns(connection, _SPANS, kinds, {"hives": heard.hive.tolist()})
    rows = zip(*(column.tolist() for column in spans.values()), strict=True)
    known = {
        hive: (first * SLOT_MICROS, earliest, latest) for hive, first, earliest, latest in rows
    }
    for hive, slot in zip(counts.hive[counts.firsts], counts.slot[counts.firsts], strict=True):
        first, earliest, latest = known.get(int(hive), (NEVER, NO_RESET, NO_RESET))
        known[int(hive)] = (min(first, int(slot) * SLOT_MICROS), earliest, latest)
    due = [
        (hive, day, at)
        for hive, fresh_until in zip(heard.hive.tolist(), heard.fresh_until.tolist(), strict=True)
        if hive in known
        for day, at in _due_resets(places.nights[hive], min(now, fresh_until - 1), *known[hive])
    ]
    return _record_resets(connection, due, now)


def applied_since(connection: Connection, hives: Numbers, slots: Numbers) -> AppliedAnchors:
    """The anchors reckoned with already, from these slots on."""
    kinds = dict.fromkeys(("hive", "at", "counted", "manual", "correction"), "number")
    given = {"hives": hives.tolist(), "since": slots.tolist()}
    found = fetch_columns(connection, _SINCE, kinds | {"at": "time"}, given)
    correction, manual = found.pop("correction"), found.pop("manual") > 0
    order = np.lexsort((found["at"], found["hive"]))
    return AppliedAnchors(AnchorsByCause.of(Anchors(**found), manual), correction[order])


def _due_resets(
    nights: ResetSchedule, until: int, first: int, earliest: int, latest: int
) -> Iterator[tuple[int, int]]:
    """Resets after the first slot and not after `until`, before or after those made already."""
    spans = [(first, until)] if latest == NO_RESET else [(first, earliest - 1), (latest, until)]
    for after, to in spans:
        for day in range(_day(after) - 1, _day(to) + 2):
            at = nights.reset(from_day_number(day))
            if after < at <= to:
                yield day, at


def _record_resets(
    connection: Connection, due: list[tuple[int, int, int]], now: int
) -> AnchorsByCause:
    """Make these nights, but for those made before, perhaps at another time of theirs."""
    if not due:
        return AnchorsByCause.of(Anchors(EMPTY, EMPTY, EMPTY), np.zeros(0, bool))
    hives, days, ats = zip(*due, strict=True)
    given = {"hives": list(hives), "days": list(days), "ats": list(ats), "now": now}
    connection.execute(_INSERT_RESETS, given)
    found = fetch_columns(connection, _PENDING_RESETS, {"hive": "number", "at": "time"}, given)
    empty = np.zeros(len(found["hive"]), np.int64)
    return AnchorsByCause.of(Anchors(found["hive"], found["at"], empty), empty > 0)


def _day(moment: int) -> int:
    """By UTC, which is a day from the local one at most."""
    return moment // DAY_MICROS


#: What was said is never unsaid: a count of the same moment comes a moment later.
_INSERT_MANUAL_COUNT = """
    INSERT INTO manual_count (hive_id, at, counted, by)
    SELECT %(hive)s, greatest(%(at)s, max(at) + interval '1 microsecond'), %(counted)s, %(by)s
    FROM manual_count
    WHERE hive_id = %(hive)s AND at >= %(at)s AND at < %(at)s + interval '1 second'
    RETURNING at
"""


def record_manual_count(
    connection: Connection, hive: int, at: datetime, counted: int, by: str
) -> datetime:
    """Keep a count, and reckon with it in the next batch. The moment it holds from.

    The same moment counted again corrects what was said before.
    """
    given = {"hive": hive, "at": at, "counted": counted, "by": by}
    row = connection.execute(_INSERT_MANUAL_COUNT, given).fetchone()
    assert row is not None
    moment: datetime = row["at"]
    return moment
