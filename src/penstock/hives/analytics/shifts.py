"""How tastes change: the share of people's interest that each type of hive has, now and before."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Final

from penstock.hives.analytics.windows import before, within

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_INTEREST: Final = ("views", "searches", "favourites", "deal_opens", "deal_redemptions")


def preference_shifts(days: DataFrame, day: date, window: int) -> DataFrame:
    """A row for each type that anybody was interested in, in either window."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    interest = sum((f.col(name) for name in _INTEREST), f.lit(0))
    summed = days.groupBy("hive_type").agg(
        f.sum(f.when(before(day, window), interest).otherwise(0)).alias("before"),
        f.sum(f.when(within(day, window), interest).otherwise(0)).alias("now"),
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
