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
    from pyspark.sql import DataFrame


#: Days that a challenger forecasts before it is published.
GATE_DAYS: Final = 28


@dataclass(frozen=True, slots=True)
class NightlyForecast:
    """The result of a night. DataFrames are computed when they are read."""

    #: hive_id, slot, p50, p90, model, made_at
    forecasts: DataFrame
    #: hive_id, day, model, made_at, starts_at, ends_at
    peaks: DataFrame
    verdict: ModelVerdict
    model: ForecastModel | None  #: the accepted one
    judged: str  #: name of the model of the verdict
    made_at: datetime


@contextmanager
def nightly_forecast(
    hourly: DataFrame,
    hives: DataFrame,
    day: date,
    made_at: datetime,
    seed: int = 0,
    growth: BoostingParameters | None = None,
) -> Iterator[NightlyForecast]:
    """Spark caches the histories in the block: read the DataFrames inside."""
    histories = hive_histories(hourly, hives, day, made_at).persist()
    try:
        verdict, model, judged = _choose_model(
            histories, _training_samples(histories, seed), day, seed, growth
        )
        rows = histories.mapInArrow(forecast_step(day, made_at, model), FORECAST_SCHEMA)
        peaks = rows.groupBy("hive_id").applyInPandas(peak_step(day), PEAK_SCHEMA)
        yield NightlyForecast(rows, peaks, verdict, model, judged, made_at)
    finally:
        histories.unpersist()


def _training_samples(histories: DataFrame, seed: int) -> TrainingSamples:
    """A sample of all hives' hours, in an order that does not depend on Spark's."""
    from pyspark.sql import functions as f

    hours = histories.agg(f.sum(f.size("counts"))).first()
    total = int(hours[0] or 0) if hours is not None else 0
    share = min(1.0, MAX_TRAINING_ROWS / max(1, total))
    table = histories.mapInArrow(sample_step(share, seed), SAMPLE_SCHEMA).toArrow()
    rows = table["features"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
    samples = TrainingSamples(
        np.asarray(rows, np.float64).reshape(-1, len(FEATURE_NAMES)),
        table["ratio"].to_numpy(),
        table["day"].to_numpy(),
    )
    # Hours of a hive are in order; the order of hives is made here.
    return samples.chosen(np.argsort(table["hive_id"].to_numpy(), kind="stable"))


def _choose_model(
    histories: DataFrame,
    samples: TrainingSamples,
    day: date,
    seed: int,
    growth: BoostingParameters | None,
) -> tuple[ModelVerdict, ForecastModel | None, str]:
    start = day - timedelta(days=GATE_DAYS)
    past = samples.before(start)
    if len(past) < MIN_TRAINING_ROWS:
        reason = f"{len(past):,} training hours before {start}, fewer than {MIN_TRAINING_ROWS:,}"
        return ModelVerdict(False, reason), None, f"none-{day}"
    challenger = ForecastModel.fit(past, seed, growth)
    scored = histories.mapInArrow(score_step(challenger, start, day), TALLY_SCHEMA).collect()
    ours = {str(row.hive_id): AccuracyTally(row.error, row.actual) for row in scored}
    usual = {str(row.hive_id): AccuracyTally(row.baseline_error, row.actual) for row in scored}
    verdict = judge_model(ours, usual)
    if not verdict.accepted:
        return verdict, None, challenger.name
    model = ForecastModel.fit(samples, seed, growth)
    return verdict, model, model.name


SAMPLE_SCHEMA: Final = "hive_id long, day long, features array<double>, ratio double"
TALLY_SCHEMA: Final = "hive_id long, error double, actual double, baseline_error double"
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
    """A share of each hive's hours for training, the same for the same seed."""

    def sample(batches: ArrowBatches) -> ArrowBatches:
        for history in read_histories(batches):
            samples = make_samples(history.grid, make_features(history.grid, history.public))
            random = np.random.default_rng((seed, history.hive_id))
            samples = samples.chosen(random.random(len(samples)) < share)
            ends = np.arange(len(samples) + 1, dtype=np.int32) * samples.rows.shape[1]
            columns = {
                "hive_id": np.full(len(samples), history.hive_id),
                "day": samples.days,
                "features": pa.ListArray.from_arrays(ends, samples.rows.ravel()),
                "ratio": samples.ratios,
            }
            yield pa.RecordBatch.from_pydict(columns)

    return sample


def score_step(challenger: ForecastModel, start: date, day: date) -> ArrowStep:
    """Errors of a challenger and of the medians on the days from `start` to before `day`."""

    def judge(batches: ArrowBatches) -> ArrowBatches:
        for history in read_histories(batches):
            if not has_enough_history(history.grid, start):
                continue
            grid = history.grid.extend_to(day).before(day)
            known = make_features(grid, history.public)
            days = slice(max(0, grid.index(start)), None)
            rows = known.values[days]
            flat = rows.reshape(-1, rows.shape[-1])
            p50 = challenger.expected(flat, known.scale[days].ravel())[0].reshape(rows.shape[:2])
            usual = median_of_weeks(grid.counts)[days]
            # Both are scored on the same hours: those that both forecast.
            both = np.isfinite(p50) & np.isfinite(usual)
            actual = np.where(both, grid.counts[days], np.nan)
            off = np.zeros(len(actual), dtype=np.bool_)
            ours, theirs = tally_accuracy(actual, p50, off), tally_accuracy(actual, usual, off)
            figures = [history.hive_id, ours.error, ours.actual, theirs.error]
            names = ["hive_id", "error", "actual", "baseline_error"]
            yield pa.RecordBatch.from_arrays([pa.array([each]) for each in figures], names)

    return judge


def forecast_step(day: date, made_at: datetime, model: ForecastModel | None) -> ArrowStep:
    """A row for each forecast hour of the hive's local day."""

    def forecast(batches: ArrowBatches) -> ArrowBatches:
        for history in read_histories(batches):
            expected = forecast_hive(history, day, model)
            if expected is None:
                continue
            known = np.isfinite(expected.p50)
            slots = [each for each in hours_of_day(day, history.time_zone) if known[each[1]]]
            hours = [hour for _, hour in slots]
            columns = {
                "hive_id": np.full(len(slots), history.hive_id),
                "slot": pa.array([moment for moment, _ in slots], _MOMENT),
                "p50": expected.p50[hours],
                "p90": expected.p90[hours],
                "model": pa.array([expected.method] * len(slots), pa.string()),
                "made_at": pa.array([made_at] * len(slots), _MOMENT),
            }
            yield pa.RecordBatch.from_pydict(columns)

    return forecast


def forecast_hive(
    history: HiveHistory, day: date, model: ForecastModel | None
) -> ExpectedHours | None:
    """By the model if the hive has enough history, otherwise by the baseline."""
    usual = baseline_forecast(history.grid, day, history.public)
    if usual is None or model is None or not has_enough_history(history.grid, day):
        return usual
    p50, p90 = model.for_day(history.grid, day, history.public)
    known = np.isfinite(p50)
    low = np.where(known, p50, usual.p50)
    return ExpectedHours(low, np.maximum(low, np.where(known, p90, usual.p90)), model.name)


def peak_step(day: date) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """The peak window of a hive's day; no row if nobody is expected."""

    def peak(rows: pd.DataFrame) -> pd.DataFrame:
        import pandas as pd

        ordered = rows.sort_values("slot")
        window = peak_window(ordered["p50"].to_numpy())
        first, end = window or (0, 1)
        start = ordered.iloc[first : first + 1] if window else ordered.iloc[:0]
        ends = ordered["slot"].iloc[end - 1] + pd.Timedelta(hours=1)
        row = start[["hive_id", "model", "made_at"]].assign(day=day, starts_at=start["slot"])
        return row.assign(ends_at=ends)

    return peak
