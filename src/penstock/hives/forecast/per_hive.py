"""What workers do of a night, a hive at a time: functions for `mapInArrow` over histories.

Each makes a function that Spark sends to its workers with what it needs inside: a model is some
hundred kilobytes. Nothing here reads a clock, a file or a database.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date, datetime
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from penstock.hives.forecast.baseline import Expected, enough, expected
from penstock.hives.forecast.features import features
from penstock.hives.forecast.grid import slots
from penstock.hives.forecast.histories import History, each_history
from penstock.hives.forecast.measures import tally
from penstock.hives.forecast.medians import median_of_weeks
from penstock.hives.forecast.model import Model, samples
from penstock.hives.forecast.peaks import window

if TYPE_CHECKING:
    import pandas as pd

SAMPLES: Final = "hive_id long, day long, features array<double>, ratio double"
TALLIES: Final = "hive_id long, missed double, came double, usually_missed double"
FORECASTS: Final = (
    "hive_id long, slot timestamp, p50 double, p90 double, model string, made_at timestamp"
)
PEAKS: Final = (
    "hive_id long, day date, model string, made_at timestamp, "
    "starts_at timestamp, ends_at timestamp"
)

Batches = Iterator[pa.RecordBatch]
Step = Callable[[Batches], Batches]

_MOMENT: Final = pa.timestamp("us", tz="UTC")


def sampling(share: float, seed: int) -> Step:
    """A share of each hive's hours to learn from, by the same seed the same."""

    def sample(batches: Batches) -> Batches:
        for history in each_history(batches):
            found = samples(history.grid, features(history.grid, history.public))
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


def judging(challenger: Model, start: date, day: date) -> Step:
    """What a challenger and the medians missed of the days from one to before another."""

    def judge(batches: Batches) -> Batches:
        for history in each_history(batches):
            if not enough(history.grid, start):
                continue
            grid = history.grid.reaching(day).before(day)
            known = features(grid, history.public)
            days = slice(max(0, grid.place(start)), None)
            rows = known.values[days]
            flat = rows.reshape(-1, rows.shape[-1])
            said = challenger.expected(flat, known.scale[days].ravel())[0].reshape(rows.shape[:2])
            usual = median_of_weeks(grid.counts)[days]
            # Both are judged by the same hours: those that either can say.
            both = np.isfinite(said) & np.isfinite(usual)
            actual = np.where(both, grid.counts[days], np.nan)
            off = np.zeros(len(actual), dtype=np.bool_)
            ours, theirs = tally(actual, said, off), tally(actual, usual, off)
            figures = [history.hive_id, ours.missed, ours.came, theirs.missed]
            names = ["hive_id", "missed", "came", "usually_missed"]
            yield pa.RecordBatch.from_arrays([pa.array([each]) for each in figures], names)

    return judge


def saying(day: date, made_at: datetime, model: Model | None) -> Step:
    """A row for every hour of the hive's local day that something can be said of."""

    def say(batches: Batches) -> Batches:
        for history in each_history(batches):
            found = said(history, day, model)
            if found is None:
                continue
            known = np.isfinite(found.p50)
            told = [each for each in slots(day, history.time_zone) if known[each[1]]]
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


def said(history: History, day: date, model: Model | None) -> Expected | None:
    """By the model if there is one and the hive has the past for it, or by its own weeks."""
    usual = expected(history.grid, day, history.public)
    if usual is None or model is None or not enough(history.grid, day):
        return usual
    p50, p90 = model.for_day(history.grid, day, history.public)
    known = np.isfinite(p50)
    low = np.where(known, p50, usual.p50)
    return Expected(low, np.maximum(low, np.where(known, p90, usual.p90)), model.name)


def peaking(day: date) -> Callable[[pd.DataFrame], pd.DataFrame]:
    """The peak window of a hive's day; no row for one on which nobody is expected."""

    def peak(rows: pd.DataFrame) -> pd.DataFrame:
        import pandas as pd

        ordered = rows.sort_values("slot")
        found = window(ordered["p50"].to_numpy())
        first, end = found or (0, 1)
        kept = ordered.iloc[first : first + 1] if found else ordered.iloc[:0]
        ends = ordered["slot"].iloc[end - 1] + pd.Timedelta(hours=1)
        told = kept[["hive_id", "model", "made_at"]].assign(day=day, starts_at=kept["slot"])
        return told.assign(ends_at=ends)

    return peak
