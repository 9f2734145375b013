"""Table `hive_status`: occupancy, level, trend and quality of hives now, with a version per change.

Quality is *good* while all sensors are fresh, *partial* while some are, *stale* when none is; a
stale hive has no level. A sensor is fresh for twice its reporting interval (its status interval, if
it sends events). Times are those of the messages, so a replay gives the same result.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Final

import numpy as np
import pyarrow as pa
from psycopg.sql import SQL, Composable

from penstock_hives.arrays import Floats, Numbers, Texts
from penstock_hives.occupancy.gold.catalogue import HiveCatalogue
from penstock_hives.occupancy.gold.columns import fetch_columns
from penstock_hives.occupancy.slots import EMPTY, SLOT_MICROS, OccupancyLevels, SlotOccupancy
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
    SELECT s.hive_id, s.id, coalesce(st.received_at, 'epoch'), coalesce(ss.received_at, 'epoch'),
           (s.protocol = 'event')::int::bigint,
           120000000 * CASE s.protocol WHEN 'event'
               THEN coalesce(c.status_interval_min, %(status)s)
               ELSE coalesce(c.report_interval_min, %(report)s) END::bigint
    FROM sensor s
    LEFT JOIN sensor_report_config c ON c.id = s.report_config_id
    LEFT JOIN sensor_state st ON st.sensor_id = s.id
    LEFT JOIN sensor_status ss ON ss.sensor_id = s.id
    WHERE s.state = 'active' AND s.hive_id = ANY (%(hives)s::bigint[])
"""
_CLOCK: Final = """
    SELECT coalesce(max(received_at), 'epoch') FROM (
        SELECT max(received_at) AS received_at FROM sensor_state
        UNION ALL SELECT max(received_at) FROM sensor_status
    ) AS received
"""


@dataclass(frozen=True, slots=True)
class DoorReceipts:
    """When sensors of a batch sent their last message and their last status: microseconds."""

    sensor: Numbers
    hive: Numbers
    received: Numbers  #: 0: none
    status: Numbers  #: 0: none

    def take(self, rows: Numbers) -> DoorReceipts:
        return DoorReceipts(*(getattr(self, name)[rows] for name in DoorReceipts.__slots__))

    @property
    def last(self) -> int:
        return int(max(self.received.max(initial=0), self.status.max(initial=0)))


NO_RECEIPTS: Final = DoorReceipts(EMPTY, EMPTY, EMPTY, EMPTY)


def read_freshness(
    connection: Connection, hives: Numbers, receipts: DoorReceipts, now: int
) -> HiveFreshness:
    """Of these hives in order, with what a batch has received."""
    default = SensorConfiguration()
    given = {
        "status": default.status_interval_min,
        "report": default.report_interval_min,
        "hives": hives.tolist(),
    }
    kinds = {"hive": "number", "sensor": "number", "received": "time", "status": "time"}
    kinds |= {"events": "number", "interval": "number"}
    doors = fetch_columns(connection, _DOORS, kinds, given)
    received, status = doors["received"], doors["status"]
    order = np.argsort(doors["sensor"])
    at = np.searchsorted(doors["sensor"], receipts.sensor, sorter=order)
    at = order[np.minimum(at, len(order) - 1)] if len(order) else EMPTY
    known = np.flatnonzero(doors["sensor"][at] == receipts.sensor[: len(at)])
    # A sensor may occur twice: with its reports and with its statuses.
    np.maximum.at(received, at[known], receipts.received[known])
    np.maximum.at(status, at[known], receipts.status[known])

    row = np.searchsorted(hives, doors["hive"])
    heard = np.where(doors["events"] > 0, np.maximum(received, status), received)
    until = np.where(heard > 0, heard + doors["interval"], 0)
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


_ALL: Final = SQL("true")


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


def read_statuses(
    connection: Connection, where: Composable = _ALL, limit: int | None = None
) -> list[HiveStatus]:
    statement = SQL("SELECT {} FROM hive_status WHERE {} ORDER BY hive_id LIMIT {}").format(
        SQL(_COLUMNS), where, limit
    )
    return [HiveStatus(**row) for row in connection.execute(statement)]


def new_statuses(
    connection: Connection,
    catalogue: HiveCatalogue,
    freshness: HiveFreshness,
    news: OccupancyChange,
    now: int,
) -> pa.Table:
    """Rows of `hive_status` of hives with new counts, and of others that have a status."""
    inside, trend = _current_change(connection, freshness.hive, news)
    rows = np.isin(freshness.hive, inside.hive)
    fresh = HiveFreshness(*(getattr(freshness, name)[rows] for name in HiveFreshness.__slots__))
    made = compute_statuses(inside, catalogue.capacity_of(inside.hive), trend, fresh, now)
    return pa.table(
        {
            "hive_id": made.hive,
            "occupancy": made.occupancy,
            "raw_occupancy": made.raw,
            "percent": pa.array(made.percent, from_pandas=True).cast(pa.float32()),
            "level": pa.array(made.level, mask=made.level == NO_LEVEL),
            "trend": made.trend,
            "quality": made.quality,
            "as_of": pa.array(made.as_of).cast(pa.timestamp("us", "UTC")),
        }
    )


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
