"""Trends over windows of days: popularity, preference shifts, comparison with the previous window.

Figures are daily means over days with data, so that an outage of a sensor does not lower them.
"""

from __future__ import annotations

from datetime import date, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


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
