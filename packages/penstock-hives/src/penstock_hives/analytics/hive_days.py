"""Hive days: the figures of a hive on a local day, and the user actions of that day.

A row for each hive and day with any data; missing counts are null, missing actions are 0. All
analytics are computed from these rows.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock_hives.partitions import read_partitioned

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HIVE_DAY_SCHEMA: Final = pa.schema(
    [
        ("hive_id", pa.int64()),
        ("account_id", pa.int64()),
        ("hive_type", pa.string()),
        ("hive", pa.string()),
        ("day", pa.date32()),
        ("visits", pa.int64()),
        ("entries", pa.int64()),
        ("exits", pa.int64()),
        ("peak", pa.int64()),
        ("mean_occupancy", pa.float64()),
        ("mean_percent", pa.float64()),
        ("coverage", pa.float64()),
        ("views", pa.int64()),
        ("searches", pa.int64()),
        ("favourites", pa.int64()),
        ("deal_opens", pa.int64()),
        ("deal_redemptions", pa.int64()),
        ("feedback", pa.int64()),
        ("sentiment", pa.float64()),
    ]
)
#: Each partition has whole hives, so that a day is in one partition.
_DAYS: Final = """
    WITH ours AS (
        SELECT h.id, h.account_id, h.name, h.time_zone, t.code AS hive_type
        FROM hive h JOIN hive_type t ON t.id = h.hive_type_id
        WHERE h.status = 'active' AND h.id %% %(shares)s = %(share)s
    ), actions AS (
        SELECT a.hive_id, (a.at AT TIME ZONE ours.time_zone)::date AS day,
               count(*) FILTER (WHERE action IN ('view', 'navigate')) AS views,
               count(*) FILTER (WHERE action = 'search') AS searches,
               count(*) FILTER (WHERE action = 'favourite') AS favourites
        FROM user_analytics a JOIN ours ON ours.id = a.hive_id
        WHERE a.at >= %(since)s::date - 1 AND a.at < %(until)s::date + 2
        GROUP BY 1, 2
    ), offers AS (
        SELECT d.hive_id, (e.at AT TIME ZONE ours.time_zone)::date AS day,
               count(*) FILTER (WHERE e.kind = 'opened') AS deal_opens,
               count(*) FILTER (WHERE e.kind = 'redeemed') AS deal_redemptions
        FROM deal_event e JOIN deal d ON d.id = e.deal_id JOIN ours ON ours.id = d.hive_id
        WHERE e.at >= %(since)s::date - 1 AND e.at < %(until)s::date + 2
        GROUP BY 1, 2
    ), messages AS (
        SELECT m.hive_id, (m.created_at AT TIME ZONE ours.time_zone)::date AS day,
               count(*) AS feedback, avg(m.sentiment) AS sentiment
        FROM user_message m JOIN ours ON ours.id = m.hive_id
        WHERE m.type = 'feedback' AND m.created_at >= %(since)s::date - 1
          AND m.created_at < %(until)s::date + 2
        GROUP BY 1, 2
    )
    SELECT ours.id AS hive_id, ours.account_id, ours.hive_type, ours.name AS hive, day,
           k.visits, o.entries, o.exits, k.peak, k.mean_occupancy,
           k.mean_percent::float8 AS mean_percent, k.coverage::float8 AS coverage,
           coalesce(actions.views, 0) AS views, coalesce(actions.searches, 0) AS searches,
           coalesce(actions.favourites, 0) AS favourites,
           coalesce(offers.deal_opens, 0) AS deal_opens,
           coalesce(offers.deal_redemptions, 0) AS deal_redemptions,
           coalesce(messages.feedback, 0) AS feedback, messages.sentiment::float8 AS sentiment
    FROM (SELECT * FROM kpi_day WHERE hive_id %% %(shares)s = %(share)s) k
    FULL JOIN (SELECT * FROM occupancy_day WHERE hive_id %% %(shares)s = %(share)s) o
        USING (hive_id, day)
    FULL JOIN actions USING (hive_id, day)
    FULL JOIN offers USING (hive_id, day)
    FULL JOIN messages USING (hive_id, day)
    JOIN ours ON ours.id = hive_id
    WHERE day >= %(since)s AND day <= %(until)s
"""


def read_hive_days(spark: SparkSession, url: str, since: date, until: date) -> DataFrame:
    """Both days included."""
    return read_partitioned(spark, url, _DAYS, HIVE_DAY_SCHEMA, {"since": since, "until": until})
