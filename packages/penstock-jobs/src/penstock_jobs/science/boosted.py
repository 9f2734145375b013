"""Gradient-boosted trees as an alternative to the vote of models.

The trees learn from simulated samples, which are aged, diluted and have gaps, so samples need no
correction, and every sample gets a prediction. They predict origins (`BoostedPredictor`) or one of
four sources (`SourceClassifier`).
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

#: Simulated samples for training.
SAMPLES: Final = 6_000
_PAIRS: Final = np.triu_indices(len(INDICATORS), 1)


class SourceTrees:
    """Trained and evaluated on one thread: threads that wait for each other at every leaf take a
    hundred times as long on a busy machine, and save little on an idle one."""

    def __init__(
        self,
        values: Floats,
        labels: NDArray[Any],
        coefficients: DecayCoefficients,
        *,
        samples: int = SAMPLES,
        seed: int = 1,
    ) -> None:
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
        """In the order of the probabilities."""
        return np.asarray(self._model.classes_)

    def probabilities(self, values: Floats, seasons: Sequence[int]) -> Floats:
        """Samples x labels."""
        inputs = _inputs(values, np.asarray(seasons, dtype=np.intp))
        with threadpool_limits(1):
            return np.asarray(self._model.predict_proba(inputs))


def _inputs(values: Floats, seasons: NDArray[np.integer[Any]]) -> Floats:
    """Logarithms, logarithms of all ratios, and the season; missing stays missing."""
    logs = np.log10(values, where=values > 0, out=np.full_like(values, np.nan))
    ratios = logs[:, _PAIRS[0]] - logs[:, _PAIRS[1]]
    counts = np.where(values <= 0, -1.0, logs)  # counted and not found
    return np.column_stack([counts, ratios, seasons])


SCHEME: Final = "BOOSTED"


class BoostedPredictor:
    """Has the `predict` of `prediction.SourcePredictor`."""

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
        human = self._trees.probabilities(values, seasons)[:, 1]
        classes = np.where(human > 0.5, HUMAN, ANIMAL).astype(np.int8)
        classes[~np.isfinite(values).any(axis=1)] = 0
        verdicts = {}
        for origin in (HUMAN, ANIMAL):
            corrected = correct_samples(values, self._slopes[when], self._known[origin])
            probability = human if origin == HUMAN else 1 - human
            of = np.full(len(values), origin, dtype=np.int8)
            verdicts[origin] = HypothesisVerdict(
                of, probability, corrected.hours, corrected.dilutions, corrected.misfit
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
                tuple(_counted(row) for row in values),
            )
        }


def _counted(row: Floats) -> tuple[str, ...]:
    return tuple(name for name, value in zip(INDICATORS, row, strict=True) if np.isfinite(value))


#: With fewer samples of a source the trees would learn the samples.
_MIN_SAMPLES: Final = 5


@dataclass(frozen=True, slots=True)
class SourcePrediction:
    sources: tuple[str, ...]  #: of each sample; empty if nothing was counted
    confidence: Floats

    def right(self, samples: Sequence[str]) -> tuple[int, int]:
        """The number of correct predictions, and of samples whose ids have a source."""
        pairs = zip(self.sources, map(source, samples), strict=True)
        known = [(predicted, real) for predicted, real in pairs if predicted and real]
        return sum(predicted == real for predicted, real in known), len(known)


class SourceClassifier:
    """Predicts human, cattle, pig or poultry, from a reference whose ids have these sources."""

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
        if len(found) < 2 or counts.min() < _MIN_SAMPLES:
            present = ", ".join(f"{n} {name}" for name, n in zip(found, counts, strict=True))
            text = (
                f"at least {_MIN_SAMPLES} samples of each of two or more sources are needed; "
                f"here: {present or 'none'}"
            )
            raise DatasetError([DatasetProblem(0, SAMPLE, text)])
        self._trees = SourceTrees(
            matrix.values[rows], labels, coefficients, samples=samples, seed=seed
        )

    def predict(self, values: Floats, seasons: Sequence[int]) -> SourcePrediction:
        probabilities = self._trees.probabilities(values, seasons)
        names = self._trees.labels[probabilities.argmax(axis=1)].tolist()
        counted = np.asarray(np.isfinite(values).any(axis=1))
        sources = (name if known else "" for name, known in zip(names, counted, strict=True))
        return SourcePrediction(tuple(sources), np.where(counted, probabilities.max(axis=1), 0.0))
