"""A window beside the one before it, and a hive beside others of its type.

Figures are by the day, of days that were heard of: a sensor that was off for half a week does not
halve the visits.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from penstock.hives.analytics.windows import before, within

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def comparison(days: DataFrame, day: date, window: int) -> DataFrame:
    """A row for each hive that was counted in either window."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    now, then = within(day, window), before(day, window)
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
            # The median; of an even number the lower of the two in the middle.
            f.when(f.col("peers") > 0, f.get("counted", f.col("middle"))).alias("peer_visits"),
            f.when(f.col("visits_now").isNotNull(), f.row_number().over(busiest)).alias("rank"),
        )
    )
