"""How good a method is, on samples whose base was kept from it.

Reference samples are split by their id into folds; a method is made from all but one, and judged on
simulated samples of that one. Beside it stands what costs nothing: to say "human" each time, and
the same method without taking age and dilution back.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock.jobs.science.ageing import Coefficients
from penstock.jobs.science.classifiers import Labels
from penstock.jobs.science.indicators import ANIMAL, HUMAN
from penstock.jobs.science.matrix import Floats, Matrix
from penstock.jobs.science.prediction import Predictions
from penstock.jobs.science.simulation import draw

FOLDS: Final = 5


class Method(Protocol):
    def predict(self, values: Floats, seasons: Sequence[int]) -> dict[str, Predictions]: ...


#: From a reference and slopes to a method.
Make = Callable[[Matrix, Coefficients], Method]


@dataclass(frozen=True, slots=True)
class Score:
    """What a scheme made of samples whose origin is known."""

    name: str
    truth: Labels
    classes: Labels  #: 0 where it did not say
    indicators: NDArray[np.intp]  #: how many each sample had

    @property
    def coverage(self) -> float:
        return float((self.classes != 0).mean())

    @property
    def error(self) -> float:
        said = self.classes != 0
        return float((self.classes[said] != self.truth[said]).mean()) if said.any() else 1.0

    @property
    def confusion(self) -> NDArray[np.intp]:
        """Real by predicted, animal first."""
        return confusion(self.truth, self.classes)

    def accuracy_with(self, indicators: int) -> float | None:
        among = (self.indicators == indicators) & (self.classes != 0)
        if not among.any():
            return None
        return float((self.classes[among] == self.truth[among]).mean())


def confusion(truth: Labels, classes: Labels) -> NDArray[np.intp]:
    return np.array(
        [
            [int(((truth == real) & (classes == said)).sum()) for said in (ANIMAL, HUMAN)]
            for real in (ANIMAL, HUMAN)
        ]
    )


def folds(matrix: Matrix, seed: int) -> NDArray[np.intp]:
    """By id: samples that share one are never on both sides."""
    random = np.random.Generator(np.random.PCG64([seed, 77]))
    names = sorted(set(matrix.samples))
    order = {name: at for at, name in enumerate(random.permutation(names))}
    return np.array([order[name] % FOLDS for name in matrix.samples])


def validate(
    matrix: Matrix,
    coefficients: Coefficients,
    make: Make,
    *,
    samples: int = 1000,
    seed: int = 1,
) -> dict[str, Score]:
    """By scheme, over all folds, and `ALWAYS_HUMAN`."""
    fold = folds(matrix, seed)
    said: dict[str, list[Labels]] = {}
    truths: list[Labels] = []
    counted: list[NDArray[np.intp]] = []
    for number in range(FOLDS):
        kept, held_out = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        method = make(matrix.take(kept), coefficients)
        drawn = draw(matrix.values[held_out], coefficients, samples // FOLDS, seed, number)
        for scheme, found in method.predict(drawn.values, drawn.seasons.tolist()).items():
            said.setdefault(scheme, []).append(found.classes)
        truths.append(matrix.origins[held_out][drawn.rows])
        counted.append(np.isfinite(drawn.values).sum(axis=1))
    truth, indicators = np.concatenate(truths), np.concatenate(counted)
    said["ALWAYS_HUMAN"] = [np.full(len(truth), HUMAN, dtype=np.int8)]
    return {
        name: Score(name, truth, np.concatenate(each), indicators) for name, each in said.items()
    }
