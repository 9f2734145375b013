"""Relevance vectors: a kernel classifier that keeps few samples, by Bayesian evidence.

Every sample has a weight and every weight a precision of its own. Where the evidence says so the
precision grows without bound and the sample is left out (M. Tipping, JMLR 1:211-244, 2001).
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.jobs.science.matrix import Floats

#: A weight so precisely zero is zero.
_CERTAIN: Final = 1e4
_ROUNDS: Final = 25
_STEPS: Final = 4


def fit_relevance_vectors(kernel: Floats, target: Floats) -> tuple[Floats, NDArray[np.intp], float]:
    """Weights of the samples that are kept, which these are, and the bias. Targets are 0 and 1."""
    count = len(target)
    scale = np.abs(kernel).max() + 1e-12
    design = np.column_stack([np.ones(count), kernel / scale])
    kept = np.arange(count + 1)
    precisions = np.full(count + 1, 1.0 / count)
    weights = np.zeros(count + 1)
    for _ in range(_ROUNDS):
        weights, variances = _posterior(design[:, kept], target, weights, precisions)
        determined = np.clip(1 - precisions * variances, 0.0, 1.0)
        changed = determined / (weights**2 + 1e-12)
        stays = (changed < _CERTAIN) | (kept == 0)  # the bias is no sample
        settled = bool(stays.all()) and np.abs(np.log(changed / precisions)).max() < 1e-2
        kept, weights, precisions = kept[stays], weights[stays], np.maximum(changed[stays], 1e-9)
        if settled:
            break
    weights, _ = _posterior(design[:, kept], target, weights, precisions)
    return weights[1:] / scale, kept[1:] - 1, float(weights[0])


def _posterior(
    design: Floats, target: Floats, weights: Floats, precisions: Floats
) -> tuple[Floats, Floats]:
    """The likeliest weights, and their variances around them."""
    for _ in range(_STEPS):
        chance = 1 / (1 + np.exp(-np.clip(design @ weights, -30, 30)))
        gradient = design.T @ (target - chance) - precisions * weights
        curvature = design.T * np.maximum(chance * (1 - chance), 1e-6) @ design
        curvature[np.diag_indices_from(curvature)] += precisions
        step = np.linalg.solve(curvature, gradient)
        weights = weights + step
        if np.abs(step).max() < 1e-4:
            break
    return weights, np.asarray(np.diag(np.linalg.inv(curvature)))
