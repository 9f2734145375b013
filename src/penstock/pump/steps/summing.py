"""A day of the pump, an exchange a row: how much, how late, how often the same, what failed.

*Latency* is from a file's first announcement to the one at this exchange: hops later in a chain
show all the time before them. *Duplicates* are announcements of the same file, content and block
that came to the exchange once more; *winnowed* are those reported as such.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.pump.steps.columns import POST, REPORT, UNREADABLE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def summary(announcements: DataFrame) -> DataFrame:
    """Silver's rows, a row for each day and exchange."""
    from pyspark.sql import functions as f

    post, report = f.col("kind") == POST, f.col("kind") == REPORT
    latency = f.when(post, f.col("at").cast("double") - f.col("moment").cast("double"))
    same = f.struct("relpath", "event", "sum", "block", "size")
    known = f.when(post & f.col("sum").isNotNull(), same)
    return (
        announcements.groupBy("day", "exchange")
        .agg(
            _count(post).alias("posts"),
            f.countDistinct(f.when(post, f.col("relpath"))).alias("files"),
            f.coalesce(f.sum(f.when(post, f.col("length"))), f.lit(0)).alias("bytes"),
            (f.count(known) - f.countDistinct(known)).alias("duplicates"),
            f.percentile_approx(latency, 0.5).alias("latency_p50"),
            f.percentile_approx(latency, 0.95).alias("latency_p95"),
            f.max(latency).alias("latency_max"),
            _count(report & f.col("code").between(200, 299)).alias("done"),
            _count(report & (f.col("code") == 304)).alias("unchanged"),
            _count(report & (f.col("message") == "duplicate")).alias("winnowed"),
            _count(report & (f.col("code") >= 400)).alias("failed"),
            f.percentile_approx(f.when(report, f.col("seconds")), 0.5).alias("took_p50"),
            _count(f.col("kind") == UNREADABLE).alias("unreadable"),
        )
        .orderBy("day", "exchange")
    )


def _count(which: Column) -> Column:
    from pyspark.sql import functions as f

    return f.count(f.when(which, f.lit(1)))
