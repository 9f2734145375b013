"""All analytics of a day, computed once the day is over in all time zones.

Days are local, so a day is over everywhere at noon of the next day in UTC. A failed day stays due.
Everything is computed from hive days, which are read once and cached. The driver receives a few
rows for each hive and ten for each user.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.core.logs import get_logger
from penstock_hives.analytics import recommendations
from penstock_hives.analytics.hive_days import read_hive_days
from penstock_hives.analytics.insights import make_insights
from penstock_hives.analytics.metrics import METRICS_SQL, CustomMetric, DealRun, metric_values
from penstock_hives.analytics.sentiment import SentimentModel, score_feedback
from penstock_hives.analytics.sentiment_model import choose_model
from penstock_hives.analytics.tables import (
    FLOW,
    is_analysed,
    read_small,
    write_findings,
    write_to_lake,
)
from penstock_hives.analytics.trends import (
    COMPARED_WINDOWS,
    DEAL_SCHEMA,
    DEALS_SQL,
    RECENT_WINDOWS,
    deal_effects,
    hive_comparison,
    hive_popularity,
    preference_shifts,
)
from penstock_hives.partitions import read_partitioned
from penstock_spark.lake import Lake, StorageLocation
from penstock_spark.own_session import in_own_session
from penstock_store import Database

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = get_logger(__name__)

#: The longest window of a metric, and the weeks a deal is compared with.
HISTORY_SPAN: Final = timedelta(days=400)
#: Folder of trained models in the lake.
MODEL_FOLDER: Final = "models"


_HAS_DAYS: Final = "SELECT FROM kpi_day LIMIT 1"


class AnalyticsTask:
    """Periodic task: analyses the last day that is over, once; without any day there is nothing."""

    def __init__(self, database: str, lake: StorageLocation | None = None) -> None:
        self._url = database
        self._lake = lake

    def __call__(self, spark: SparkSession) -> None:
        now = datetime.now(UTC)
        with Database(self._url) as database:
            if database.rows(_HAS_DAYS) and not is_analysed(database, settled_day(now)):
                in_own_session(spark, _analyse, self._url, settled_day(now), now, self._lake)


def _analyse(
    spark: SparkSession, url: str, day: date, now: datetime, lake: StorageLocation | None
) -> None:
    with Database(url) as database:
        analyse(spark, database, day, now, lake=lake)


def settled_day(now: datetime) -> date:
    """The last day that is over in all time zones."""
    return (now - timedelta(hours=12)).date() - timedelta(days=1)


def analyse(
    spark: SparkSession,
    database: Database,
    day: date,
    now: datetime,
    model: SentimentModel | None = None,
    lake: StorageLocation | None = None,
) -> dict[str, int]:
    """Compute and write all results of a day; returns the rows of each table."""
    folder = lake.path / MODEL_FOLDER if lake is not None and lake.path is not None else None
    sentiment = model or choose_model(database, folder, day)
    scored = score_feedback(spark, database, sentiment, day, now)
    days = read_hive_days(spark, database.url, day - HISTORY_SPAN, day).persist()
    try:
        found = compute_findings(spark, database, days, day, now)
    finally:
        days.unpersist()
    written = write_findings(database, found, day, now)
    if lake is not None:
        write_to_lake(Lake(lake, FLOW), found, day, now)
    log.info("analytics finished", day=str(day), feedback=scored, model=sentiment.name, **written)
    return written


def compute_findings(
    spark: SparkSession, database: Database, days: DataFrame, day: date, now: datetime
) -> dict[str, pa.Table]:
    since = {"since": day - HISTORY_SPAN, "until": day}
    rows = database.rows(DEALS_SQL, since)
    deals = spark.createDataFrame(pa.Table.from_pylist(rows, DEAL_SCHEMA))
    runs = {row["deal_id"]: DealRun(row["hive_id"], row["first"], row["last"]) for row in rows}
    compared = _union([hive_comparison(days, day, window) for window in COMPARED_WINDOWS]).persist()
    effects = deal_effects(days, deals, day).persist()
    metrics = [CustomMetric(**row) for row in database.rows(METRICS_SQL)]
    of_month = compared.where(f"window_days = {max(COMPARED_WINDOWS)}")
    try:
        return {
            "hive_popularity": _union(
                [hive_popularity(days, day, w) for w in RECENT_WINDOWS]
            ).toArrow(),
            "preference_shift": _union(
                [preference_shifts(days, day, w) for w in RECENT_WINDOWS]
            ).toArrow(),
            "hive_comparison": compared.toArrow(),
            "deal_effect": effects.toArrow(),
            "custom_metric_value": metric_values(spark, days, metrics, runs, day, now).toArrow(),
            "deal_recommendation": _recommended(spark, database, now).toArrow(),
            "insight": make_insights(days, of_month, effects, deals, day).toArrow(),
        }
    finally:
        effects.unpersist()
        compared.unpersist()


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    """One job computes all windows of a table."""
    return reduce(lambda one, other: one.unionByName(other), frames)


def _recommended(spark: SparkSession, database: Database, now: datetime) -> DataFrame:
    parameters = {"now": now}
    deals = read_small(
        spark, database, recommendations.DEALS_SQL, recommendations.DEAL_SCHEMA, parameters
    )
    tables = (
        read_partitioned(spark, database.url, statement, schema, parameters)
        for statement, schema in recommendations.USER_TABLES
    )
    return recommendations.recommendations(deals, *tables)
