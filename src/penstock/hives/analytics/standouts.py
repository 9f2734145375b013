"""The figures of each hive that insights are made from, side by side."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING

from penstock.hives.analytics.insights import ROWS, worded
from penstock.hives.analytics.windows import within

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def insights(
    days: DataFrame, compared: DataFrame, effects: DataFrame, deals: DataFrame, day: date
) -> DataFrame:
    """A row for each thing that stands out. `compared` is of four weeks."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    week, month = within(day, 7), within(day, 28)
    of_hive = days.groupBy("hive_id", "account_id", "hive", "hive_type").agg(
        f.avg(f.when(week, f.col("coverage"))).alias("coverage"),
        f.sum(f.when(month, f.col("feedback"))).alias("feedback"),
        # By messages, not by days.
        (
            f.sum(f.when(month, f.col("sentiment") * f.col("feedback")))
            / f.nullif(f.sum(f.when(month, f.col("feedback"))), f.lit(0))
        ).alias("sentiment"),
    )
    # Of several deals the one that did most, either way, while it is fresh.
    fresh = deals.where(f.col("last") >= f.date_sub(f.lit(day), 7))
    told = (
        effects.join(fresh.select("deal_id", "hive_id", "title"), "deal_id")
        .where("lift IS NOT NULL")
        .groupBy("hive_id")
        .agg(
            f.max_by(
                f.struct("deal_id", "title", "lift", "visits", "expected"), f.abs("lift")
            ).alias("best")
        )
        .select(
            "hive_id",
            f.col("best.deal_id").alias("deal_id"),
            f.col("best.title").alias("deal"),
            f.col("best.lift").alias("lift"),
            f.col("best.visits").alias("deal_visits"),
            f.col("best.expected").alias("deal_expected"),
        )
    )
    columns = ("visits_now", "visits_before", "peers", "peer_visits", "rank")
    return (
        of_hive.join(compared.select("hive_id", *columns), "hive_id", "left")
        .join(told, "hive_id", "left")
        .mapInArrow(worded, from_arrow_schema(ROWS))
        .withColumn("day", f.lit(day))
    )
