"""Growing boosted trees: scikit-learn's, whose wheel brings all it needs.

One thread and a given seed, so that the same rows grow the same trees. LightGBM does as well, but
wants a libgomp of the system, which a slim image does not have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.hives.forecast.grid import Floats
from penstock.hives.forecast.trees import Trees


@dataclass(frozen=True, slots=True)
class Growth:
    """How trees grow. More and larger ones cost time and gave nothing."""

    rounds: int = 150
    leaves: int = 31
    rate: float = 0.1
    rows_in_leaf: int = 100
    share_of_features: float = 0.7


def grow(rows: Floats, targets: Floats, quantile: float, seed: int, growth: Growth) -> Trees:
    """Trees that say a quantile of the target. The median's are those of the absolute error."""
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
    return plain(model)


def plain(model: Any) -> Trees:
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
    return Trees(
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
