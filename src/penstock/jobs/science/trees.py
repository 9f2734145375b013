"""Gradient-boosted trees that learn from simulated samples, and live with gaps.

Samples of a reference are aged, diluted and thinned out by simulation, so nothing has to be taken
back, and there is none the trees cannot judge. What they are to tell apart is the caller's: origins
(`boosted.py`), or four sources (`sources.py`).

They are grown and asked by one thread. Several that wait for each other at every leaf take a
hundred times as long where the machine has other things to do, and save little where it has not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from penstock.jobs.science.ageing import Coefficients
from penstock.jobs.science.indicators import INDICATORS
from penstock.jobs.science.matrix import Floats
from penstock.jobs.science.simulation import BLOCK, draw

#: How many samples are simulated to learn from.
SAMPLES: Final = 6_000
_PAIRS: Final = np.triu_indices(len(INDICATORS), 1)


class Trees:
    def __init__(
        self,
        values: Floats,
        labels: NDArray[Any],
        coefficients: Coefficients,
        *,
        samples: int = SAMPLES,
        seed: int = 1,
    ) -> None:
        """Of reference rows, each with its label."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        blocks = [
            draw(values, coefficients, min(BLOCK, samples - at), seed, 1_000_000 + at)
            for at in range(0, samples, BLOCK)
        ]
        x = np.concatenate([_inputs(each.values, each.seasons) for each in blocks])
        y = np.concatenate([labels[each.rows] for each in blocks])
        self._model: Any = HistGradientBoostingClassifier(
            max_iter=200, learning_rate=0.06, max_leaf_nodes=15, l2_regularization=1.0,
            random_state=seed,
        )  # fmt: skip
        with threadpool_limits(1):
            self._model.fit(x, y)

    @property
    def labels(self) -> NDArray[Any]:
        """In the order of their chances."""
        return np.asarray(self._model.classes_)

    def chances(self, values: Floats, seasons: Sequence[int]) -> Floats:
        """Of each label, for each sample."""
        with threadpool_limits(1):
            found = self._model.predict_proba(_inputs(values, np.asarray(seasons, dtype=np.intp)))
        return np.asarray(found)


def _inputs(values: Floats, seasons: NDArray[np.integer[Any]]) -> Floats:
    """Logarithms, those of all ratios, and the season; what is missing stays so."""
    logs = np.log10(values, where=values > 0, out=np.full_like(values, np.nan))
    ratios = logs[:, _PAIRS[0]] - logs[:, _PAIRS[1]]
    none = np.where(values <= 0, -1.0, logs)  # looked for, and not found
    return np.column_stack([none, ratios, seasons])
