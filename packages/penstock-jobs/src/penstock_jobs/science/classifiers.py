"""Thirty classifiers of two classes, for about a hundred samples. All are deterministic.

Support vectors are scikit-learn's. The others are a few lines of linear algebra: at this size the
argument checks of a general library take longer than the fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock_jobs.science.matrix import Floats

Labels = NDArray[np.int8]
#: From features to classes, -1 and 1.
Decide = Callable[[Floats], Labels]

#: The weight of a sphere in the pooled covariance, which makes it invertible.
_SHRINKAGE: Final = 0.05
_PENALTY: Final = 1.0


@dataclass(frozen=True, slots=True)
class ClassifierConfiguration:
    kind: str
    kernel: str = ""
    value: float = 0.0  #: the cost, or the number of neighbours

    @property
    def name(self) -> str:
        return "-".join(
            filter(None, (self.kind, self.kernel, f"{self.value:g}" if self.value else ""))
        )


_KERNELS: Final = ("linear", "square", "rbf")
CONFIGURATIONS: Final = (
    ClassifierConfiguration("lda"),
    *(
        ClassifierConfiguration("svm", kernel, cost)
        for kernel in _KERNELS
        for cost in (0.1, 1.0, 2.0, 5.0, 10.0, 50.0, 100.0)
    ),
    *(ClassifierConfiguration("knn", "", neighbours) for neighbours in (1.0, 3.0, 5.0)),
    ClassifierConfiguration("logistic"),
    ClassifierConfiguration("bayes"),
    *(ClassifierConfiguration("rvm", kernel) for kernel in _KERNELS),
)


def fit(configuration: ClassifierConfiguration, x: Floats, y: Labels) -> Decide:
    """`y` must contain both classes, -1 and 1."""
    kind, kernel = configuration.kind, configuration.kernel
    if kind == "svm":
        return _standardised(x, lambda x: _support_vectors(x, y, kernel, configuration.value))
    if kind == "rvm":
        return _standardised(x, lambda x: _relevance_vectors(x, y, kernel))
    if kind == "knn":
        return _neighbours(x, y, int(configuration.value))
    return {"lda": _discriminant, "logistic": _logistic, "bayes": _bayes}[kind](x, y)


def _standardised(x: Floats, fitted: Callable[[Floats], Decide]) -> Decide:
    """Kernels need features of the same scale."""
    centre, scale = x.mean(axis=0), x.std(axis=0) + 1e-12
    decide = fitted((x - centre) / scale)
    return lambda others: decide((others - centre) / scale)


def _signs(scores: Floats) -> Labels:
    return np.where(scores > 0, 1, -1).astype(np.int8)


def _linear(weights: Floats, bias: float) -> Decide:
    return lambda x: _signs(x @ weights + bias)


def _discriminant(x: Floats, y: Labels) -> Decide:
    means = {label: x[y == label].mean(axis=0) for label in (-1, 1)}
    centred = x - np.where((y == 1)[:, None], means[1], means[-1])
    pooled = centred.T @ centred / max(len(x) - 2, 1)
    size = len(pooled)
    sphere = np.trace(pooled) / size + 1e-12
    pooled = (1 - _SHRINKAGE) * pooled + _SHRINKAGE * sphere * np.eye(size)
    weights = np.linalg.solve(pooled, means[1] - means[-1])
    prior = np.log((y == 1).sum() / (y == -1).sum())
    return _linear(weights, float(prior - weights @ (means[1] + means[-1]) / 2))


def _bayes(x: Floats, y: Labels) -> Decide:
    floor = 1e-9 * x.var(axis=0).max() + 1e-12
    described = []
    for label in (1, -1):
        rows = x[y == label]
        described.append((rows.mean(axis=0), rows.var(axis=0) + floor, np.log(len(rows) / len(x))))

    def score(x: Floats, mean: Floats, variance: Floats, prior: float) -> Floats:
        return np.asarray(prior - ((x - mean) ** 2 / variance + np.log(variance)).sum(axis=1) / 2)

    return lambda x: _signs(score(x, *described[0]) - score(x, *described[1]))


def _neighbours(x: Floats, y: Labels, number: int) -> Decide:
    number = min(number, len(x))

    def decide(others: Floats) -> Labels:
        nearest = np.argsort(_squares(others, x), axis=1, kind="stable")[:, :number]
        return _signs(y[nearest].sum(axis=1, dtype=np.float64))

    return decide


def _logistic(x: Floats, y: Labels) -> Decide:
    """By Newton's method, with a penalty, without which separable classes do not converge."""
    centre, scale = x.mean(axis=0), x.std(axis=0) + 1e-12
    design = np.column_stack([(x - centre) / scale, np.ones(len(x))])
    penalty = np.full(design.shape[1], _PENALTY)
    penalty[-1] = 1e-8
    target = (y == 1).astype(np.float64)
    weights = np.zeros(design.shape[1])
    for _ in range(25):
        chance = 1 / (1 + np.exp(-np.clip(design @ weights, -30, 30)))
        gradient = design.T @ (chance - target) + penalty * weights
        curvature = design.T * (chance * (1 - chance)) @ design + np.diag(penalty)
        step = np.linalg.solve(curvature, gradient)
        weights = weights - step
        if np.abs(step).max() < 1e-8:
            break
    slopes = weights[:-1] / scale
    return _linear(slopes, float(weights[-1] - slopes @ centre))


def _squares(x: Floats, others: Floats) -> Floats:
    """Exact squared distances; fine for a hundred rows."""
    return np.asarray(((x[:, None, :] - others[None, :, :]) ** 2).sum(axis=2))


def _width(x: Floats) -> float:
    """Of the Gaussian kernel: one over the median squared distance."""
    distances = _squares(x, x)[np.triu_indices(len(x), 1)]
    middle = np.median(distances[distances > 0]) if (distances > 0).any() else 1.0
    return float(1 / middle)


def _support_vectors(x: Floats, y: Labels, kernel: str, cost: float) -> Decide:
    from sklearn import config_context
    from sklearn.svm import SVC

    if kernel == "rbf":
        machine = SVC(C=cost, kernel="rbf", gamma=_width(x))
    else:
        degree = 1 if kernel == "linear" else 2
        machine = SVC(C=cost, kernel="poly", degree=degree, gamma=1.0, coef0=1.0, max_iter=200_000)
    with config_context(assume_finite=True, skip_parameter_validation=True):
        machine.fit(x, y)

    def decide(others: Floats) -> Labels:
        with config_context(assume_finite=True, skip_parameter_validation=True):
            return np.asarray(machine.predict(others), dtype=np.int8)

    return decide


def _relevance_vectors(x: Floats, y: Labels, kernel: str) -> Decide:
    width = _width(x) if kernel == "rbf" else 0.0

    def similar(one: Floats, other: Floats) -> Floats:
        if kernel == "rbf":
            return np.asarray(np.exp(-width * _squares(one, other)))
        return np.asarray((one @ other.T + 1) ** (1 if kernel == "linear" else 2))

    weights, relevant, bias = fit_relevance_vectors(similar(x, x), (y == 1).astype(np.float64))
    vectors = x[relevant]
    return lambda others: _signs(similar(others, vectors) @ weights + bias)


#: A weight with a higher precision around zero is removed.
_MAX_PRECISION: Final = 1e4
_ROUNDS: Final = 25
_STEPS: Final = 4


def fit_relevance_vectors(kernel: Floats, target: Floats) -> tuple[Floats, NDArray[np.intp], float]:
    """Relevance vectors (M. Tipping, JMLR 1:211-244, 2001), for targets 0 and 1.

    Every sample has a weight with a precision of its own. Where the evidence lets the precision
    grow without bound, the sample is removed. Returns the weights, their samples and the bias.
    """
    count = len(target)
    scale = np.abs(kernel).max() + 1e-12
    design = np.column_stack([np.ones(count), kernel / scale])
    used = np.arange(count + 1)
    precisions = np.full(count + 1, 1.0 / count)
    weights = np.zeros(count + 1)
    for _ in range(_ROUNDS):
        weights, variances = _posterior(design[:, used], target, weights, precisions)
        determined = np.clip(1 - precisions * variances, 0.0, 1.0)
        changed = determined / (weights**2 + 1e-12)
        stays = (changed < _MAX_PRECISION) | (used == 0)  # the bias stays
        settled = bool(stays.all()) and np.abs(np.log(changed / precisions)).max() < 1e-2
        used, weights, precisions = used[stays], weights[stays], np.maximum(changed[stays], 1e-9)
        if settled:
            break
    weights, _ = _posterior(design[:, used], target, weights, precisions)
    return weights[1:] / scale, used[1:] - 1, float(weights[0])


def _posterior(
    design: Floats, target: Floats, weights: Floats, precisions: Floats
) -> tuple[Floats, Floats]:
    """The most likely weights and their variances."""
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
