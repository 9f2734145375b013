"""The nightly forecast on Spark: every hive's next day, by the global model if it has earned it.

A challenger is fitted on what was before the last four weeks and has to say those, one day ahead,
beside the hives' own medians. If it passes the gate, a model fitted on everything is published;
otherwise the medians are, and the reason is kept. Workers hold the hives and do all that is done
for each; the driver fits, on a sample that does not grow with the number of hives. The same rows,
day and seed give the same forecast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from penstock.hives.forecast.backtest import LEAST_ROWS, MOST_ROWS
from penstock.hives.forecast.baseline import alive, expected
from penstock.hives.forecast.boosting import Growth
from penstock.hives.forecast.features import features
from penstock.hives.forecast.gate import Verdict, judge
from penstock.hives.forecast.grid import Floats, day_number, slots
from penstock.hives.forecast.histories import History, each_history, histories
from penstock.hives.forecast.measures import Tally, tally
from penstock.hives.forecast.medians import median_of_weeks
from penstock.hives.forecast.model import Model, Samples, enough, samples
from penstock.hives.forecast.peaks import window

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

#: What a challenger has to say before it is believed.
GATE_DAYS: Final = 28
FORECASTS: Final = (
    "hive_id long, slot timestamp, p50 double, p90 double, model string, made_at timestamp"
)
PEAKS: Final = "hive_id long, day date, model string, made_at timestamp, starts_at timestamp, ends_at timestamp"
_SAMPLES: Final = "hive_id long, day int, features array<double>, ratio double"
_TALLIES: Final = "hive_id long, missed double, came double, usually_missed double"

Frames = Iterator["pd.DataFrame"]


@dataclass(frozen=True, slots=True)
class Night:
    """What a night brought. The DataFrames are made when they are read or written."""

    forecasts: DataFrame
    peaks: DataFrame
    verdict: Verdict
    #: Only one that was accepted.
    model: Model | None


def forecast(
    spark: SparkSession,
    hourly: DataFrame,
    hives: DataFrame,
    day: date,
    made_at: datetime,
    seed: int = 0,
) -> DataFrame:
    """hive_id, slot, p50, p90, model, made_at of a local day of each hive."""
    with night(spark, hourly, hives, day, made_at, seed) as made:
        rows = made.forecasts.toArrow()
    return spark.createDataFrame(rows, FORECASTS)


@contextmanager
def night(
    spark: SparkSession,
    hourly: DataFrame,
    hives: DataFrame,
    day: date,
    made_at: datetime,
    seed: int = 0,
    growth: Growth | None = None,
) -> Iterator[Night]:
    """Histories are kept in Spark's memory for the length of the block."""
    kept = histories(hourly, hives, day, made_at).persist()
    try:
        learned = _Learned.collect(kept, seed)
        verdict, model = _chosen(kept, learned, day, seed, growth)
        rows = kept.mapInPandas(_saying(day, made_at, model), FORECASTS)
        peaks = rows.groupBy("hive_id").applyInPandas(_peaking(day), PEAKS)
        yield Night(rows, peaks, verdict, model)
    finally:
        kept.unpersist()


@dataclass(frozen=True, slots=True)
class _Learned:
    """A sample of all hives' hours, in an order that does not depend on Spark's."""

    days: np.ndarray
    samples: Samples

    @classmethod
    def collect(cls, kept: DataFrame, seed: int) -> _Learned:
        from pyspark.sql import functions as f

        hours = kept.agg(f.sum(f.size("counts"))).first()
        total = int(hours[0] or 0) if hours is not None else 0
        share = min(1.0, MOST_ROWS / max(1, total))
        table = kept.mapInPandas(_sampling(share, seed), _SAMPLES).toArrow()
        # Workers gave a hive's hours in their order; between hives there is none but this.
        order = np.argsort(table["hive_id"].to_numpy(), kind="stable")
        rows = table["features"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        width = len(rows) // max(1, len(order))
        return cls(
            table["day"].to_numpy()[order],
            Samples(rows.reshape(len(order), width)[order], table["ratio"].to_numpy()[order]),
        )

    def before(self, day: date) -> Samples:
        chosen = self.days < day_number(day)
        return Samples(self.samples.rows[chosen], self.samples.ratios[chosen])


def _chosen(
    kept: DataFrame, learned: _Learned, day: date, seed: int, growth: Growth | None
) -> tuple[Verdict, Model | None]:
    start = day - timedelta(days=GATE_DAYS)
    past = learned.before(start)
    if len(past.ratios) < LEAST_ROWS:
        return Verdict(False, f"only {len(past.ratios)} hours to learn from before {start}"), None
    challenger = Model.fit(past, seed, growth)
    rows = kept.mapInPandas(_judging(challenger, start, day), _TALLIES).collect()
    ours = {str(row.hive_id): Tally(row.missed, row.came) for row in rows}
    usual = {str(row.hive_id): Tally(row.usually_missed, row.came) for row in rows}
    verdict = judge(ours, usual)
    return verdict, Model.fit(learned.before(day), seed, growth) if verdict.accepted else None


def _sampling(share: float, seed: int) -> Callable[[Frames], Frames]:
    def sample(frames: Frames) -> Frames:
        import pandas as pd

        for history in each_history(frames):
            known = features(history.grid, history.public)
            first = history.grid.first
            for place, day in enumerate(history.grid.days):
                found = samples(history.grid, known, day, day + timedelta(days=1))
                random = np.random.default_rng((seed, history.hive_id, day_number(first) + place))
                chosen = random.random(len(found.ratios)) < share
                if chosen.any():
                    yield pd.DataFrame(
                        {
                            "hive_id": history.hive_id,
                            "day": day_number(day),
                            "features": list(found.rows[chosen]),
                            "ratio": found.ratios[chosen],
                        }
                    )

    return sample


def _judging(challenger: Model, start: date, day: date) -> Callable[[Frames], Frames]:
    def score(frames: Frames) -> Frames:
        import pandas as pd

        for history in each_history(frames):
            if not enough(history.grid, start):
                continue
            grid = history.grid.reaching(day).before(day)
            known = features(grid, history.public)
            first = max(0, grid.place(start))
            actual, usual = grid.counts[first:], median_of_weeks(grid.counts)[first:]
            rows, scale = known.values[first:], known.scale[first:]
            said, _ = challenger.expected(rows.reshape(-1, rows.shape[-1]), scale.ravel())
            said = said.reshape(actual.shape)
            # Hours only one of them can say would make them differ in what they are judged by.
            actual = np.where(np.isfinite(said) & np.isfinite(usual), actual, np.nan)
            none = np.zeros(len(actual), dtype=np.bool_)
            ours, theirs = tally(actual, said, none), tally(actual, usual, none)
            figures = (history.hive_id, ours.missed, ours.came, theirs.missed)
            names = ("hive_id", "missed", "came", "usually_missed")
            yield pd.DataFrame([dict(zip(names, figures, strict=True))])

    return score


def _saying(day: date, made_at: datetime, model: Model | None) -> Callable[[Frames], Frames]:
    def say(frames: Frames) -> Frames:
        import pandas as pd

        for history in each_history(frames):
            found = hours_of(history, day, model)
            if found is None:
                continue
            p50, p90, name = found
            moments = [each for each in slots(day, history.time_zone) if np.isfinite(p50[each[1]])]
            hours = [hour for _, hour in moments]
            yield pd.DataFrame(
                {
                    "hive_id": history.hive_id,
                    "slot": pd.to_datetime([moment for moment, _ in moments], utc=True),
                    "p50": p50[hours],
                    "p90": np.maximum(p50, p90)[hours],
                    "model": name,
                    "made_at": pd.Timestamp(made_at),
                }
            )

    return say


def hours_of(history: History, day: date, model: Model | None) -> tuple[Floats, Floats, str] | None:
    """p50, p90 and who says so; by the hive's own weeks where there is no model for it."""
    usual = expected(history.grid, day, history.public)
    if usual is None or not alive(history.grid, day):
        return None
    if model is None or not enough(history.grid, day):
        return usual.p50, usual.p90, usual.method
    p50, p90 = model.for_day(history.grid, day, history.public)
    known = np.isfinite(p50)
    return np.where(known, p50, usual.p50), np.where(known, p90, usual.p90), model.name


def _peaking(day: date) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def peak(rows: pd.DataFrame) -> pd.DataFrame:
        import pandas as pd

        ordered = rows.sort_values("slot")
        found = window(ordered["p50"].to_numpy())
        first: Any = ordered.iloc[0]
        if found is None:
            return pd.DataFrame({name.split()[0]: [] for name in PEAKS.split(", ")})
        starts, last = (ordered["slot"].iloc[place] for place in (found[0], found[1] - 1))
        told = {name: [first[name]] for name in ("hive_id", "model", "made_at")}
        ends = last + pd.Timedelta(hours=1)
        return pd.DataFrame({**told, "day": [day], "starts_at": [starts], "ends_at": [ends]})

    return peak
