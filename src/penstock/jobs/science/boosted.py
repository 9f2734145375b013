"""Another method on the same ground: one gradient-boosted model that lives with gaps.

It learns from samples that were aged, diluted and thinned out by simulation, so nothing has to be
taken back, and there is none it cannot judge. Age and dilution are estimated for its verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.jobs.science.ageing import Coefficients
from penstock.jobs.science.correction import correct, reference
from penstock.jobs.science.indicators import ANIMAL, HUMAN, INDICATORS
from penstock.jobs.science.matrix import Floats, Matrix
from penstock.jobs.science.prediction import Predictions, Verdict
from penstock.jobs.science.simulation import BLOCK, draw

#: How many samples are simulated to learn from.
SAMPLES: Final = 6_000
SCHEME: Final = "BOOSTED"
_PAIRS: Final = np.triu_indices(len(INDICATORS), 1)
_NAMES: Final = (
    *INDICATORS,
    *(f"{INDICATORS[a]}/{INDICATORS[b]}" for a, b in zip(*_PAIRS, strict=True)),
    "season",
)


def inputs(values: Floats, seasons: NDArray[np.integer[Any]]) -> Floats:
    """Logarithms, those of all ratios, and the season; what is missing stays so."""
    logs = np.log10(values, where=values > 0, out=np.full_like(values, np.nan))
    ratios = logs[:, _PAIRS[0]] - logs[:, _PAIRS[1]]
    none = np.where(values <= 0, -1.0, logs)  # looked for, and not found
    return np.column_stack([none, ratios, seasons])


class Boosted:
    """`predict` as `prediction.Predictor` has it."""

    def __init__(
        self, matrix: Matrix, coefficients: Coefficients, *, samples: int = SAMPLES, seed: int = 1
    ) -> None:
        from sklearn.ensemble import HistGradientBoostingClassifier

        origins = matrix.origins
        self._slopes = coefficients.slopes
        self._known = {
            origin: reference(matrix.values[origins == origin]) for origin in (HUMAN, ANIMAL)
        }
        blocks = [
            draw(matrix.values, coefficients, min(BLOCK, samples - at), seed, 1_000_000 + at)
            for at in range(0, samples, BLOCK)
        ]
        x = np.concatenate([inputs(each.values, each.seasons) for each in blocks])
        y = np.concatenate([origins[each.rows] for each in blocks])
        self._model: Any = HistGradientBoostingClassifier(
            max_iter=200, learning_rate=0.06, max_leaf_nodes=15, l2_regularization=1.0,
            random_state=seed,
        )  # fmt: skip
        self._model.fit(x, y)

    def predict(self, values: Floats, seasons: Sequence[int]) -> dict[str, Predictions]:
        when = np.asarray(seasons, dtype=np.intp)
        human = self._model.predict_proba(inputs(values, when))[:, 1]
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
