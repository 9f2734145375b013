"""What was looked at, looked for and visited most."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Final

from penstock.hives.analytics.windows import within

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: What a deed says of liking. Each counts by its logarithm: ten times as many views are not ten
#: times as popular, and a large place does not drown a small one that is loved.
WEIGHTS: Final = {"views": 1.0, "searches": 1.5, "favourites": 2.0, "visits": 1.0}


def popularity(days: DataFrame, day: date, window: int) -> DataFrame:
    """A row for each hive that had anything in the window; the most popular has rank 1."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    sums = [f.coalesce(f.sum(name), f.lit(0)).cast("int").alias(name) for name in WEIGHTS]
    counted = days.where(within(day, window)).groupBy("hive_id").agg(*sums)
    score = sum(
        (f.lit(weight) * f.log1p(f.col(name)) for name, weight in WEIGHTS.items()), f.lit(0.0)
    )
    order = Window.orderBy(f.col("score").desc(), f.col("hive_id"))
    return counted.withColumn("score", score).select(
        f.lit(day).alias("day"),
        f.lit(window).alias("window_days"),
        "hive_id",
        *WEIGHTS,
        "score",
        f.row_number().over(order).alias("rank"),
    )
