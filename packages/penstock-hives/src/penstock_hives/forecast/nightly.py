"""The nightly forecast on Spark: each hive's next day.

A challenger is fitted on the data before the last four weeks and forecasts those, beside the hives'
medians. If it passes the gate, a model fitted on all data is used; otherwise the medians are, and
the reason is stored. Functions for `mapInArrow` run per hive on the workers; the driver fits on a
sample of fixed size. The same rows, day and seed give the same forecast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from penstock_hives.forecast.accuracy import (
    AccuracyTally,
    ModelVerdict,
    judge_model,
    peak_window,
    tally_accuracy,
)
from penstock_hives.forecast.backtest import MAX_TRAINING_ROWS, MIN_TRAINING_ROWS
from penstock_hives.forecast.baseline import (
    ExpectedHours,
    baseline_forecast,
    has_enough_history,
    median_of_weeks,
)
from penstock_hives.forecast.features import FEATURE_NAMES, make_features
from penstock_hives.forecast.grid import hours_of_day
from penstock_hives.forecast.histories import HiveHistory, hive_histories, read_histories
from penstock_hives.forecast.model import (
    BoostingParameters,
    ForecastModel,
    TrainingSamples,
    make_samples,
)

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession


#: What a challenger has to say before it is believed.
GATE_DAYS: Final = 28


@dataclass(frozen=True, slots=True)
class NightlyForecast:
    """What a night brought. The DataFrames are worked out when they are read."""

    #: hive_id, slot, p50, p90, model, made_at
    forecasts: DataFrame
    #: hive_id, day, model, made_at, starts_at, ends_at
    peaks: DataFrame
    verdict: ModelVerdict
    #: Only one that was accepted.
    model: ForecastModel | None
    #: What the verdict is about, whether it was accepted or not.
    judged: str
    made_at: datetime


def forecast_day(
    spark: SparkSession,
    hourly: DataFrame,
    hives: DataFrame,
    day: date,
    made_at: datetime,
    seed: int = 0,
) -> DataFrame:
    """hive_id, slot, p50, p90, model, made_at of a local day of each hive; see `hive_histories`."""
    with nightly_forecast(hourly, hives, day, made_at, seed) as found:
        rows = found.forecasts.toArrow()
    return spark.createDataFrame(rows, FORECAST_SCHEMA)


@contextmanager
def nightly_forecast(
    hourly: DataFrame,
    hives: DataFrame,
    day: date,
    made_at: datetime,
    seed: int = 0,
    growth: BoostingParameters | None = None,
) -> Iterator[NightlyForecast]:
    """Histories are kept by Spark for the length of the block: read the DataFrames inside."""
    kept = hive_histories(hourly, hives, day, made_at).persist()
    try:
        verdict, model, judged = _choose_model(
            kept, _training_samples(kept, seed), day, seed, growth
        )
        rows = kept.mapInArrow(forecast_step(day, made_at, model), FORECAST_SCHEMA)
        peaks = rows.groupBy("hive_id").applyInPandas(peak_step(day), PEAK_SCHEMA)
        yield NightlyForecast(rows, peaks, verdict, model, judged, made_at)
    finally:
        kept.unpersist()


def _training_samples(kept: DataFrame, seed: int) -> TrainingSamples:
    """A sample of all hives' hours, in an order that does not depend on Spark's."""
    from pyspark.sql import functions as f

    hours = kept.agg(f.sum(f.size("counts"))).first()
    total = int(hours[0] or 0) if hours is not None else 0
    share = min(1.0, MAX_TRAINING_ROWS / max(1, total))
    table = kept.mapInArrow(sample_step(share, seed), SAMPLE_SCHEMA).toArrow()
    rows = table["features"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    found = TrainingSamples(
        np.asarray(rows, np.float64).reshape(-1, len(FEATURE_NAMES)),
        table["ratio"].to_numpy(),
        table["day"].to_numpy(),
    )
    # The hours of a hive come in their order; between hives there is none but this.
    return found.chosen(np.argsort(table["hive_id"].to_numpy(), kind="stable"))


def _choose_model(
    kept: DataFrame,
    learned: TrainingSamples,
    day: date,
    seed: int,
    growth: BoostingParameters | None,
) -> tuple[ModelVerdict, ForecastModel | None, str]:
    start = day - timedelta(days=GATE_DAYS)
    past = learned.before(start)
    if len(past) < MIN_TRAINING_ROWS:
        told = f"{len(past):,} hours to learn from before {start}, fewer than {MIN_TRAINING_ROWS:,}"
        return ModelVerdict(False, told), None, f"none-{day}"
    challenger = ForecastModel.fit(past, seed, growth)
    scored = kept.mapInArrow(score_step(challenger, start, day), TALLY_SCHEMA).collect()
    ours = {str(row.hive_id): AccuracyTally(row.missed, row.came) for row in scored}
    usual = {str(row.hive_id): AccuracyTally(row.usually_missed, row.came) for row in scored}
    verdict = judge_model(ours, usual)
    if not verdict.accepted:
        return verdict, None, challenger.name
    model = ForecastModel.fit(learned, seed, growth)
    return verdict, model, model.name


SAMPLE_SCHEMA: Final = "hive_id long, day long, features array<double>, ratio double"
TALLY_SCHEMA: Final = "hive_id long, missed double, came double, usually_missed double"
FORECAST_SCHEMA: Final = (
    "hive_id long, slot timestamp, p50 double, p90 double, model string, made_at timestamp"
)
PEAK_SCHEMA: Final = (
    "hive_id long, day date, model string, made_at timestamp, "
    "starts_at timestamp, ends_at timestamp"
)

ArrowBatches = Iterator[pa.RecordBatch]
ArrowStep = Callable[[ArrowBatches], ArrowBatches]

_MOMENT: Final = pa.timestamp("us", tz="UTC")


def sample_step(share: float, seed: int) -> ArrowStep:
    """A share of each hive's hours to learn from, by the same seed the same."""

    def sample(batches: ArrowBatches) -> ArrowBatches:
        for history in read_histories(batches):
            found = make_samples(history.grid, make_features(history.grid, history.public))
            random = np.random.default_rng((seed, history.hive_id))
            found = found.chosen(random.random(len(found)) < share)
            ends = np.arange(len(found) + 1, dtype=np.int32) * found.rows.shape[1]
            columns = {
                "hive_id": np.full(len(found), history.hive_id),
                "day": found.days,
                "features": pa.ListArray.from_arrays(ends, found.rows.ravel()),
                "ratio": found.ratios,
            }
            yield pa.RecordBatch.from_pydict(columns)

    return sample


def score_step(challenger: ForecastModel, start: date, day: date) -> ArrowStep:
    """What a challenger and the medians missed of the days from one to before another."""

    def judge(batches: ArrowBatches) -> ArrowBatches:
        for history in read_histories(batches):
            if not has_enough_history(history.grid, start):
                continue
            grid = history.grid.extend_to(day).before(day)
            known = make_features(grid, history.public)
            days = slice(max(0, grid.place(start)), None)
            rows = known.values[days]
            flat = rows.reshape(-1, rows.shape[-1])
            said = challenger.expected(flat, known.scale[days].ravel())[0].reshape(rows.shape[:2])
            usual = median_of_weeks(grid.counts)[days]
            # Both are judged by the same hours: those that either can say.
            both = np.isfinite(said) & np.isfinite(usual)
            actual = np.where(both, grid.counts[days], np.nan)
            off = np.zeros(len(actual), dtype=np.bool_)
            ours, theirs = tally_accuracy(actual, said, off), tally_accuracy(actual, usual, off)
            figures = [history.hive_id, ours.missed, ours.came, theirs.missed]
            names = ["hive_id", "missed", "came", "usually_missed"]
            yield pa.RecordBatch.from_arrays([pa.array([each]) for each in figures], names)

    return judge


def forecast_step(day: date, made_at: datetime, model: ForecastModel | None) -> ArrowStep:
    """A row for every hour of the hive's local day that something can be said of."""

    def say(batches: ArrowBatches) -> ArrowBatches:
        for history in read_histories(batches):
            found = forecast_hive(history, day, model)
            if found is None:
                continue
            known = np.isfinite(found.p50)
            told = [each for each in hours_of_day(day, history.time_zone) if known[each[1]]]
            hours = [hour for _, hour in told]
            columns = {
                "hive_id": np.full(len(told), history.hive_id),
                "slot": pa.array([moment for moment, _ in told], _MOMENT),
                "p50": found.p50[hours],
                "p90": found.p90[hours],
                "model": pa.array([found.method] * len(told), pa.string()),
                "made_at": pa.array([made_at] * len(told), _MOMENT),
            }
            yield pa.RecordBatch.from_pydict(columns)

    return say


def forecast_hive(
    history: HiveHistory, day: date, model: ForecastModel | None
) -> ExpectedHours | None:
    """By the model if there is one and the hive has the past for it, or by its own weeks."""
    usual = baseline_forecast(history.grid, day, history.public)
    if usual is None or model is None or not has_enough_history(history.grid, day):
        return usual
    p50, p90 = model.for_day(history.grid, day, history.public)
    known = np.isfinite(p50)
    low = np.where(known, p50, usual.p50)
    return ExpectedHours(low, np.maximum(low, np.where(known, p90, usual.p90)), model.name)


def peak_step(day: date) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """The peak window of a hive's day; no row for one on which nobody is expected."""

    def peak(rows: pd.DataFrame) -> pd.DataFrame:
        import pandas as pd

        ordered = rows.sort_values("slot")
        found = peak_window(ordered["p50"].to_numpy())
        first, end = found or (0, 1)
        kept = ordered.iloc[first : first + 1] if found else ordered.iloc[:0]
        ends = ordered["slot"].iloc[end - 1] + pd.Timedelta(hours=1)
        told = kept[["hive_id", "model", "made_at"]].assign(day=day, starts_at=kept["slot"])
        return told.assign(ends_at=ends)

    return peak
