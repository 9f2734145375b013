"""Custom metrics of businesses: a formula over a window of their hives' days, and a goal.

A filter selects hives (`{"hives": [1, 2]}`), weekdays (`{"weekdays": [5, 6]}`, Monday is 0), or
the hive and days of a deal (`{"deal": 7}`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from penstock.core.logs import get_logger
from penstock_hives.analytics.formula import SERIES, Formula, InvalidFormula
from penstock_hives.analytics.trends import in_window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

log = get_logger(__name__)

METRICS_SQL: Final = """
    SELECT id, account_id, formula, filter, goal, window_days FROM custom_metric ORDER BY id
"""
METRIC_VALUE_SCHEMA: Final = (
    "metric_id long, hive_id long, day date, value double, goal_met boolean, made_at timestamp"
)


@dataclass(frozen=True, slots=True)
class CustomMetric:
    id: int
    account_id: int
    formula: str
    filter: Mapping[str, Any]
    goal: float | None
    window_days: int


@dataclass(frozen=True, slots=True)
class DealRun:
    hive_id: int
    first: date
    last: date


DealRuns = Mapping[int, DealRun]  #: by the deal


def metric_values(
    spark: SparkSession,
    days: DataFrame,
    metrics: Iterable[CustomMetric],
    runs: DealRuns,
    day: date,
    now: datetime,
) -> DataFrame:
    """A row for each metric and hive. A metric with an invalid formula is logged and skipped."""
    made = []
    for metric in metrics:
        try:
            made.append(_values(days, metric, Formula.parse(metric.formula), runs, day, now))
        except InvalidFormula as error:
            log.warning("metric skipped", metric=metric.id, reason=str(error))
    if not made:
        return spark.createDataFrame([], METRIC_VALUE_SCHEMA)
    return reduce(lambda one, other: one.unionByName(other), made)


def _values(
    days: DataFrame,
    metric: CustomMetric,
    formula: Formula,
    runs: DealRuns,
    day: date,
    now: datetime,
) -> DataFrame:
    from pyspark.sql import functions as f

    chosen = days.where(in_window(day, metric.window_days)).where(
        f.col("account_id") == metric.account_id
    )
    for condition in _conditions(metric.filter, runs):
        chosen = chosen.where(condition)
    figures = [
        getattr(f, how)(name).cast("double").alias(name)
        for name, how in SERIES.items()
        if name in formula.series
    ]
    of_hive = chosen.groupBy("hive_id").agg(f.count("*").alias("days"), *figures)
    value = formula.column({name: f.col(name) for name in formula.series})
    finite = f.when(~f.isnan("value") & (f.abs("value") < 1e300), f.col("value"))
    met = f.lit(None).cast("boolean") if metric.goal is None else f.col("value") >= metric.goal
    return (
        of_hive.withColumn("value", value)
        .withColumn("value", finite)
        .select(
            f.lit(metric.id).cast("long").alias("metric_id"),
            "hive_id",
            f.lit(day).alias("day"),
            "value",
            met.alias("goal_met"),
            f.lit(now).alias("made_at"),
        )
    )


def _conditions(chosen: Mapping[str, Any], runs: DealRuns) -> list[Column]:
    from pyspark.sql import functions as f

    # Spark's week begins with Sunday, which is 1.
    weekday = (f.dayofweek("day") + 5) % 7
    columns = {"hives": f.col("hive_id"), "weekdays": weekday}
    found = [
        column.isin(list(wanted))
        for name, column in columns.items()
        if isinstance(wanted := chosen.get(name), Sequence) and not isinstance(wanted, str)
    ]
    if (deal := chosen.get("deal")) is not None:
        run = runs.get(deal)
        during = f.lit(False)
        if run is not None:
            during = (f.col("hive_id") == run.hive_id) & f.col("day").between(
                f.lit(run.first), f.lit(run.last)
            )
        found.append(during)
    return found
