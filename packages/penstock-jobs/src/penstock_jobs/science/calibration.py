"""Calibrated confidence: how often an answer of the vote is right.

Nearly all votes are unanimous, so the share of votes says little. The probability of a human origin
is a logistic function of what the votes and the fit say under both hypotheses, learned from
simulated samples of held-out rows. An answer whose probability is below a threshold is "undecided".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock_jobs.science.indicators import HUMAN
from penstock_jobs.science.matrix import Floats

#: Below it an answer is undecided: it would be wrong in two of five cases.
THRESHOLD: Final = 0.6
BINS: Final = 10
#: Number of inputs: an intercept, three of the hypotheses, and those by number of indicators.
INPUTS: Final = 8
#: Orders of magnitude.
_MAX_MISFIT: Final = 3.0


@dataclass(frozen=True, slots=True)
class ReliabilityBin:
    """Answers with about the same confidence."""

    confidence: float  #: their mean
    right: float  #: the share of right answers
    count: int


@dataclass(frozen=True, slots=True)
class CalibrationReport:
    """On held-out rows, before and after: expected calibration error, Brier score, reliability."""

    ece: tuple[float, float]
    brier: tuple[float, float]
    before: tuple[ReliabilityBin, ...]
    after: tuple[ReliabilityBin, ...]
    coverage: float  #: the share of samples with an answer
    accuracy: float  #: of these answers


@dataclass(frozen=True, slots=True)
class SourceCalibration:
    weights: tuple[float, ...]
    report: CalibrationReport
    threshold: float = THRESHOLD

    def human_probability(self, inputs: Floats) -> Floats:
        return np.asarray(1 / (1 + np.exp(-(inputs @ np.array(self.weights)))))


def calibration_inputs(
    human_shares: tuple[Floats, Floats],
    misfits: tuple[Floats, Floats],
    indicators: NDArray[np.intp],
) -> Floats:
    """`human_shares` and `misfits` under the human and the animal hypothesis."""
    logs = [np.log10(np.maximum(each, 1e-3)) for each in misfits]
    better = np.clip(logs[1] - logs[0], -_MAX_MISFIT, _MAX_MISFIT)
    parts = np.column_stack([human_shares[0] - 0.5, human_shares[1] - 0.5, better])
    many = np.minimum(indicators, 6)[:, None] / 6
    one = np.ones((len(parts), 1))
    return np.hstack([one, parts, many, parts * many])


def human_share(classes: NDArray[np.int8], confidence: Floats) -> Floats:
    """Of the votes; half where no model applies."""
    share = np.where(classes == HUMAN, confidence, 1 - confidence)
    return np.where(classes == 0, 0.5, share)


def fit_weights(inputs: Floats, is_human: NDArray[np.bool_]) -> tuple[float, ...]:
    from sklearn.linear_model import LogisticRegression

    found = LogisticRegression(C=1.0, fit_intercept=False, max_iter=500).fit(inputs, is_human)
    return tuple(float(each) for each in found.coef_[0])


def expected_calibration_error(confidence: Floats, right: NDArray[np.bool_]) -> float:
    total = sum(
        each.count * abs(each.confidence - each.right) for each in reliability(confidence, right)
    )
    return float(total / max(len(right), 1))


def brier_score(confidence: Floats, right: NDArray[np.bool_]) -> float:
    return float(((confidence - right) ** 2).mean()) if len(right) else 0.0


def reliability(confidence: Floats, right: NDArray[np.bool_]) -> tuple[ReliabilityBin, ...]:
    """In bins of equal width."""
    which = np.minimum((confidence * BINS).astype(np.intp), BINS - 1)
    return tuple(
        ReliabilityBin(
            float(confidence[which == at].mean()),
            float(right[which == at].mean()),
            int((which == at).sum()),
        )
        for at in range(BINS)
        if (which == at).any()
    )
