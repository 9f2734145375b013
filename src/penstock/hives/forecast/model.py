"""The global model: one for all venues, of what an hour is as a ratio to what is usual there.

Two sets of trees: the median (p50) and what nine days in ten stay under (p90). A model is named by
what it is made of, so the same rows and seed give the same name, and a forecast says exactly which
model made it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from penstock.core.errors import PreconditionFailed
from penstock.hives.forecast.boosting import Growth, grow
from penstock.hives.forecast.features import NAMES, Features, features
from penstock.hives.forecast.grid import WEEK, Flags, Floats, Grid, Numbers, day_number
from penstock.hives.forecast.medians import BASELINE_WEEKS, BUSY_DAY, SCALE_WEEKS
from penstock.hives.forecast.public_days import PublicDays
from penstock.hives.forecast.trees import Trees

_FORMAT: Final = 1
#: Ratios beyond it are a street parade or a fault, and teach nothing about other days.
_LARGEST: Final = 50.0


@dataclass(frozen=True, slots=True)
class Samples:
    """Hours to learn from: what was known before, the ratio that came, and on which day."""

    rows: Floats
    ratios: Floats
    #: Since 1970.
    days: Numbers

    def __len__(self) -> int:
        return len(self.ratios)

    def chosen(self, which: Flags | Numbers) -> Samples:
        return Samples(self.rows[which], self.ratios[which], self.days[which])

    def before(self, day: date) -> Samples:
        return self.chosen(self.days < day_number(day))

    def thinned(self, most: int, seed: int) -> Samples:
        """So many of them at random, if there are more; by the same seed the same."""
        if len(self) <= most:
            return self
        drawn = np.random.default_rng(seed).choice(len(self), most, replace=False)
        return self.chosen(np.sort(drawn))

    @classmethod
    def together(cls, parts: Iterable[Samples]) -> Samples:
        found = list(parts)
        return cls(
            np.concatenate([each.rows for each in found]),
            np.concatenate([each.ratios for each in found]),
            np.concatenate([each.days for each in found]),
        )


def samples(grid: Grid, known: Features) -> Samples:
    """Of the days of a venue that have a past of four weeks."""
    past = slice(WEEK * BASELINE_WEEKS, None)
    ratios = grid.counts[past] / known.scale[past]
    usable: Flags = np.isfinite(ratios)
    places = np.arange(len(grid.counts))[past, None] + day_number(grid.first)
    days = np.broadcast_to(places, ratios.shape)[usable]
    return Samples(known.values[past][usable], np.minimum(ratios[usable], _LARGEST), days)


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
        start = day - timedelta(days=len(recent) - 1)
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


def _named(*trees: Trees) -> str:
    text = json.dumps([each.to_json() for each in trees], sort_keys=True)
    return f"global-{sha256(text.encode()).hexdigest()[:12]}"
