"""Table `typical_week`: median entries and occupancy by weekday and local hour.

Medians over the last eight weeks, computed once a day for each hive after its midnight.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from penstock_store import Connection, Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Two months: enough for a median, few enough to follow the seasons.
WEEKS: Final = 8

#: Hives that have nothing of the days since their last midnight; the last day is the one before.
_MAKE: Final = """
    WITH due AS (
        SELECT h.id, h.time_zone, date_trunc('day', %(now)s::timestamptz, h.time_zone) AS until
        FROM hive h
        WHERE NOT EXISTS (
            SELECT FROM typical_week t
            WHERE t.hive_id = h.id
              AND t.made_at >= date_trunc('day', %(now)s::timestamptz, h.time_zone)
        )
    ), heard AS (
        SELECT due.id, due.until, o.slot AT TIME ZONE due.time_zone AS local, o.entries, o.mean
        FROM due
        JOIN occupancy_hour o ON o.hive_id = due.id
            AND o.slot < due.until
            AND o.slot >= due.until - %(weeks)s * interval '7 days'
        WHERE o.mean IS NOT NULL
    )
    INSERT INTO typical_week AS held (hive_id, weekday, hour, entries, occupancy, weeks, made_at)
    SELECT id, extract(isodow FROM local) - 1, extract(hour FROM local),
           percentile_cont(0.5) WITHIN GROUP (ORDER BY entries),
           percentile_cont(0.5) WITHIN GROUP (ORDER BY mean),
           count(DISTINCT local::date), until
    FROM heard
    GROUP BY 1, 2, 3, until
    ON CONFLICT (hive_id, weekday, hour) DO UPDATE SET
        entries = excluded.entries, occupancy = excluded.occupancy, weeks = excluded.weeks,
        made_at = excluded.made_at
"""
#: What has not been heard of for so long is no longer usual.
_DELETE_OLD: Final = """
    DELETE FROM typical_week t USING hive h
    WHERE h.id = t.hive_id AND t.made_at < date_trunc('day', %(now)s::timestamptz, h.time_zone)
"""


class TypicalWeekTask:
    """A chore: whichever hives are due, whenever it looks."""

    def __init__(self, database: str) -> None:
        self._url = database

    def __call__(self, spark: SparkSession) -> None:
        with Database(self._url) as database, database.transaction() as connection:
            update_typical_weeks(connection, datetime.now(UTC))


def update_typical_weeks(connection: Connection, now: datetime) -> None:
    """Of all hives whose last day is not in it yet."""
    given = {"now": now, "weeks": WEEKS}
    connection.execute(_MAKE, given)
    connection.execute(_DELETE_OLD, given)
