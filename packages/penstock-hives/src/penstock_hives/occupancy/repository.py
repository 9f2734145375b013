"""Results of the pipeline: live occupancy, typical weeks, forecasts; and manual counts."""

from __future__ import annotations

from datetime import date, datetime
from itertools import groupby
from typing import Final

from penstock_hives.database import Connection
from penstock_hives.occupancy.models import (
    CountedHour,
    Forecast,
    ForecastHour,
    HiveDay,
    Occupancy,
    PeakHours,
    TypicalHour,
    TypicalWeek,
)
from penstock_hives.places import repository
from penstock_hives.places.models import ManualCount

#: Visible hives, and hidden ones for callers that may see them.
_SHOWN: Final = f"(%(hidden)s OR {repository.VISIBLE_HIVE})"
_LIVE: Final = f"""
    SELECT h.id, {repository.OCCUPANCY_COLUMNS} FROM hive h {repository.OCCUPANCY_JOINS}
    WHERE {_SHOWN} AND h.id = %(hive)s
"""
_WEEK: Final = f"""
    SELECT w.hive_id, w.weekday, w.hour, w.entries, w.occupancy, w.weeks, w.made_at
    FROM typical_week w JOIN hive h ON h.id = w.hive_id
    WHERE {_SHOWN} AND (%(hive)s::bigint IS NULL OR w.hive_id = %(hive)s)
    ORDER BY w.hive_id, w.weekday, w.hour
"""
#: The latest forecast of each hour of a local day, by default today.
_FORECAST: Final = f"""
    WITH days AS (
        SELECT h.id, h.time_zone,
               coalesce(%(day)s::date, (%(now)s AT TIME ZONE h.time_zone)::date) AS day
        FROM hive h
        WHERE {_SHOWN} AND (%(hive)s::bigint IS NULL OR h.id = %(hive)s)
    ), bounds AS (
        SELECT id, day, day::timestamp AT TIME ZONE time_zone AS begins,
               (day + 1)::timestamp AT TIME ZONE time_zone AS ends
        FROM days
    )
    SELECT DISTINCT ON (b.id, f.slot) b.id, b.day, f.slot, f.p50, f.p90, f.model, f.made_at
    FROM bounds b
    LEFT JOIN forecast f ON f.hive_id = b.id AND f.slot >= b.begins AND f.slot < b.ends
    ORDER BY b.id, f.slot, f.made_at DESC
"""
_PEAKS: Final = """
    SELECT DISTINCT ON (hive_id, day) hive_id, day, starts_at, ends_at FROM forecast_peak
    WHERE hive_id = ANY (%(hives)s) AND day >= %(first)s AND day <= %(last)s
    ORDER BY hive_id, day, made_at DESC
"""
_TODAY: Final = f"""
    SELECT h.id, (%(now)s AT TIME ZONE h.time_zone)::date AS day, o.slot, o.entries, o.peak
    FROM hive h
    LEFT JOIN occupancy_hour o ON o.hive_id = h.id AND o.slot <= %(now)s
        AND o.slot >= (%(now)s AT TIME ZONE h.time_zone)::date::timestamp AT TIME ZONE h.time_zone
    WHERE {_SHOWN} AND (%(hive)s::bigint IS NULL OR h.id = %(hive)s)
    ORDER BY h.id, o.slot
"""
#: A second count of the same time is stored a microsecond later, so that it replaces the first.
INSERT_MANUAL_COUNT: Final = """
    INSERT INTO manual_count (hive_id, at, counted, by)
    SELECT %(hive)s, greatest(%(at)s, max(at) + interval '1 microsecond'), %(counted)s, %(by)s
    FROM manual_count
    WHERE hive_id = %(hive)s AND at >= %(at)s AND at < %(at)s + interval '1 second'
    RETURNING hive_id, at, counted, by
"""


class OccupancyRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def live(
        self, hive: int, now: datetime, *, hidden: bool = False
    ) -> tuple[bool, Occupancy | None]:
        """Whether the hive exists, and its occupancy if it has any data."""
        given = {"hive": hive, "now": now, "hidden": hidden}
        row = await (await self._connection.execute(_LIVE, given)).fetchone()
        return (False, None) if row is None else (True, repository.occupancy_from_row(hive, row))

    async def weeks(self, hive: int | None = None, *, hidden: bool = False) -> list[TypicalWeek]:
        given = {"hive": hive, "hidden": hidden}
        found = await (await self._connection.execute(_WEEK, given)).fetchall()
        names = ("weekday", "hour", "entries", "occupancy", "weeks")
        hours: dict[int, list[TypicalHour]] = {}
        made: dict[int, datetime] = {}
        for row in found:
            hours.setdefault(row["hive_id"], []).append(
                TypicalHour(**{name: row[name] for name in names})
            )
            made[row["hive_id"]] = row["made_at"]
        return [TypicalWeek(each, made[each], tuple(of)) for each, of in hours.items()]

    async def forecasts(
        self,
        now: datetime,
        hive: int | None = None,
        day: date | None = None,
        *,
        hidden: bool = False,
    ) -> list[Forecast]:
        given = {"now": now, "hive": hive, "day": day, "hidden": hidden}
        found = await (await self._connection.execute(_FORECAST, given)).fetchall()
        days = {row["id"]: row["day"] for row in found}
        if not days:
            return []
        span = {"hives": list(days), "first": min(days.values()), "last": max(days.values())}
        peaks = {
            (row["hive_id"], row["day"]): PeakHours(row["starts_at"], row["ends_at"])
            for row in await (await self._connection.execute(_PEAKS, span)).fetchall()
        }
        made = []
        for each, of_hive in groupby(found, lambda row: row["id"]):
            mine = [row for row in of_hive if row["slot"] is not None]
            last = max(mine, key=lambda row: row["made_at"], default=None)
            hours = tuple(ForecastHour(row["slot"], row["p50"], row["p90"]) for row in mine)
            model, at = (None, None) if last is None else (last["model"], last["made_at"])
            peak = peaks.get((each, days[each]))
            made.append(Forecast(each, days[each], model, at, hours, peak))
        return made

    async def days(
        self, now: datetime, hive: int | None = None, *, hidden: bool = False
    ) -> list[HiveDay]:
        """What was counted today, by the clock of each hive."""
        given = {"now": now, "hive": hive, "hidden": hidden}
        found = await (await self._connection.execute(_TODAY, given)).fetchall()
        return [
            HiveDay(
                each,
                day,
                tuple(
                    CountedHour(row["slot"], row["entries"], row["peak"])
                    for row in rows
                    if row["slot"] is not None
                ),
            )
            for (each, day), rows in groupby(found, lambda row: (row["id"], row["day"]))
        ]

    async def count(self, hive: int, at: datetime, counted: int, by: str) -> ManualCount:
        given = {"hive": hive, "at": at, "counted": counted, "by": by}
        row = await (await self._connection.execute(INSERT_MANUAL_COUNT, given)).fetchone()
        assert row is not None
        return ManualCount(**row)

    async def counts(self, hive: int, limit: int) -> list[ManualCount]:
        statement = """
            SELECT hive_id, at, counted, by FROM manual_count WHERE hive_id = %s
            ORDER BY at DESC LIMIT %s
        """
        found = await self._connection.execute(statement, (hive, limit))
        return [ManualCount(**row) async for row in found]
