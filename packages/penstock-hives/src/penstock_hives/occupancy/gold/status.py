"""Table `hive_status`: occupancy, level, trend and quality of hives now, with a version per change.

Quality is *good* while all sensors are fresh, *partial* while some are, *stale* when none is; a
stale hive has no level. A sensor is fresh for twice its reporting interval (its status interval, if
it sends events). Times are those of the messages, so a replay gives the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import numpy as np

from penstock_hives.arrays import Floats, Numbers, Texts
from penstock_hives.occupancy.gold.catalogue import HiveCatalogue
from penstock_hives.occupancy.gold.columns import fetch_columns
from penstock_hives.occupancy.slots import SLOT_MICROS, OccupancyLevels, SlotOccupancy
from penstock_hives.sensors.protocol.messages import SensorConfiguration
from penstock_store import Connection

#: A trend is the change over this many slots: a quarter of an hour.
TREND_SLOTS: Final = 3
#: Upper bounds of levels in percent of the capacity.
_LEVELS: Final = ((40.0, "quiet"), (70.0, "moderate"), (95.0, "busy"))
_FULL: Final = "full"
NO_LEVEL: Final = ""
#: The change of hives without new counts.
UNKNOWN_CHANGE: Final = np.iinfo(np.int64).min
#: The least change that is a trend: people, and share of the capacity.
_FEW: Final = 2
_SHARE: Final = 0.05


@dataclass(frozen=True, slots=True)
class HiveFreshness:
    """Of hives: when their sensors sent data, and until when these are fresh."""

    hive: Numbers
    as_of: Numbers  #: microseconds, of the last message; 0: none
    doors: Numbers
    fresh: Numbers  #: doors with fresh data
    fresh_until: Numbers  #: of the door that stays fresh longest

    def quality(self) -> Texts:
        return np.select([self.fresh == 0, self.fresh < self.doors], ["stale", "partial"], "good")


@dataclass(frozen=True, slots=True)
class OccupancyChange:
    """Of hives in order: raw occupancy, and its change over the trend period."""

    hive: Numbers
    raw: Numbers
    change: Numbers


def latest_change(occupancy: SlotOccupancy, before: OccupancyLevels) -> OccupancyChange:
    """From slots that begin `TREND_SLOTS` before the last of each hive or earlier."""
    counts, end = occupancy.counts, occupancy.end
    first = np.flatnonzero(counts.firsts)
    last = np.append(first[1:], len(counts))[: len(first)] - 1
    # The last row before the trend period; without one, the level before.
    then = counts.slot[last] - TREND_SLOTS
    least = counts.slot.min(initial=0) - TREND_SLOTS
    span = counts.slot.max(initial=0) - least + 1
    group = np.cumsum(counts.firsts) - 1
    keys = group * span + counts.slot - least
    earlier = np.searchsorted(keys, np.arange(len(first)) * span + then - least, "right") - 1
    known = earlier >= first
    ahead = np.maximum(before.of(counts.hive[last]), 0)
    was = np.where(known, end[np.maximum(earlier, 0)], ahead)
    return OccupancyChange(counts.hive[last], occupancy.raw[last], end[last] - was)


@dataclass(frozen=True, slots=True)
class HiveStatusColumns:
    """Rows of `hive_status` without their versions."""

    hive: Numbers
    occupancy: Numbers
    raw: Numbers
    percent: Floats  #: NaN without a capacity
    level: Texts  #: empty without a capacity, and of stale hives
    trend: Texts
    quality: Texts
    as_of: Numbers


def compute_statuses(
    inside: OccupancyChange,
    capacity: Numbers,
    was: Texts,
    freshness: HiveFreshness,
    now: Numbers | int,
) -> HiveStatusColumns:
    """Of the same hives in the same order; a capacity of 0 is unknown.

    `was` is the trend so far, of hives without new counts (`UNKNOWN_CHANGE`).
    """
    occupancy = np.maximum(inside.raw, 0)
    percent = np.full(len(occupancy), np.nan)
    np.divide(100.0 * occupancy, capacity, out=percent, where=capacity > 0)
    quality = freshness.quality()
    level = np.select([percent < most for most, _ in _LEVELS], [word for _, word in _LEVELS], _FULL)
    level = np.where(np.isnan(percent) | (quality == "stale"), NO_LEVEL, level)
    return HiveStatusColumns(
        hive=inside.hive,
        occupancy=occupancy,
        raw=inside.raw,
        percent=percent,
        level=level,
        trend=_trend(inside, occupancy, capacity, was, freshness.as_of, now),
        quality=quality,
        as_of=freshness.as_of,
    )


def _trend(
    inside: OccupancyChange,
    occupancy: Numbers,
    capacity: Numbers,
    was: Texts,
    as_of: Numbers,
    now: Numbers | int,
) -> Texts:
    most = np.where(capacity > 0, capacity, np.maximum(occupancy, occupancy - inside.change))
    enough = np.maximum(_FEW, np.ceil(most * _SHARE))
    silent = now - as_of > TREND_SLOTS * SLOT_MICROS
    return np.select(
        [
            silent,
            inside.change == UNKNOWN_CHANGE,
            inside.change >= enough,
            inside.change <= -enough,
        ],
        ["steady", was, "rising", "falling"],
        "steady",
    )


#: A sensor that sends events is silent while nobody passes: its statuses keep it fresh. Of other
#: sensors only reports do.
_DOORS: Final = """
    SELECT s.hive_id,
           coalesce(st.received_at, 'epoch'),
           coalesce(
               CASE s.protocol WHEN 'event'
                   THEN greatest(st.received_at, ss.received_at)
                        + 2 * coalesce(c.status_interval_min, %(status)s) * interval '1 minute'
                   ELSE st.received_at
                        + 2 * coalesce(c.report_interval_min, %(report)s) * interval '1 minute'
               END, 'epoch')
    FROM sensor s
    LEFT JOIN sensor_report_config c ON c.id = s.report_config_id
    LEFT JOIN sensor_state st ON st.sensor_id = s.id
    LEFT JOIN sensor_status ss ON ss.sensor_id = s.id
    WHERE s.state = 'active' AND (%(every)s OR s.hive_id = ANY (%(hives)s::bigint[]))
"""
_CLOCK: Final = """
    SELECT coalesce(max(received_at), 'epoch') FROM (
        SELECT max(received_at) AS received_at FROM sensor_state
        UNION ALL SELECT max(received_at) FROM sensor_status
    ) AS received
"""


def read_freshness(
    connection: Connection, hives: Numbers, now: int, *, every: bool
) -> HiveFreshness:
    """Of these hives in order; `every`: they are all hives."""
    default = SensorConfiguration()
    given = {
        "status": default.status_interval_min,
        "report": default.report_interval_min,
        "hives": [] if every else hives.tolist(),
        "every": every,
    }
    kinds = {"hive": "number", "received": "time", "until": "time"}
    doors = fetch_columns(connection, _DOORS, kinds, given)
    known = np.isin(doors["hive"], hives)
    row = np.searchsorted(hives, doors["hive"][known])
    received, until = doors["received"][known], doors["until"][known]
    as_of, fresh_until, count, fresh = (np.zeros(len(hives), np.int64) for _ in range(4))
    np.maximum.at(as_of, row, received)
    np.maximum.at(fresh_until, row, until)
    np.add.at(count, row, 1)
    np.add.at(fresh, row, until > now)
    return HiveFreshness(hives, as_of, count, fresh, fresh_until)


def last_received(connection: Connection) -> int:
    """When the last message was received: microseconds."""
    return int(fetch_columns(connection, _CLOCK, {"at": "time"}, {})["at"][0])


_TRENDS: Final = ("falling", "steady", "rising")
_READ: Final = """
    SELECT hive_id, raw_occupancy::bigint,
           CASE trend WHEN 'falling' THEN 0 WHEN 'steady' THEN 1 ELSE 2 END::bigint
    FROM hive_status WHERE hive_id = ANY (%(hives)s::bigint[])
"""
_COLUMNS: Final = (
    "hive_id, occupancy, raw_occupancy, percent, level, trend, quality, as_of, version"
)
_WRITE: Final = f"""
    INSERT INTO hive_status AS stored ({_COLUMNS})
    SELECT hive_id, occupancy, raw, percent, nullif(level, ''), trend, quality,
           to_timestamp(as_of / 1000000) + as_of %% 1000000 * interval '1 microsecond', 1
    FROM unnest(
        %(hive)s::bigint[], %(occupancy)s::int[], %(raw)s::int[], %(percent)s::real[],
        %(level)s::text[], %(trend)s::text[], %(quality)s::text[], %(as_of)s::bigint[]
    ) AS t (hive_id, occupancy, raw, percent, level, trend, quality, as_of)
    ON CONFLICT (hive_id) DO UPDATE SET
        occupancy = excluded.occupancy, raw_occupancy = excluded.raw_occupancy,
        percent = excluded.percent, level = excluded.level, trend = excluded.trend,
        quality = excluded.quality, as_of = excluded.as_of, version = stored.version + 1
    WHERE (stored.occupancy, stored.raw_occupancy, stored.percent, stored.level, stored.trend,
           stored.quality, stored.as_of)
        IS DISTINCT FROM (excluded.occupancy, excluded.raw_occupancy, excluded.percent,
           excluded.level, excluded.trend, excluded.quality, excluded.as_of)
    RETURNING {_COLUMNS}
"""
_ALL: Final = f"SELECT {_COLUMNS} FROM hive_status ORDER BY hive_id"


@dataclass(frozen=True, slots=True)
class HiveStatus:
    hive_id: int
    occupancy: int
    raw_occupancy: int
    percent: float | None
    level: str | None
    trend: str
    quality: str
    as_of: datetime
    version: int


def read_statuses(connection: Connection) -> list[HiveStatus]:
    return [HiveStatus(**row) for row in connection.execute(_ALL)]


def update_statuses(
    connection: Connection,
    catalogue: HiveCatalogue,
    freshness: HiveFreshness,
    news: OccupancyChange,
    now: int,
) -> list[HiveStatus]:
    """Update hives with new counts, and what time changed of others; return changed statuses."""
    inside, trend = _current_change(connection, freshness.hive, news)
    rows = np.isin(freshness.hive, inside.hive)
    fresh = HiveFreshness(*(getattr(freshness, name)[rows] for name in HiveFreshness.__slots__))
    made = compute_statuses(inside, catalogue.capacity_of(inside.hive), trend, fresh, now)
    changed = connection.execute(_WRITE, _to_lists(made)).fetchall() if len(made.hive) else []
    return [HiveStatus(**row) for row in changed]


def _current_change(
    connection: Connection, hives: Numbers, news: OccupancyChange
) -> tuple[OccupancyChange, Texts]:
    """With the stored values of hives without new counts."""
    kinds = dict.fromkeys(("hive", "raw", "trend"), "number")
    stored = fetch_columns(connection, _READ, kinds, {"hives": hives.tolist()})
    quiet = ~np.isin(stored["hive"], news.hive)
    hive = np.concatenate([news.hive, stored["hive"][quiet]])
    order = np.argsort(hive)
    raw = np.concatenate([news.raw, stored["raw"][quiet]])
    change = np.concatenate([news.change, np.full(quiet.sum(), UNKNOWN_CHANGE)])
    trend = np.concatenate([np.ones(len(news.hive), np.int64), stored["trend"][quiet]])
    return (
        OccupancyChange(hive[order], raw[order], change[order]),
        np.array(_TRENDS)[trend[order]],
    )


def _to_lists(made: HiveStatusColumns) -> dict[str, Sequence[Any]]:
    percent = [None if np.isnan(each) else float(each) for each in made.percent]
    columns: dict[str, Sequence[Any]] = {
        name: getattr(made, name).tolist() for name in HiveStatusColumns.__slots__
    }
    return {**columns, "percent": percent}
