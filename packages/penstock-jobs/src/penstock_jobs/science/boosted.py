"""Another method on the same ground: one gradient-boosted model that lives with gaps.

What it learns from is `boosted.py`'s. Age and dilution are estimated for its verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from penstock_jobs.errors import DatasetError, DatasetProblem
from penstock_jobs.science.decay import DecayCoefficients
from penstock_jobs.science.indicators import ANIMAL, HUMAN, INDICATORS, SAMPLE, source
from penstock_jobs.science.matrix import Floats, SampleMatrix
from penstock_jobs.science.prediction import (
    HypothesisVerdict,
    SourcePredictions,
    correct_samples,
    reference_statistics,
)
from penstock_jobs.science.simulation import BLOCK, draw_samples

# Gradient-boosted trees that learn from simulated samples, and live with gaps.
#
# Samples of a reference are aged, diluted and thinned out by simulation, so nothing has to be taken
# back, and there is none the trees cannot judge. What they are to tell apart is the caller's:
# origins
# (`boosted.py`), or four sources (`boosted.py`).
#
# They are grown and asked by one thread. Several that wait for each other at every leaf take a
# hundred times as long where the machine has other things to do, and save little where it has not.

#: How many samples are simulated to learn from.
SAMPLES: Final = 6_000
_PAIRS: Final = np.triu_indices(len(INDICATORS), 1)


class SourceTrees:
    def __init__(
        self,
        values: Floats,
        labels: NDArray[Any],
        coefficients: DecayCoefficients,
        *,
        samples: int = SAMPLES,
        seed: int = 1,
    ) -> None:
        """Of reference rows, each with its label."""
        from sklearn.ensemble import HistGradientBoostingClassifier

        blocks = [
            draw_samples(values, coefficients, min(BLOCK, samples - at), seed, 1_000_000 + at)
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


SCHEME: Final = "BOOSTED"


class BoostedPredictor:
    """`predict` as `prediction.Predictor` has it."""

    def __init__(
        self,
        matrix: SampleMatrix,
        coefficients: DecayCoefficients,
        *,
        samples: int = SAMPLES,
        seed: int = 1,
    ) -> None:
        origins = matrix.origins
        self._slopes = coefficients.slopes
        self._known = {
            origin: reference_statistics(matrix.values[origins == origin])
            for origin in (HUMAN, ANIMAL)
        }
        self._trees = SourceTrees(matrix.values, origins, coefficients, samples=samples, seed=seed)

    def predict(self, values: Floats, seasons: Sequence[int]) -> dict[str, SourcePredictions]:
        when = np.asarray(seasons, dtype=np.intp)
        human = self._trees.chances(values, seasons)[:, 1]
        classes = np.where(human > 0.5, HUMAN, ANIMAL).astype(np.int8)
        classes[~np.isfinite(values).any(axis=1)] = 0
        verdicts = {}
        for origin in (HUMAN, ANIMAL):
            found = correct_samples(values, self._slopes[when], self._known[origin])
            chance = human if origin == HUMAN else 1 - human
            of = np.full(len(values), origin, dtype=np.int8)
            verdicts[origin] = HypothesisVerdict(
                of, chance, found.hours, found.dilutions, found.misfit
            )
        one, other = verdicts[HUMAN], verdicts[ANIMAL]
        chosen = classes == HUMAN
        return {
            SCHEME: SourcePredictions(
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


# Which of four sources a sample has: human, cattle, pig or poultry, where the ids of a reference
# say so. The original tells human from animal; this goes further, by trees alone.

#: With fewer of one, what is learnt is those samples and not the source.
_FEWEST: Final = 5


@dataclass(frozen=True, slots=True)
class SourcePrediction:
    sources: tuple[str, ...]  #: of each sample; empty where nothing was counted
    confidence: Floats

    def right(self, samples: Sequence[str]) -> tuple[int, int]:
        """How many have the source that their ids say, of those whose ids say one."""
        told = [(said, source(name)) for said, name in zip(self.sources, samples, strict=True)]
        known = [(said, true) for said, true in told if said and true]
        return sum(said == true for said, true in known), len(known)


class SourceClassifier:
    def __init__(
        self,
        matrix: SampleMatrix,
        coefficients: DecayCoefficients,
        *,
        samples: int = SAMPLES,
        seed: int = 1,
    ) -> None:
        names = [source(sample) for sample in matrix.samples]
        rows = np.array([row for row, name in enumerate(names) if name], dtype=np.intp)
        labels = np.array([name for name in names if name])
        found, counts = np.unique(labels, return_counts=True)
        if len(found) < 2 or counts.min() < _FEWEST:
            told = ", ".join(f"{n} {name}" for name, n in zip(found, counts, strict=True)) or "none"
            text = f"at least {_FEWEST} samples of each of two sources or more; here: {told}"
            raise DatasetError([DatasetProblem(0, SAMPLE, text)])
        self._trees = SourceTrees(
            matrix.values[rows], labels, coefficients, samples=samples, seed=seed
        )

    def predict(self, values: Floats, seasons: Sequence[int]) -> SourcePrediction:
        chances = self._trees.chances(values, seasons)
        names = self._trees.labels[chances.argmax(axis=1)].tolist()
        counted = np.asarray(np.isfinite(values).any(axis=1))
        sources = (name if there else "" for name, there in zip(names, counted, strict=True))
        return SourcePrediction(tuple(sources), np.where(counted, chances.max(axis=1), 0.0))
