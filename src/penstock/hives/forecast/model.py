"""The global model: one for all venues, of what an hour is as a ratio to what is usual there.

Two sets of trees: the median (p50) and what nine days in ten stay under (p90). A model is named by
what it is made of, so the same rows and seed give the same name, and a forecast says exactly which
model made it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from penstock.core.errors import PreconditionFailed
from penstock.hives.forecast.boosting import Growth, grow
from penstock.hives.forecast.features import NAMES, Features, features
from penstock.hives.forecast.grid import WEEK, Flags, Floats, Grid
from penstock.hives.forecast.medians import BASELINE_WEEKS, BUSY_DAY, FEW_DAYS, SCALE_WEEKS
from penstock.hives.forecast.public_days import PublicDays
from penstock.hives.forecast.trees import Trees

_FORMAT: Final = 1
#: Ratios beyond it are a street parade or a fault, and teach nothing about other days.
_LARGEST: Final = 50.0


@dataclass(frozen=True, slots=True)
class Samples:
    """Hours to learn from: what was known before, and the ratio that came."""

    rows: Floats
    ratios: Floats

    def thinned(self, most: int, seed: int) -> Samples:
        """So many of them at random, if there are more; by the same seed the same."""
        if len(self.ratios) <= most:
            return self
        drawn = np.random.default_rng(seed).choice(len(self.ratios), most, replace=False)
        drawn.sort()
        return Samples(self.rows[drawn], self.ratios[drawn])

    @classmethod
    def together(cls, parts: Iterable[Samples]) -> Samples:
        found = list(parts)
        if not found:
            return cls(np.empty((0, len(NAMES))), np.empty(0))
        return cls(
            np.concatenate([each.rows for each in found]),
            np.concatenate([each.ratios for each in found]),
        )


def samples(grid: Grid, known: Features, since: date, until: date) -> Samples:
    """Of the days of a venue from one to before another that have a past of four weeks."""
    first = max(WEEK * BASELINE_WEEKS, grid.place(since))
    days = slice(first, max(first, min(len(grid.counts), grid.place(until))))
    with np.errstate(invalid="ignore"):
        ratios = grid.counts[days] / known.scale[days]
    usable: Flags = np.isfinite(ratios)
    return Samples(known.values[days][usable], np.minimum(ratios[usable], _LARGEST))


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    name: str
    p50: Trees
    p90: Trees

    @classmethod
    def fit(cls, learned: Samples, seed: int, growth: Growth | None = None) -> Self:
        growth = growth or Growth()
        p50, p90 = (
            grow(learned.rows, learned.ratios, quantile, seed, growth)
            for quantile in (0.5, BUSY_DAY)
        )
        return cls(_named(p50, p90), p50, p90)

    def expected(self, rows: Floats, scale: Floats) -> tuple[Floats, Floats]:
        """p50 and p90 of hours, in counts; unknown where what is usual is."""
        p50 = np.maximum(0.0, self.p50.predict(rows)) * scale
        p90 = np.maximum(0.0, self.p90.predict(rows)) * scale
        return p50, np.maximum(p50, p90)

    def for_day(self, grid: Grid, day: date, public: PublicDays) -> tuple[Floats, Floats]:
        """Of one venue and day, by what was known before it."""
        past = grid.before(day).reaching(day)
        # What features look back to, and the level before that.
        recent = past.counts[-2 * WEEK * (SCALE_WEEKS + 1) :]
        start = grid.first.fromordinal(day.toordinal() - len(recent) + 1)
        known = features(Grid(start, recent), public)
        return self.expected(known.values[-1], known.scale[-1])

    def save(self, path: Path) -> None:
        whole = {"format": _FORMAT, "name": self.name, "features": list(NAMES)}
        trees = {"p50": self.p50.to_json(), "p90": self.p90.to_json()}
        path.write_text(json.dumps(whole | trees, allow_nan=False), encoding="utf-8")

    @classmethod
    def load(cls, path: Path) -> Self:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if found.get("format") != _FORMAT or tuple(found["features"]) != NAMES:
            raise PreconditionFailed(f"{path}: a model of another version; fit it again")
        p50, p90 = (Trees.from_json(found[each]) for each in ("p50", "p90"))
        return cls(found["name"], p50, p90)


def enough(grid: Grid, day: date) -> bool:
    """Whether a venue has the past a model asks for; those that do not get their own weeks."""
    past = grid.before(day)
    return int(np.isfinite(past.counts).any(axis=1).sum()) >= FEW_DAYS


def _named(*trees: Trees) -> str:
    text = json.dumps([each.to_json() for each in trees], sort_keys=True)
    return f"global-{sha256(text.encode()).hexdigest()[:12]}"
