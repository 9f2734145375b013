"""Forecasts of days that have passed, made as they would have been, and scored.

Rolling origin: at each of some days a model is fitted on what was before, and says every day until
the next, one day ahead; the venue's history grows by a day each time, the model stays. Everything
is pure: venues in, tallies and a verdict out. What Spark does at night (`nightly.py`) is this, with
the venues spread over workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final, TypeVar

import numpy as np

from penstock.core.errors import PreconditionFailed
from penstock.hives.forecast.baseline import MEDIAN
from penstock.hives.forecast.boosting import Growth
from penstock.hives.forecast.features import Features, features
from penstock.hives.forecast.gate import Verdict, judge
from penstock.hives.forecast.grid import Flags, Floats
from penstock.hives.forecast.measures import Tally, tally
from penstock.hives.forecast.medians import busy, level
from penstock.hives.forecast.methods import METHODS
from penstock.hives.forecast.model import Model, Samples, samples
from penstock.hives.forecast.venues import Venue

Values = TypeVar("Values", Floats, Flags)

GLOBAL: Final = "global model"
#: Enough to learn from: twice as many take twice as long, and the WAPE stays.
MOST_ROWS: Final = 120_000
#: Fewer hours than these of all venues together teach nothing.
LEAST_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Span:
    """Days to be forecast, from the first to before the end, with a new model every so many."""

    first: date
    end: date
    refit: int = 30

    def stretches(self) -> Iterator[tuple[date, date]]:
        start = self.first
        while start < self.end:
            stop = min(self.end, start + timedelta(days=self.refit))
            yield start, stop
            start = stop


@dataclass(frozen=True, slots=True)
class Said:
    """Of one venue: days × hours of the span."""

    actual: Floats
    p50: Floats
    p90: Floats


@dataclass(frozen=True, slots=True)
class Backtest:
    span: Span
    #: Method → venue → what it counted.
    tallies: dict[str, dict[str, Tally]]
    #: Venue → what the model said, and what came.
    said: dict[str, Said]
    verdict: Verdict

    def total(self, method: str) -> Tally:
        return sum(self.tallies[method].values(), Tally())


def backtest(
    venues: Sequence[Venue],
    span: Span,
    *,
    seed: int = 0,
    growth: Growth | None = None,
    told: Callable[[str], None] = lambda _: None,
) -> Backtest:
    """Score the simple methods and the global model over a span; `told` hears how it goes on."""
    tallies: dict[str, dict[str, Tally]] = {
        name: {each.name: _score(each, span, method(each)) for each in venues}
        for name, method in METHODS.items()
    }
    tallies[MEDIAN] = {each.name: _score_baseline(each, span) for each in venues}
    known = [features(each.grid, each.public) for each in venues]
    said = _rolling(venues, known, span, seed, growth, told)
    tallies[GLOBAL] = {
        each.name: _score(each, span, p50, p90)
        for each, (p50, p90) in zip(venues, said, strict=True)
    }
    return Backtest(
        span,
        tallies,
        {
            each.name: Said(*(_cut(each, span, one) for one in (each.grid.counts, p50, p90)))
            for each, (p50, p90) in zip(venues, said, strict=True)
        },
        judge(tallies[GLOBAL], tallies[MEDIAN]),
    )


def _rolling(
    venues: Sequence[Venue],
    known: Sequence[Features],
    span: Span,
    seed: int,
    growth: Growth | None,
    told: Callable[[str], None],
) -> list[tuple[Floats, Floats]]:
    """p50 and p90 by venue, on all its days; unknown outside the span."""
    said = [
        (np.full_like(each.grid.counts, np.nan), np.full_like(each.grid.counts, np.nan))
        for each in venues
    ]
    taught = Samples.together(
        samples(each.grid, seen) for each, seen in zip(venues, known, strict=True)
    )
    for start, stop in span.stretches():
        learned = taught.before(start).thinned(MOST_ROWS, seed)
        if len(learned) < LEAST_ROWS:
            raise PreconditionFailed(
                f"nothing to learn from before {start}: a model needs ten weeks of some venues"
            )
        told(f"{start} … {stop - timedelta(days=1)}: fitted on {len(learned):,} hours")
        model = Model.fit(learned, seed, growth)
        for venue, seen, (p50, p90) in zip(venues, known, said, strict=True):
            first, end = (max(0, venue.grid.place(day)) for day in (start, stop))
            rows = seen.values[first:end]
            flat = model.expected(rows.reshape(-1, rows.shape[-1]), seen.scale[first:end].ravel())
            p50[first:end], p90[first:end] = (each.reshape(rows.shape[:2]) for each in flat)
    return said


def _score_baseline(venue: Venue, span: Span) -> Tally:
    counts = venue.grid.counts
    p50 = METHODS[MEDIAN](venue)
    p90 = busy(counts, p50, np.nan_to_num(level(counts)), max(0, venue.grid.place(span.first)))
    return _score(venue, span, p50, p90)


def _score(venue: Venue, span: Span, p50: Floats, p90: Floats | None = None) -> Tally:
    off = _cut(venue, span, venue.public.among(venue.grid.days))
    high = None if p90 is None else _cut(venue, span, p90)
    return tally(_cut(venue, span, venue.grid.counts), _cut(venue, span, p50), off, high)


def _cut(venue: Venue, span: Span, values: Values) -> Values:
    first, end = (max(0, venue.grid.place(day)) for day in (span.first, span.end))
    return values[first:end]
