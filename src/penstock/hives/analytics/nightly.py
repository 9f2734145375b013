"""All that a night finds out, once a day, when the day before is over wherever there are hives.

Days are the hives' own, so one is over for all at noon of the next in UTC. A day that failed is
simply still due. Everything is made from the days of hives, which are read once and kept for the
length of the night; what comes back to the driver is a few rows for each hive, and ten for a
person.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from penstock.core.logs import get_logger
from penstock.hives.analytics import effects as deals_ran
from penstock.hives.analytics import recommending
from penstock.hives.analytics.comparing import comparison
from penstock.hives.analytics.days import hive_days
from penstock.hives.analytics.feedback import score_feedback
from penstock.hives.analytics.frames import shared, small
from penstock.hives.analytics.metrics import METRICS_SQL, Metric, Run, metric_values
from penstock.hives.analytics.popularity import popularity
from penstock.hives.analytics.sentiment import Sentiment
from penstock.hives.analytics.shifts import preference_shifts
from penstock.hives.analytics.standouts import insights
from penstock.hives.analytics.training import model_for
from penstock.hives.analytics.windows import COMPARED, RECENT
from penstock.hives.analytics.writing import FLOW, done, keep, publish
from penstock.pipeline.lake import Lake
from penstock.store import Database

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = get_logger(__name__)

#: As long as a window of a metric may be, and the weeks a deal is compared with.
HISTORY: Final = timedelta(days=400)
#: The folder beside the lake's tables in which what was learned is kept.
MODELS: Final = "models"


class Analyses:
    """A chore: the last day that is over, if nobody has done it."""

    def __init__(self, database: str, lake: Path | None = None) -> None:
        self._url = database
        self._lake = lake

    def __call__(self, spark: SparkSession) -> None:
        now = datetime.now(UTC)
        with Database(self._url) as database:
            if not done(database, settled_day(now)):
                analyse(spark, database, settled_day(now), now, lake=self._lake)


def settled_day(now: datetime) -> date:
    """The last day that is over everywhere."""
    return (now - timedelta(hours=12)).date() - timedelta(days=1)


def analyse(
    spark: SparkSession,
    database: Database,
    day: date,
    now: datetime,
    model: Sentiment | None = None,
    lake: Path | None = None,
) -> dict[str, int]:
    """All findings of a day; how many rows of each table."""
    reading = model or model_for(database, lake and lake / MODELS, day)
    scored = score_feedback(spark, database, reading, day, now)
    days = hive_days(spark, database.url, day - HISTORY, day).persist()
    try:
        found = findings(spark, database, days, day, now)
    finally:
        days.unpersist()
    written = publish(database, found, day, now)
    if lake is not None:
        keep(Lake(lake, FLOW), found, day, now)
    log.info("day analysed", day=str(day), feedback=scored, model=reading.name, **written)
    return written


def findings(
    spark: SparkSession, database: Database, days: DataFrame, day: date, now: datetime
) -> dict[str, pa.Table]:
    """By table, as PostgreSQL has them."""
    since = {"since": day - HISTORY, "until": day}
    told = database.rows(deals_ran.DEALS_SQL, since)
    deals = spark.createDataFrame(pa.Table.from_pylist(told, deals_ran.DEALS))
    runs = {row["deal_id"]: Run(row["hive_id"], row["first"], row["last"]) for row in told}
    compared = _union([comparison(days, day, window) for window in COMPARED]).persist()
    ran = deals_ran.effects(days, deals, day).persist()
    metrics = [Metric(**row) for row in database.rows(METRICS_SQL)]
    of_month = compared.where(f"window_days = {max(COMPARED)}")
    try:
        return {
            "hive_popularity": _union([popularity(days, day, w) for w in RECENT]).toArrow(),
            "preference_shift": _union([preference_shifts(days, day, w) for w in RECENT]).toArrow(),
            "hive_comparison": compared.toArrow(),
            "deal_effect": ran.toArrow(),
            "custom_metric_value": metric_values(spark, days, metrics, runs, day, now).toArrow(),
            "deal_recommendation": _recommended(spark, database, now).toArrow(),
            "insight": insights(days, of_month, ran, deals, day).toArrow(),
        }
    finally:
        ran.unpersist()
        compared.unpersist()


def _union(frames: Sequence[DataFrame]) -> DataFrame:
    """Windows of one table, one after the other: one job makes all of them."""
    return reduce(lambda one, other: one.unionByName(other), frames)


def _recommended(spark: SparkSession, database: Database, now: datetime) -> DataFrame:
    url, given = database.url, {"now": now}
    return recommending.recommendations(
        small(spark, database, recommending.DEALS_SQL, recommending.DEALS, given),
        shared(spark, url, recommending.PEOPLE_SQL, recommending.PEOPLE, given),
        shared(spark, url, recommending.PLACES_SQL, recommending.PLACES, given),
        shared(spark, url, recommending.DEEDS_SQL, recommending.DEEDS_OF, given),
        shared(spark, url, recommending.DONE_SQL, recommending.DONE, given),
    )
