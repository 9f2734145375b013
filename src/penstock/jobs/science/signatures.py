"""The bag of signatures: which few features tell the classes apart, with which classifier.

For each configuration a forward search adds the feature that helps cross-validation most, up to
five, and keeps what it had at every size. It is repeated without the feature that came first, so
that samples in which that one was not counted have models, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.jobs.science.classifiers import Configuration, Labels, fit
from penstock.jobs.science.matrix import Floats

FOLDS: Final = 10
REPETITIONS: Final = 5
LARGEST: Final = 5
#: A feature that so few samples have is not looked at.
LEAST_PRESENT: Final = 0.8


@dataclass(frozen=True, slots=True)
class Signature:
    configuration: Configuration
    features: tuple[int, ...]
    score: float  #: the mean accuracy over the folds

    @property
    def rank(self) -> tuple[float, int]:
        """Better ones sort first; of equals, those that ask for less."""
        return -self.score, len(self.features)


def folds(y: Labels, seed: Sequence[int]) -> NDArray[np.int8]:
    """The fold of each sample: classes spread evenly, by chance."""
    random = np.random.Generator(np.random.PCG64(list(seed)))
    fold = np.empty(len(y), dtype=np.int8)
    start = 0
    for label in (-1, 1):
        rows = random.permutation(np.flatnonzero(y == label))
        fold[rows] = (start + np.arange(len(rows))) % FOLDS
        start += len(rows)
    return fold


def cross_validate(
    configuration: Configuration, x: Floats, y: Labels, fold: NDArray[np.int8]
) -> float:
    """The mean accuracy over the folds, on the samples that have all these features."""
    whole = np.isfinite(x).all(axis=1)
    x, y, fold = x[whole], y[whole], fold[whole]
    accuracies = []
    for number in range(FOLDS):
        held_out = fold == number
        learnt = y[~held_out]
        if held_out.any() and (learnt == 1).any() and (learnt == -1).any():
            decide = fit(configuration, x[~held_out], learnt)
            accuracies.append(float((decide(x[held_out]) == y[held_out]).mean()))
    return float(np.mean(accuracies)) if accuracies else 0.0


def search(
    configuration: Configuration,
    x: Floats,
    y: Labels,
    fold: NDArray[np.int8],
    seed: Sequence[int],
) -> list[Signature]:
    """All signatures of one configuration, in the order they were found."""
    random = np.random.Generator(np.random.PCG64(list(seed)))
    enough = np.isfinite(x).mean(axis=0) >= LEAST_PRESENT
    pool = [int(feature) for feature in np.flatnonzero(enough)]
    found: list[Signature] = []
    for _ in range(min(REPETITIONS, len(pool))):
        chosen: list[int] = []
        while len(chosen) < min(LARGEST, len(pool)):
            rest = [feature for feature in pool if feature not in chosen]
            scores = np.array(
                [cross_validate(configuration, x[:, [*chosen, each]], y, fold) for each in rest]
            )
            best = np.flatnonzero(scores >= scores.max() - 1e-12)
            pick = int(random.choice(best))
            chosen.append(rest[pick])
            found.append(Signature(configuration, tuple(chosen), float(scores[pick])))
        pool.remove(chosen[0])
    return found


def suitable(bag: Sequence[Signature], present: NDArray[np.bool_], most: int) -> list[Signature]:
    """The best whose features are all there; equals in the order of the bag."""
    fitting = [each for each in bag if all(present[feature] for feature in each.features)]
    return sorted(fitting, key=lambda each: each.rank)[:most]
