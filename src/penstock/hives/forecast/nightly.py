"""The nightly forecast on Spark: every hive's next day, by the global model if it has earned it.

A challenger is fitted on what was before the last four weeks and has to say those, one day ahead,
beside the hives' own medians. If it passes the gate, a model fitted on everything is published;
otherwise the medians are, and the reason is kept. Workers hold the hives and do what is done for
each (`per_hive.py`); the driver fits, on a sample that does not grow with the number of hives. The
same rows, day and seed give the same forecast.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Final

import numpy as np

from penstock.hives.forecast import per_hive
from penstock.hives.forecast.backtest import LEAST_ROWS, MOST_ROWS
from penstock.hives.forecast.boosting import Growth
from penstock.hives.forecast.features import NAMES
from penstock.hives.forecast.gate import Verdict, judge
from penstock.hives.forecast.histories import histories
from penstock.hives.forecast.measures import Tally
from penstock.hives.forecast.model import Model, Samples

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: What a challenger has to say before it is believed.
GATE_DAYS: Final = 28


@dataclass(frozen=True, slots=True)
class Night:
    """What a night brought. The DataFrames are worked out when they are read."""

    #: hive_id, slot, p50, p90, model, made_at
    forecasts: DataFrame
    #: hive_id, day, model, made_at, starts_at, ends_at
    peaks: DataFrame
    verdict: Verdict
    #: Only one that was accepted.
    model: Model | None
    #: What the verdict is about, whether it was accepted or not.
    judged: str
    made_at: datetime


def forecast(
    spark: SparkSession,
    hourly: DataFrame,
    hives: DataFrame,
    day: date,
    made_at: datetime,
    seed: int = 0,
) -> DataFrame:
    """hive_id, slot, p50, p90, model, made_at of a local day of each hive; see `histories`."""
    with night(hourly, hives, day, made_at, seed) as found:
        rows = found.forecasts.toArrow()
    return spark.createDataFrame(rows, per_hive.FORECASTS)


@contextmanager
def night(
    hourly: DataFrame,
    hives: DataFrame,
    day: date,
    made_at: datetime,
    seed: int = 0,
    growth: Growth | None = None,
) -> Iterator[Night]:
    """Histories are kept by Spark for the length of the block: read the DataFrames inside."""
    kept = histories(hourly, hives, day, made_at).persist()
    try:
        verdict, model, judged = _chosen(kept, _learned(kept, seed), day, seed, growth)
        rows = kept.mapInArrow(per_hive.saying(day, made_at, model), per_hive.FORECASTS)
        peaks = rows.groupBy("hive_id").applyInPandas(per_hive.peaking(day), per_hive.PEAKS)
        yield Night(rows, peaks, verdict, model, judged, made_at)
    finally:
        kept.unpersist()


def _learned(kept: DataFrame, seed: int) -> Samples:
    """A sample of all hives' hours, in an order that does not depend on Spark's."""
    from pyspark.sql import functions as f

    hours = kept.agg(f.sum(f.size("counts"))).first()
    total = int(hours[0] or 0) if hours is not None else 0
    share = min(1.0, MOST_ROWS / max(1, total))
    table = kept.mapInArrow(per_hive.sampling(share, seed), per_hive.SAMPLES).toArrow()
    rows = table["features"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    found = Samples(
        np.asarray(rows, np.float64).reshape(-1, len(NAMES)),
        table["ratio"].to_numpy(),
        table["day"].to_numpy(),
    )
    # The hours of a hive come in their order; between hives there is none but this.
    return found.chosen(np.argsort(table["hive_id"].to_numpy(), kind="stable"))


def _chosen(
    kept: DataFrame, learned: Samples, day: date, seed: int, growth: Growth | None
) -> tuple[Verdict, Model | None, str]:
    start = day - timedelta(days=GATE_DAYS)
    past = learned.before(start)
    if len(past) < LEAST_ROWS:
        told = f"{len(past):,} hours to learn from before {start}, fewer than {LEAST_ROWS:,}"
        return Verdict(False, told), None, f"none-{day}"
    challenger = Model.fit(past, seed, growth)
    scored = kept.mapInArrow(per_hive.judging(challenger, start, day), per_hive.TALLIES).collect()
    ours = {str(row.hive_id): Tally(row.missed, row.came) for row in scored}
    usual = {str(row.hive_id): Tally(row.usually_missed, row.came) for row in scored}
    verdict = judge(ours, usual)
    if not verdict.accepted:
        return verdict, None, challenger.name
    model = Model.fit(learned, seed, growth)
    return verdict, model, model.name
