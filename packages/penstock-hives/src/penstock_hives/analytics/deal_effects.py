"""The effect of a deal: visits while it ran, compared with the same weekdays before it."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BASELINE_WEEKS: Final = 4
DEAL_SCHEMA: Final = pa.schema(
    [
        ("deal_id", pa.int64()),
        ("hive_id", pa.int64()),
        ("title", pa.string()),
        ("first", pa.date32()),
        ("last", pa.date32()),
        ("opened", pa.int32()),
        ("redeemed", pa.int32()),
    ]
)
#: Local days.
DEALS_SQL: Final = """
    SELECT deal.id AS deal_id, deal.hive_id, deal.title,
           (deal.starts_at AT TIME ZONE hive.time_zone)::date AS first,
           (deal.expires_at AT TIME ZONE hive.time_zone)::date AS last,
           (SELECT count(*) FROM deal_event e WHERE e.deal_id = deal.id AND e.kind = 'opened')::int
               AS opened,
           deal.redemptions AS redeemed
    FROM deal JOIN hive ON hive.id = deal.hive_id
    WHERE deal.status <> 'draft'
      AND deal.starts_at < %(until)s::date + 1 AND deal.expires_at > %(since)s
"""


def deal_effects(days: DataFrame, deals: DataFrame, day: date) -> DataFrame:
    """A row for each deal that has run at least a day; without a baseline there is no lift."""
    from pyspark.sql import functions as f

    visits = days.select("hive_id", "day", "visits").where("visits IS NOT NULL")
    weekday = f.dayofweek("day")
    begun = deals.where(f.col("first") <= f.lit(day))
    joined = begun.join(visits, "hive_id")
    during = (
        joined.where(
            (f.col("day") >= f.col("first")) & (f.col("day") <= f.least("last", f.lit(day)))
        )
        .withColumn("weekday", weekday)
        .groupBy("deal_id", "weekday")
        .agg(f.count("*").alias("days"), f.sum("visits").alias("visits"))
    )
    before = (
        joined.where(
            (f.col("day") < f.col("first"))
            & (f.col("day") >= f.date_sub("first", 7 * BASELINE_WEEKS))
        )
        .withColumn("weekday", weekday)
        .groupBy("deal_id", "weekday")
        .agg(f.avg("visits").alias("usual"))
    )
    # A weekday without a baseline is excluded from both sums.
    summed = (
        during.join(before, ["deal_id", "weekday"], "left")
        .groupBy("deal_id")
        .agg(
            f.sum("days").cast("int").alias("days"),
            f.sum("visits").alias("all_visits"),
            f.sum(f.when(f.col("usual").isNotNull(), f.col("visits"))).alias("compared"),
            f.sum(f.when(f.col("usual").isNotNull(), f.col("days"))).alias("known"),
            f.sum(f.col("usual") * f.col("days")).alias("usual"),
        )
    )
    expected = f.col("usual") / f.col("known")
    visited = f.coalesce(f.col("compared") / f.col("known"), f.col("all_visits") / f.col("days"))
    return summed.join(begun.select("deal_id", "opened", "redeemed"), "deal_id").select(
        "deal_id",
        f.lit(day).alias("day"),
        "days",
        visited.alias("visits"),
        expected.alias("expected"),
        ((visited - expected) / f.nullif(expected, f.lit(0.0))).alias("lift"),
        "opened",
        "redeemed",
    )
