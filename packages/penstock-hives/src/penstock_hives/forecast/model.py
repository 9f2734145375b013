"""The global model: gradient-boosted trees for the ratio of an hour to its usual count.

Two ensembles: p50 and p90. The model name is a hash of its trees: the same rows and seed give the
same name. scikit-learn fits the trees, single-threaded and seeded; they are exported to arrays and
evaluated with NumPy. LightGBM is as good but needs libgomp, which slim images do not have.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from datetime import date, timedelta
from hashlib import sha256
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from penstock_hives.arrays import Flags, Floats, Numbers
from penstock_hives.dates import day_number
from penstock_hives.forecast.baseline import BASELINE_WEEKS, SCALE_WEEKS, UPPER_QUANTILE
from penstock_hives.forecast.features import Features, make_features
from penstock_hives.forecast.grid import WEEK, HourlyGrid, PublicHolidays

#: Greater ratios are exceptional events or faults.
_MAX_RATIO: Final = 50.0


@dataclass(frozen=True, slots=True)
class TrainingSamples:
    """Hours for training: features, the actual ratio, and the day."""

    rows: Floats
    ratios: Floats
    days: Numbers  #: since 1970

    def __len__(self) -> int:
        return len(self.ratios)

    def chosen(self, which: Flags | Numbers) -> TrainingSamples:
        return TrainingSamples(self.rows[which], self.ratios[which], self.days[which])

    def before(self, day: date) -> TrainingSamples:
        return self.chosen(self.days < day_number(day))

    def subsample(self, most: int, seed: int) -> TrainingSamples:
        """At most `most` samples, chosen at random by the seed."""
        if len(self) <= most:
            return self
        drawn = np.random.default_rng(seed).choice(len(self), most, replace=False)
        return self.chosen(np.sort(drawn))

    @classmethod
    def concat(cls, parts: Iterable[TrainingSamples]) -> TrainingSamples:
        samples = list(parts)
        return cls(
            np.concatenate([each.rows for each in samples]),
            np.concatenate([each.ratios for each in samples]),
            np.concatenate([each.days for each in samples]),
        )


def make_samples(grid: HourlyGrid, known: Features) -> TrainingSamples:
    """Of the days of a venue with four weeks of history."""
    past = slice(WEEK * BASELINE_WEEKS, None)
    ratios = grid.counts[past] / known.scale[past]
    usable: Flags = np.isfinite(ratios)
    numbers = np.arange(len(grid.counts))[past, None] + day_number(grid.first)
    days = np.broadcast_to(numbers, ratios.shape)[usable]
    return TrainingSamples(known.values[past][usable], np.minimum(ratios[usable], _MAX_RATIO), days)


@dataclass(frozen=True, slots=True, eq=False)
class ForecastModel:
    name: str
    p50: BoostedTrees
    p90: BoostedTrees

    @classmethod
    def fit(
        cls, samples: TrainingSamples, seed: int, growth: BoostingParameters | None = None
    ) -> Self:
        growth = growth or BoostingParameters()
        p50, p90 = (
            fit_trees(samples.rows, samples.ratios, quantile, seed, growth)
            for quantile in (0.5, UPPER_QUANTILE)
        )
        return cls(_model_name(p50, p90), p50, p90)

    def expected(self, rows: Floats, scale: Floats) -> tuple[Floats, Floats]:
        """p50 and p90 of hours, in counts; NaN where the scale is."""
        p50 = np.maximum(0.0, self.p50.predict(rows)) * scale
        p90 = np.maximum(0.0, self.p90.predict(rows)) * scale
        return p50, np.maximum(p50, p90)

    def for_day(self, grid: HourlyGrid, day: date, public: PublicHolidays) -> tuple[Floats, Floats]:
        """Of one venue and day, from the days before it."""
        past = grid.before(day).extend_to(day)
        # The history that features need.
        recent = past.counts[-2 * WEEK * (SCALE_WEEKS + 1) :]
        start = day - timedelta(days=len(recent) - 1)
        known = make_features(HourlyGrid(start, recent), public)
        return self.expected(known.values[-1], known.scale[-1])


def _model_name(*trees: BoostedTrees) -> str:
    text = json.dumps([each.to_json() for each in trees], sort_keys=True)
    return f"global-{sha256(text.encode()).hexdigest()[:12]}"


#: Nodes that are visited at once: a few megabytes.
_CHUNK: Final = 1 << 19


@dataclass(frozen=True, slots=True, eq=False)
class BoostedTrees:
    """Nodes of all trees in sequence. The children of a leaf are the leaf."""

    start: float
    roots: NDArray[np.int32]
    feature: NDArray[np.int32]
    threshold: Floats
    #: Children for a value up to the threshold, above it, and NaN.
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    unknown: NDArray[np.int32]
    value: Floats
    depth: int

    def predict(self, rows: Floats) -> Floats:
        step = max(1, _CHUNK // max(1, len(self.roots)))
        parts = [self._walk(rows[start : start + step]) for start in range(0, len(rows), step)]
        return np.concatenate(parts) if parts else np.empty(0)

    def _walk(self, rows: Floats) -> Floats:
        width = rows.shape[1]
        flat = np.ascontiguousarray(rows).ravel()
        nodes = np.broadcast_to(self.roots, (len(rows), len(self.roots)))
        base = (np.arange(len(rows)) * width)[:, None]
        for _ in range(self.depth):
            seen = flat[base + self.feature[nodes]]
            child = np.where(seen <= self.threshold[nodes], self.low[nodes], self.high[nodes])
            nodes = np.where(np.isnan(seen), self.unknown[nodes], child)
        return np.asarray(self.start + self.value[nodes].sum(axis=1))

    def to_json(self) -> dict[str, Any]:
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: each.tolist() if isinstance(each, np.ndarray) else each
            for name, each in values.items()
        }


@dataclass(frozen=True, slots=True)
class BoostingParameters:
    """More and larger trees cost time and are not more accurate."""

    rounds: int = 150
    leaves: int = 31
    rate: float = 0.1
    rows_in_leaf: int = 100
    share_of_features: float = 0.7


def fit_trees(
    rows: Floats, targets: Floats, quantile: float, seed: int, growth: BoostingParameters
) -> BoostedTrees:
    """Trees for a quantile of the target; for the median, of the absolute error."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    middle = quantile == 0.5
    model = HistGradientBoostingRegressor(
        loss="absolute_error" if middle else "quantile",
        quantile=None if middle else quantile,
        learning_rate=growth.rate,
        max_iter=growth.rounds,
        max_leaf_nodes=growth.leaves,
        min_samples_leaf=growth.rows_in_leaf,
        max_features=growth.share_of_features,
        early_stopping=False,
        random_state=seed,
    )
    with threadpool_limits(limits=1):
        model.fit(rows, targets)
    return export_trees(model)


def export_trees(model: Any) -> BoostedTrees:
    grown = [trees[0].nodes for trees in model._predictors]
    sizes = np.array([len(nodes) for nodes in grown])
    roots = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    nodes = np.concatenate(grown)
    offset = np.repeat(roots, sizes)
    leaf = nodes["is_leaf"].astype(bool)
    here = np.arange(len(nodes))
    low = np.where(leaf, here, nodes["left"] + offset)
    high = np.where(leaf, here, nodes["right"] + offset)
    left = nodes["missing_go_to_left"].astype(bool)
    most = np.finfo(np.float64).max  # JSON has no infinity
    return BoostedTrees(
        start=float(np.asarray(model._baseline_prediction).item()),
        roots=roots.astype(np.int32),
        feature=np.where(leaf, 0, nodes["feature_idx"]).astype(np.int32),
        threshold=np.clip(np.where(leaf, 0.0, nodes["num_threshold"]), -most, most),
        low=low.astype(np.int32),
        high=high.astype(np.int32),
        unknown=np.where(left, low, high).astype(np.int32),
        value=np.where(leaf, nodes["value"], 0.0),
        depth=int(nodes["depth"].max()),
    )
