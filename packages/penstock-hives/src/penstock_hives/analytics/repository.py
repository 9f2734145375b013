"""Results of the pipeline, and user actions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final

from psycopg.types.json import Jsonb

from penstock_hives.analytics.models import (
    AccountMetric,
    Demographics,
    GroupShare,
    Insight,
    Kpi,
    MetricValue,
    NamedCount,
    PeerComparison,
    PeriodSummary,
    Popularity,
    PopularityMeasure,
    PreferenceShift,
    SeriesBucket,
    SeriesPoint,
    Usage,
)
from penstock_hives.database import Connection, insert_row, update_row

_LOCAL: Final = "o.slot AT TIME ZONE h.time_zone"
#: Local time of an hour in each kind of bucket.
_BUCKETS: Final[Mapping[SeriesBucket, str]] = {
    SeriesBucket.HOUR: f"to_char({_LOCAL}, 'YYYY-MM-DD\"T\"HH24:MI')",
    SeriesBucket.DAY: f"to_char({_LOCAL}, 'YYYY-MM-DD')",
    SeriesBucket.WEEK: f"to_char(date_trunc('week', {_LOCAL}), 'YYYY-MM-DD')",
    SeriesBucket.WEEKDAY: f"(extract(isodow FROM {_LOCAL}) - 1)::text",
    SeriesBucket.HOUR_OF_DAY: f"to_char({_LOCAL}, 'HH24')",
    SeriesBucket.TOTAL: "'total'",
}
_KPIS: Final = """
    SELECT hive_id, day, visits, mean_occupancy, mean_percent, peak, peak_hour, coverage
    FROM kpi_day WHERE hive_id = ANY (%(hives)s) AND day >= %(begin)s AND day < %(end)s
    ORDER BY hive_id, day
"""
_WINDOW: Final = """
    SELECT w.hive_id, count(k.day) AS days, coalesce(sum(k.visits), 0) AS visits,
           avg(k.visits)::float8 AS visits_a_day, avg(k.mean_occupancy) AS mean_occupancy,
           max(k.peak) AS peak
    FROM unnest(%(hives)s::bigint[]) AS w (hive_id)
    LEFT JOIN kpi_day k ON k.hive_id = w.hive_id AND k.day >= %(begin)s AND k.day < %(end)s
    GROUP BY w.hive_id ORDER BY w.hive_id
"""
#: Groups of fewer than ten people are not shown.
_GROUPS: Final = """
    SELECT u.{column} AS group, count(DISTINCT u.id) AS people
    FROM user_hive uh JOIN app_user u ON u.id = uh.user_id AND u.deleted_at IS NULL
    WHERE uh.hive_id = %s AND u.{column} IS NOT NULL
    GROUP BY 1 HAVING count(DISTINCT u.id) >= 10 ORDER BY 1
"""
_POPULAR: Final = """
    SELECT p.hive_id, h.name, p.rank, p.score, p.views, p.searches, p.favourites, p.visits, p.day,
           p.window_days
    FROM hive_popularity p JOIN hive h ON h.id = p.hive_id AND h.public AND h.status = 'active'
    WHERE p.window_days = %(window)s
      AND p.day = (SELECT max(day) FROM hive_popularity WHERE window_days = %(window)s)
    ORDER BY {order}p.rank LIMIT %(limit)s
"""
_PEERS: Final = """
    SELECT DISTINCT ON (hive_id) hive_id, day, window_days, visits_now, visits_before,
           occupancy_now, occupancy_before, peers, peer_visits, rank
    FROM hive_comparison WHERE hive_id = ANY (%(hives)s::bigint[]) AND window_days = %(window)s
    ORDER BY hive_id, day DESC
"""
_SHIFTS: Final = """
    SELECT hive_type, share_before, share_now, day, window_days FROM preference_shift
    WHERE window_days = %(window)s
      AND day = (SELECT max(day) FROM preference_shift WHERE window_days = %(window)s)
    ORDER BY abs(share_now - share_before) DESC, hive_type
"""
#: Figure → grouping and condition; of one user or of all.
_USAGE: Final = {
    "pages": ("page_identifier", "action = 'view' AND page_identifier <> ''"),
    "searches": ("lower(data_json ->> 'query')", "action = 'search' AND data_json ? 'query'"),
    "hives": ("hive_id::text", "action = 'view' AND hive_id IS NOT NULL"),
    "favourites": ("hive_id::text", "action = 'favourite' AND hive_id IS NOT NULL"),
}
_METRIC: Final = "id, account_id, name, formula, filter, goal, window_days, updated_at"


class AnalyticsRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def series(
        self, hives: Sequence[int], begin: datetime, end: datetime, bucket: SeriesBucket
    ) -> list[SeriesPoint]:
        statement = f"""
            SELECT o.hive_id, {_BUCKETS[bucket]} AS bucket, sum(o.entries) AS entries,
                   sum(o.exits) AS exits, max(o.peak) AS peak, avg(o.mean) AS mean
            FROM occupancy_hour o JOIN hive h ON h.id = o.hive_id
            WHERE o.hive_id = ANY (%(hives)s) AND o.slot >= %(begin)s AND o.slot < %(end)s
            GROUP BY 1, 2 ORDER BY 1, 2
        """
        given = {"hives": list(hives), "begin": begin, "end": end}
        found = await self._connection.execute(statement, given)
        return [SeriesPoint(**row) async for row in found]

    async def kpis(self, hives: Sequence[int], begin: date, end: date) -> list[Kpi]:
        given = {"hives": list(hives), "begin": begin, "end": end}
        return [Kpi(**row) async for row in await self._connection.execute(_KPIS, given)]

    async def windows(self, hives: Sequence[int], begin: date, end: date) -> list[PeriodSummary]:
        given = {"hives": list(hives), "begin": begin, "end": end}
        found = await self._connection.execute(_WINDOW, given)
        return [PeriodSummary(begins=begin, ends=end, **row) async for row in found]

    async def accounts_of(self, hives: Sequence[int]) -> dict[int, int]:
        statement = "SELECT id, account_id FROM hive WHERE id = ANY (%s)"
        found = await self._connection.execute(statement, (list(hives),))
        return {row["id"]: row["account_id"] async for row in found}

    async def demographics(self, hive: int) -> Demographics:
        groups = []
        for column in ("age_band", "gender"):
            statement = _GROUPS.format(column=column)
            found = await self._connection.execute(statement, (hive,))
            groups.append(tuple([GroupShare(**row) async for row in found]))
        return Demographics(hive, *groups)

    async def popular(self, window: int, by: PopularityMeasure, limit: int) -> list[Popularity]:
        statement = _POPULAR.format(order="" if by is PopularityMeasure.ALL else f"p.{by} DESC, ")
        given = {"window": window, "limit": limit}
        return [Popularity(**row) async for row in await self._connection.execute(statement, given)]

    async def peers(self, hives: Sequence[int], window: int) -> list[PeerComparison]:
        given = {"hives": list(hives), "window": window}
        found = await self._connection.execute(_PEERS, given)
        return [PeerComparison(**row) async for row in found]

    async def shifts(self, window: int) -> list[PreferenceShift]:
        found = await self._connection.execute(_SHIFTS, {"window": window})
        return [PreferenceShift(**row) async for row in found]

    async def record(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Insert user actions; creates partitions of their months."""
        for month in {each["at"].replace(day=1, hour=0, minute=0, second=0) for each in events}:
            await self._connection.execute("SELECT user_analytics_month(%s)", (month,))
        async with self._connection.cursor() as cursor:
            await cursor.executemany(
                """
                INSERT INTO user_analytics (user_id, session_id, page_identifier, action, hive_id,
                                            deal_id, data_json, at)
                VALUES (%(user_id)s, %(session_id)s, %(page_identifier)s, %(action)s,
                        %(hive_id)s, %(deal_id)s, %(data_json)s, %(at)s)
                """,
                [{**each, "data_json": Jsonb(each["data_json"])} for each in events],
            )

    async def record_deals(self, events: Sequence[Mapping[str, Any]]) -> None:
        """That published deals were shown or opened; others are ignored."""
        async with self._connection.cursor() as cursor:
            await cursor.executemany(
                """
                INSERT INTO deal_event (deal_id, user_id, kind, at)
                SELECT id, %(user_id)s, %(kind)s, %(at)s FROM deal
                WHERE id = %(deal_id)s AND status = 'published'
                """,
                events,
            )

    async def usage(self, user: int | None, since: datetime, limit: int) -> Usage:
        given = {"user": user, "since": since, "limit": limit}
        found = {}
        for name, (what, where) in _USAGE.items():
            statement = f"""
                SELECT {what} AS name, count(*) AS count FROM user_analytics
                WHERE {where} AND at >= %(since)s
                  AND (%(user)s::bigint IS NULL OR user_id = %(user)s)
                GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT %(limit)s
            """
            rows = await self._connection.execute(statement, given)
            found[name] = tuple([NamedCount(**row) async for row in rows])
        return Usage(**found)


class MetricRepository:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def of_account(self, account: int) -> list[AccountMetric]:
        statement = f"SELECT {_METRIC} FROM custom_metric WHERE account_id = %s ORDER BY id"
        found = await self._connection.execute(statement, (account,))
        return [AccountMetric(**row) async for row in found]

    async def get(self, metric: int, *, lock: bool = False) -> AccountMetric | None:
        statement = f"SELECT {_METRIC} FROM custom_metric WHERE id = %s"
        statement += " FOR UPDATE" if lock else ""
        row = await (await self._connection.execute(statement, (metric,))).fetchone()
        return None if row is None else AccountMetric(**row)

    async def add(self, values: Mapping[str, Any]) -> int:
        return await insert_row(self._connection, "custom_metric", values)

    async def change(self, metric: int, values: Mapping[str, Any]) -> None:
        await update_row(self._connection, "custom_metric", metric, values)

    async def remove(self, metric: int) -> None:
        await self._connection.execute("DELETE FROM custom_metric WHERE id = %s", (metric,))

    async def values(self, metric: int, begin: date, end: date) -> list[MetricValue]:
        statement = """
            SELECT hive_id, day, value, goal_met FROM custom_metric_value
            WHERE metric_id = %s AND day >= %s AND day < %s ORDER BY hive_id, day
        """
        found = await self._connection.execute(statement, (metric, begin, end))
        return [MetricValue(**row) async for row in found]

    async def insights(self, account: int, hive: int | None, limit: int) -> list[Insight]:
        statement = """
            SELECT id, hive_id, kind, day, title, body, weight, data FROM insight
            WHERE account_id = %(account)s AND (%(hive)s::bigint IS NULL OR hive_id = %(hive)s)
            ORDER BY day DESC, weight DESC, id LIMIT %(limit)s
        """
        given = {"account": account, "hive": hive, "limit": limit}
        return [Insight(**row) async for row in await self._connection.execute(statement, given)]
