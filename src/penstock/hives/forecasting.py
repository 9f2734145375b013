"""Forecasts when they are due: each hive's day, made in the night before it by its own clock.

A hive is due from two in the morning until it has a forecast of the day that was made that day. So
it does not matter when the process ran and when not, nor how many zones there are; a night that
failed is simply still due. Hives of one zone are done together; all of them are learned from.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Final

from penstock.core.logs import get_logger
from penstock.hives.forecast import rollup
from penstock.hives.forecast.gate import Verdict
from penstock.hives.forecast.nightly import night
from penstock.hives.forecast.publishing import publish
from penstock.store import Database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = get_logger(__name__)

#: Local: yesterday's last reports are in, and nobody has asked for today yet.
HOUR: Final = 2
_DUE: Final = """
    WITH local AS (
        SELECT h.id, (%(now)s AT TIME ZONE h.time_zone)::date AS day,
               date_trunc('day', %(now)s, h.time_zone) AS began,
               extract(hour FROM %(now)s AT TIME ZONE h.time_zone) AS hour
          FROM hive h
         WHERE EXISTS (SELECT FROM occupancy_hour o
                        WHERE o.hive_id = h.id AND o.slot > %(now)s - interval '28 days')
    )
    SELECT id, day FROM local
     WHERE %(anyway)s OR hour >= %(hour)s AND NOT EXISTS (
           SELECT FROM forecast f
            WHERE f.hive_id = id AND f.slot >= began AND f.made_at >= began)
     ORDER BY day, id
"""


@dataclass(frozen=True, slots=True)
class Published:
    """What was said of a day, by the local calendar of its hives."""

    day: date
    hives: int
    hours: int
    verdict: Verdict


class Nights:
    """A chore: whoever is due, whenever it looks. A hive that nothing can be said of is tried once
    a day."""

    def __init__(self, database: str) -> None:
        self._url = database
        self._tried: dict[date, set[int]] = {}

    def __call__(self, spark: SparkSession) -> None:
        now = datetime.now(UTC)
        with Database(self._url) as database:
            for day, hives in due(database, now).items():
                left = hives - self._tried.get(day, set())
                if left:
                    forecast(spark, database, day, left, now)
                    self._tried.setdefault(day, set()).update(left)


def due(database: Database, now: datetime, *, anyway: bool = False) -> dict[date, set[int]]:
    """Day → hives that have counted lately and lack a forecast of it; `anyway`, all of them."""
    rows = database.rows(_DUE, {"now": now, "hour": HOUR, "anyway": anyway})
    return {
        day: {row["id"] for row in of_day} for day, of_day in groupby(rows, lambda row: row["day"])
    }


def forecast(
    spark: SparkSession, database: Database, day: date, hives: Collection[int], now: datetime
) -> Published:
    """Make and publish the forecasts of some hives' local day."""
    from pyspark.sql import functions as f

    hourly = rollup.hourly(spark, database.url, now)
    wanted = f.col("hive_id").isin(list(hives))
    with night(hourly, rollup.hives(spark, database), day, now) as made:
        ours = replace(made, forecasts=made.forecasts.where(wanted), peaks=made.peaks.where(wanted))
        hours = publish(database, ours)
        done = Published(day, len(hives), hours, made.verdict)
    log.info(
        "forecasts published",
        day=str(day),
        hives=done.hives,
        hours=hours,
        accepted=done.verdict.accepted,
        reason=done.verdict.reason,
    )
    return done
