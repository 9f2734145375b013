"""Another method on the same ground: one gradient-boosted model that lives with gaps.

What it learns from is `trees.py`'s. Age and dilution are estimated for its verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from penstock.jobs.science.ageing import Coefficients
from penstock.jobs.science.correction import correct, reference
from penstock.jobs.science.indicators import ANIMAL, HUMAN, INDICATORS
from penstock.jobs.science.matrix import Floats, Matrix
from penstock.jobs.science.prediction import Predictions, Verdict
from penstock.jobs.science.trees import SAMPLES, Trees

SCHEME: Final = "BOOSTED"


class Boosted:
    """`predict` as `prediction.Predictor` has it."""

    def __init__(
        self, matrix: Matrix, coefficients: Coefficients, *, samples: int = SAMPLES, seed: int = 1
    ) -> None:
        origins = matrix.origins
        self._slopes = coefficients.slopes
        self._known = {
            origin: reference(matrix.values[origins == origin]) for origin in (HUMAN, ANIMAL)
        }
        self._trees = Trees(matrix.values, origins, coefficients, samples=samples, seed=seed)

    def predict(self, values: Floats, seasons: Sequence[int]) -> dict[str, Predictions]:
        when = np.asarray(seasons, dtype=np.intp)
        human = self._trees.chances(values, seasons)[:, 1]
        classes = np.where(human > 0.5, HUMAN, ANIMAL).astype(np.int8)
        classes[~np.isfinite(values).any(axis=1)] = 0
        verdicts = {}
        for origin in (HUMAN, ANIMAL):
            found = correct(values, self._slopes[when], self._known[origin])
            chance = human if origin == HUMAN else 1 - human
            of = np.full(len(values), origin, dtype=np.int8)
            verdicts[origin] = Verdict(of, chance, found.hours, found.dilutions, found.misfit)
        one, other = verdicts[HUMAN], verdicts[ANIMAL]
        chosen = classes == HUMAN
        return {
            SCHEME: Predictions(
                SCHEME,
                one,
                other,
                classes,
                np.maximum(human, 1 - human),
                np.where(chosen, one.hours, other.hours),
                np.where(chosen, one.dilutions, other.dilutions),
                tuple(_there(row) for row in values),
            )
        }


def _there(row: Floats) -> tuple[str, ...]:
    return tuple(name for name, value in zip(INDICATORS, row, strict=True) if np.isfinite(value))
