"""Backtest: forecast past days as they would have been forecast, and score them.

Rolling origin: a model is fitted on the data before a day and forecasts each day until the next
fit, one day ahead. Simple methods are scored beside it. Pure: venues in, tallies and a verdict out.
`nightly` does the same on Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final, TypeVar

import numpy as np

from penstock.core.errors import PreconditionFailed
from penstock_hives.arrays import Flags, Floats
from penstock_hives.forecast.accuracy import (
    AccuracyTally,
    ModelVerdict,
    judge_model,
    tally_accuracy,
)
from penstock_hives.forecast.baseline import (
    MEDIAN_METHOD,
    mean_level,
    median_of_weeks,
    same_weekday_hours,
    shift_days,
    upper_band,
)
from penstock_hives.forecast.features import FEATURE_NAMES, Features, make_features
from penstock_hives.forecast.grid import WEEK
from penstock_hives.forecast.model import (
    BoostingParameters,
    ForecastModel,
    TrainingSamples,
    make_samples,
)
from penstock_hives.forecast.venues import Venue

Values = TypeVar("Values", Floats, Flags)

GLOBAL_METHOD: Final = "global model"
#: Twice as many rows take twice as long and do not lower the WAPE.
MAX_TRAINING_ROWS: Final = 120_000
#: The least hours of all venues to fit a model.
MIN_TRAINING_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class BacktestSpan:
    """Days to forecast, `end` excluded, with a new model every `refit` days."""

    first: date
    end: date
    refit: int = 30

    def periods(self) -> Iterator[tuple[date, date]]:
        start = self.first
        while start < self.end:
            stop = min(self.end, start + timedelta(days=self.refit))
            yield start, stop
            start = stop


@dataclass(frozen=True, slots=True)
class BacktestForecast:
    """Of one venue: days × hours of the span."""

    actual: Floats
    p50: Floats
    p90: Floats


@dataclass(frozen=True, slots=True)
class Backtest:
    span: BacktestSpan
    #: Method → venue → tally.
    tallies: dict[str, dict[str, AccuracyTally]]
    #: Venue → forecast and actual counts.
    forecasts: dict[str, BacktestForecast]
    verdict: ModelVerdict

    def total(self, method: str) -> AccuracyTally:
        return sum(self.tallies[method].values(), AccuracyTally())


def run_backtest(
    venues: Sequence[Venue],
    span: BacktestSpan,
    *,
    seed: int = 0,
    growth: BoostingParameters | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Backtest:
    tallies: dict[str, dict[str, AccuracyTally]] = {
        name: {each.name: _score(each, span, method(each)) for each in venues}
        for name, method in SIMPLE_METHODS.items()
    }
    tallies[MEDIAN_METHOD] = {each.name: _score_baseline(each, span) for each in venues}
    known = [make_features(each.grid, each.public) for each in venues]
    forecasts = _rolling_forecasts(venues, known, span, seed, growth, progress)
    tallies[GLOBAL_METHOD] = {
        each.name: _score(each, span, p50, p90)
        for each, (p50, p90) in zip(venues, forecasts, strict=True)
    }
    return Backtest(
        span,
        tallies,
        {
            each.name: BacktestForecast(
                *(_in_span(each, span, one) for one in (each.grid.counts, p50, p90))
            )
            for each, (p50, p90) in zip(venues, forecasts, strict=True)
        },
        judge_model(tallies[GLOBAL_METHOD], tallies[MEDIAN_METHOD]),
    )


def _rolling_forecasts(
    venues: Sequence[Venue],
    known: Sequence[Features],
    span: BacktestSpan,
    seed: int,
    growth: BoostingParameters | None,
    progress: Callable[[str], None],
) -> list[tuple[Floats, Floats]]:
    """p50 and p90 by venue, of all its days; NaN outside the span."""
    forecasts = [
        (np.full_like(each.grid.counts, np.nan), np.full_like(each.grid.counts, np.nan))
        for each in venues
    ]
    samples = TrainingSamples.concat(
        make_samples(each.grid, seen) for each, seen in zip(venues, known, strict=True)
    )
    for start, stop in span.periods():
        past = samples.before(start).subsample(MAX_TRAINING_ROWS, seed)
        if len(past) < MIN_TRAINING_ROWS:
            raise PreconditionFailed(
                f"no training data before {start}: a model needs ten weeks of some venues"
            )
        progress(f"{start} … {stop - timedelta(days=1)}: fitted on {len(past):,} hours")
        model = ForecastModel.fit(past, seed, growth)
        for venue, seen, (p50, p90) in zip(venues, known, forecasts, strict=True):
            first, end = (max(0, venue.grid.index(day)) for day in (start, stop))
            rows = seen.values[first:end]
            flat = model.expected(rows.reshape(-1, rows.shape[-1]), seen.scale[first:end].ravel())
            p50[first:end], p90[first:end] = (each.reshape(rows.shape[:2]) for each in flat)
    return forecasts


def _score_baseline(venue: Venue, span: BacktestSpan) -> AccuracyTally:
    counts = venue.grid.counts
    p50 = SIMPLE_METHODS[MEDIAN_METHOD](venue)
    p90 = upper_band(
        counts, p50, np.nan_to_num(mean_level(counts)), max(0, venue.grid.index(span.first))
    )
    return _score(venue, span, p50, p90)


def _score(
    venue: Venue, span: BacktestSpan, p50: Floats, p90: Floats | None = None
) -> AccuracyTally:
    off = _in_span(venue, span, venue.public.is_holiday(venue.grid.days))
    high = None if p90 is None else _in_span(venue, span, p90)
    return tally_accuracy(
        _in_span(venue, span, venue.grid.counts), _in_span(venue, span, p50), off, high
    )


def _in_span(venue: Venue, span: BacktestSpan, values: Values) -> Values:
    first, end = (max(0, venue.grid.index(day)) for day in (span.first, span.end))
    return values[first:end]


#: Weight of a week relative to the next one.
_FADING: Final = 0.7
_WEEKS: Final = 8


def last_week(venue: Venue) -> Floats:
    return shift_days(venue.grid.counts, WEEK)


def four_weeks(venue: Venue) -> Floats:
    """The median of the same hour in the last four weeks."""
    return median_of_weeks(venue.grid.counts)


def weighted_weeks(venue: Venue) -> Floats:
    """The mean of eight weeks, each with 0.7 times the weight of the next."""
    weeks = same_weekday_hours(venue.grid.counts, _WEEKS)
    weights = (_FADING ** np.arange(_WEEKS))[:, None, None] * np.isfinite(weeks)
    total, weight = np.nansum(weeks * weights, axis=0), weights.sum(axis=0)
    unknown = np.full_like(total, np.nan)
    mean: Floats = np.divide(total, weight, out=unknown, where=weight > 0)
    return mean


def at_recent_level(venue: Venue) -> Floats:
    """The median of four weeks, times the relative level of the last week."""
    level = make_features(venue.grid, venue.public).values[..., FEATURE_NAMES.index("level_7")]
    return four_weeks(venue) * np.where(np.isfinite(level), level, 1.0)


def sundays_on_holidays(venue: Venue) -> Floats:
    """The median of four weeks, and of four Sundays on public holidays."""
    known = make_features(venue.grid, venue.public)
    sundays = known.values[..., FEATURE_NAMES.index("sundays")] * known.scale
    off = known.values[..., FEATURE_NAMES.index("holiday")] > 0
    return np.where(off & np.isfinite(sundays), sundays, four_weeks(venue))


SIMPLE_METHODS: Final[dict[str, Callable[[Venue], Floats]]] = {
    "same hour last week": last_week,
    MEDIAN_METHOD: four_weeks,
    "fading weeks": weighted_weeks,
    f"{MEDIAN_METHOD} at recent level": at_recent_level,
    f"{MEDIAN_METHOD}, Sundays on holidays": sundays_on_holidays,
}
