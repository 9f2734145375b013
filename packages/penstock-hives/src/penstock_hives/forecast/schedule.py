"""When forecasts are due, and their publication to PostgreSQL.

A hive is due from 02:00 local time until it has a forecast made that day, and at once for its first
forecast, once a day with data is over. A failed night is still due. Hives of one zone are forecast
together; the model learns from all hives. A forecast and its verdict are stored in one transaction;
earlier forecasts are kept to be scored.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from penstock.core.logs import get_logger
from penstock_hives.forecast import histories
from penstock_hives.forecast.accuracy import ModelVerdict
from penstock_hives.forecast.nightly import NightlyForecast, nightly_forecast
from penstock_spark.own_session import in_own_session
from penstock_store import (
    Connection,
    Database,
    copy_rows,
    create_staging_table,
    drop_staging_table,
    merge_rows,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


log = get_logger(__name__)

#: Local time: the reports of yesterday have arrived.
DUE_HOUR: Final = 2
_DUE: Final = """
    WITH local AS (
        SELECT h.id, (%(now)s AT TIME ZONE h.time_zone)::date AS day,
               date_trunc('day', %(now)s, h.time_zone) AS began,
               extract(hour FROM %(now)s AT TIME ZONE h.time_zone) AS hour
          FROM hive h
         WHERE EXISTS (SELECT FROM occupancy_hour o
                        WHERE o.hive_id = h.id AND o.slot > %(now)s - interval '28 days'
                          AND (%(anyway)s OR o.slot < date_trunc('day', %(now)s, h.time_zone)))
    )
    SELECT id, day FROM local
     WHERE %(anyway)s OR NOT EXISTS (
           SELECT FROM forecast f
            WHERE f.hive_id = id AND (hour < %(hour)s OR f.slot >= began AND f.made_at >= began))
     ORDER BY day, id
"""


@dataclass(frozen=True, slots=True)
class ForecastPublication:
    day: date
    hives: int
    hours: int
    verdict: ModelVerdict


class ForecastTask:
    """Periodic task: forecasts of due hives. A hive without a forecast is tried once a day."""

    def __init__(self, database: str) -> None:
        self._url = database
        self._tried: dict[date, set[int]] = {}

    def __call__(self, spark: SparkSession) -> None:
        now = datetime.now(UTC)
        with Database(self._url) as database:
            for day, hives in due_hives(database, now).items():
                left = hives - self._tried.get(day, set())
                if left:
                    in_own_session(spark, _forecast, self._url, day, left, now)
                    self._tried.setdefault(day, set()).update(left)


def _forecast(spark: SparkSession, url: str, day: date, hives: set[int], now: datetime) -> None:
    with Database(url) as database:
        make_forecasts(spark, database, day, hives, now)


def due_hives(database: Database, now: datetime, *, anyway: bool = False) -> dict[date, set[int]]:
    """Day → hives with recent data that lack a forecast of it; `anyway`: all with recent data."""
    rows = database.rows(_DUE, {"now": now, "hour": DUE_HOUR, "anyway": anyway})
    return {
        day: {row["id"] for row in of_day} for day, of_day in groupby(rows, lambda row: row["day"])
    }


def make_forecasts(
    spark: SparkSession, database: Database, day: date, hives: Collection[int], now: datetime
) -> ForecastPublication:
    from pyspark.sql import functions as f

    hourly = histories.read_hourly(spark, database.url, now)
    wanted = f.col("hive_id").isin(list(hives))
    with nightly_forecast(hourly, histories.read_hives(spark, database), day, now) as made:
        ours = replace(made, forecasts=made.forecasts.where(wanted), peaks=made.peaks.where(wanted))
        hours = publish_forecast(database, ours)
        done = ForecastPublication(day, len(hives), hours, made.verdict)
    log.info(
        "forecasts published",
        day=str(day),
        hives=done.hives,
        hours=hours,
        accepted=done.verdict.accepted,
        reason=done.verdict.reason,
    )
    return done


_FLOW: Final = "forecast"
_KEYS: Final = {
    "forecast": ("hive_id", "slot", "model", "made_at"),
    "forecast_peak": ("hive_id", "day", "model", "made_at"),
}


def publish_forecast(database: Database, night: NightlyForecast) -> int:
    """Returns the number of new hours."""
    tables = {"forecast": night.forecasts.toArrow(), "forecast_peak": night.peaks.toArrow()}
    with database.transaction() as connection:
        _insert_verdict(connection, night)
        new = {name: _insert_rows(connection, name, rows, night) for name, rows in tables.items()}
    return new["forecast"]


def _insert_rows(connection: Connection, target: str, rows: Any, night: NightlyForecast) -> int:
    moment = int(night.made_at.timestamp())
    staging = create_staging_table(connection, _FLOW, moment, target, rows.schema.names)
    copy_rows(connection, staging, rows.to_batches(), part=0)
    added = merge_rows(connection, staging, target, _KEYS[target], {})
    drop_staging_table(connection, staging)
    return added


def _insert_verdict(connection: Connection, night: NightlyForecast) -> None:
    verdict = night.verdict
    figures = (verdict.wape, verdict.baseline_wape, verdict.share_better)
    connection.execute(
        """
        INSERT INTO forecast_model
            (model, made_at, accepted, wape, baseline_wape, share_better, figures)
        VALUES (%s, %s, %s, %s, %s, %s, %s)
        ON CONFLICT (model) DO NOTHING
        """,
        (
            night.judged,
            night.made_at,
            verdict.accepted,
            *(None if math.isnan(each) else each for each in figures),
            json.dumps({"reason": verdict.reason}),
        ),
    )
