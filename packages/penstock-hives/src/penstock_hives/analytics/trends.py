"""Popularity, preference shifts, comparison with the previous window, effects of deals.

Figures are daily means over days with data, so that an outage of a sensor does not lower them.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


#: Days of popularity and preference shifts.
RECENT_WINDOWS: Final = (1, 7, 30)
#: Compared windows are whole weeks, so that each has the same weekdays.
COMPARED_WINDOWS: Final = (7, 28)


def in_window(day: date, window: int) -> Column:
    """Whether a row is in the window that ends with this day."""
    from pyspark.sql import functions as f

    return f.col("day").between(f.lit(day - timedelta(days=window - 1)), f.lit(day))


def in_previous_window(day: date, window: int) -> Column:
    return in_window(day - timedelta(days=window), window)


#: Weights of logarithms, so that large hives do not dominate small ones.
POPULARITY_WEIGHTS: Final = {"views": 1.0, "searches": 1.5, "favourites": 2.0, "visits": 1.0}


def hive_popularity(days: DataFrame, day: date, window: int) -> DataFrame:
    """A row for each hive with data in the window; the most popular has rank 1."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    sums = [
        f.coalesce(f.sum(name), f.lit(0)).cast("int").alias(name) for name in POPULARITY_WEIGHTS
    ]
    counted = days.where(in_window(day, window)).groupBy("hive_id").agg(*sums)
    score = sum(
        (f.lit(weight) * f.log1p(f.col(name)) for name, weight in POPULARITY_WEIGHTS.items()),
        f.lit(0.0),
    )
    order = Window.orderBy(f.col("score").desc(), f.col("hive_id"))
    return counted.withColumn("score", score).select(
        f.lit(day).alias("day"),
        f.lit(window).alias("window_days"),
        "hive_id",
        *POPULARITY_WEIGHTS,
        "score",
        f.row_number().over(order).alias("rank"),
    )


_INTEREST: Final = ("views", "searches", "favourites", "deal_opens", "deal_redemptions")


def preference_shifts(days: DataFrame, day: date, window: int) -> DataFrame:
    """A row for each hive type with user actions in either window."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    interest = sum((f.col(name) for name in _INTEREST), f.lit(0))
    summed = days.groupBy("hive_type").agg(
        f.sum(f.when(in_previous_window(day, window), interest).otherwise(0)).alias("before"),
        f.sum(f.when(in_window(day, window), interest).otherwise(0)).alias("now"),
    )
    everything = Window.partitionBy()

    def share(name: str) -> Column:
        total = f.nullif(f.sum(name).over(everything), f.lit(0))
        return f.coalesce(f.col(name) / total, f.lit(0.0)).alias(f"share_{name}")

    return summed.where("before > 0 OR now > 0").select(
        f.lit(day).alias("day"),
        f.lit(window).alias("window_days"),
        "hive_type",
        share("before"),
        share("now"),
    )


def hive_comparison(days: DataFrame, day: date, window: int) -> DataFrame:
    """A row for each hive with counts in either window."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    now, then = in_window(day, window), in_previous_window(day, window)
    figures = days.groupBy("hive_id", "hive_type").agg(
        f.avg(f.when(now, f.col("visits"))).alias("visits_now"),
        f.avg(f.when(then, f.col("visits"))).alias("visits_before"),
        f.avg(f.when(now, f.col("mean_occupancy"))).alias("occupancy_now"),
        f.avg(f.when(then, f.col("mean_occupancy"))).alias("occupancy_before"),
    )
    figures = figures.where("visits_now IS NOT NULL OR visits_before IS NOT NULL")
    of_type = Window.partitionBy("hive_type")
    busiest = of_type.orderBy(f.col("visits_now").desc_nulls_last(), f.col("hive_id"))
    others = f.filter(
        f.collect_list(f.struct("hive_id", "visits_now")).over(of_type),
        lambda each: (each["hive_id"] != f.col("hive_id")) & each["visits_now"].isNotNull(),
    )
    counted = f.transform(others, lambda each: each["visits_now"])
    return (
        figures.withColumn("counted", f.array_sort(counted))
        .withColumn("peers", f.size("counted"))
        .withColumn("middle", f.floor((f.col("peers") - 1) / 2).cast("int"))
        .select(
            "hive_id",
            f.lit(day).alias("day"),
            f.lit(window).alias("window_days"),
            "visits_now",
            "visits_before",
            "occupancy_now",
            "occupancy_before",
            "peers",
            # The lower median.
            f.when(f.col("peers") > 0, f.get("counted", f.col("middle"))).alias("peer_visits"),
            f.when(f.col("visits_now").isNotNull(), f.row_number().over(busiest)).alias("rank"),
        )
    )


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
