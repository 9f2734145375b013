"""How good a method is, on samples whose base was kept from it.

Reference samples are split by their id into folds; a method is made from all but one, and judged on
simulated samples of that one. Beside it stands what costs nothing: to say "human" each time, and
the same method without taking age and dilution back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock_jobs.science.boosted import SCHEME, BoostedPredictor
from penstock_jobs.science.classifiers import CONFIGURATIONS, ClassifierConfiguration, Labels
from penstock_jobs.science.decay import DecayCoefficients
from penstock_jobs.science.indicators import ANIMAL, HUMAN
from penstock_jobs.science.matrix import Floats, SampleMatrix
from penstock_jobs.science.model import FRESH, SourceModel, build, new_model, searches
from penstock_jobs.science.prediction import SourcePredictions, SourcePredictor
from penstock_jobs.science.simulation import draw_samples

FOLDS: Final = 5


class PredictionMethod(Protocol):
    def predict(self, values: Floats, seasons: Sequence[int]) -> dict[str, SourcePredictions]: ...


#: From a reference and slopes to a method.
MethodFactory = Callable[[SampleMatrix, DecayCoefficients], PredictionMethod]


@dataclass(frozen=True, slots=True)
class MethodScore:
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


def folds(matrix: SampleMatrix, seed: int) -> NDArray[np.intp]:
    """By id: samples that share one are never on both sides."""
    random = np.random.Generator(np.random.PCG64([seed, 77]))
    names = sorted(set(matrix.samples))
    order = {name: at for at, name in enumerate(random.permutation(names))}
    return np.array([order[name] % FOLDS for name in matrix.samples])


def validate(
    matrix: SampleMatrix,
    coefficients: DecayCoefficients,
    make: MethodFactory,
    *,
    samples: int = 1000,
    seed: int = 1,
) -> dict[str, MethodScore]:
    """By scheme, over all folds, and `ALWAYS_HUMAN`."""
    fold = folds(matrix, seed)
    said: dict[str, list[Labels]] = {}
    truths: list[Labels] = []
    counted: list[NDArray[np.intp]] = []
    for number in range(FOLDS):
        kept, held_out = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        method = make(matrix.take(kept), coefficients)
        drawn = draw_samples(matrix.values[held_out], coefficients, samples // FOLDS, seed, number)
        for scheme, found in method.predict(drawn.values, drawn.seasons.tolist()).items():
            said.setdefault(scheme, []).append(found.classes)
        truths.append(matrix.origins[held_out][drawn.rows])
        counted.append(np.isfinite(drawn.values).sum(axis=1))
    truth, indicators = np.concatenate(truths), np.concatenate(counted)
    said["ALWAYS_HUMAN"] = [np.full(len(truth), HUMAN, dtype=np.int8)]
    return {
        name: MethodScore(name, truth, np.concatenate(each), indicators)
        for name, each in said.items()
    }


# What the methods are worth beside each other, on the same simulated samples of kept-back base.
#
# The vote of models stands beside the same vote without taking age and dilution back, the other
# method, and saying "human" each time; each with how often it says anything at all.

#: Of the ways to weigh votes, the one that is reported.
_WEIGHED: Final = "ERROR2"
#: Simulated samples have so many.
_INDICATORS: Final = range(2, 6)


def compare_methods(
    matrix: SampleMatrix,
    coefficients: DecayCoefficients,
    *,
    configurations: Sequence[ClassifierConfiguration] = CONFIGURATIONS,
    samples: int = 1000,
    seed: int = 1,
    boosted: bool = True,
) -> Iterator[MethodScore]:
    """Each as soon as it is known."""
    built: dict[tuple[str, ...], SourceModel] = {}

    def vote(part: SampleMatrix, k: DecayCoefficients) -> SourcePredictor:
        model = new_model(part, k, seed)
        built[part.samples] = build(model, searches(FRESH, configurations))
        return SourcePredictor(built[part.samples])

    def uncorrected(part: SampleMatrix, k: DecayCoefficients) -> SourcePredictor:
        return SourcePredictor(built[part.samples], corrects=False)

    def other(part: SampleMatrix, k: DecayCoefficients) -> BoostedPredictor:
        return BoostedPredictor(part, k, seed=seed)

    found = validate(matrix, coefficients, vote, samples=samples, seed=seed)
    yield replace(found[_WEIGHED], name="vote of models")
    plain = validate(matrix, coefficients, uncorrected, samples=samples, seed=seed)
    yield replace(plain[_WEIGHED], name="no correction")
    if boosted:
        scores = validate(matrix, coefficients, other, samples=samples, seed=seed)
        yield replace(scores[SCHEME], name="boosted")
    yield replace(found["ALWAYS_HUMAN"], name="always human")


def comparison_heading() -> str:
    return _comparison_row("", "coverage", "error", [f"with {number}" for number in _INDICATORS])


def comparison_line(score: MethodScore) -> str:
    """Coverage, error, and how often it is right by how many indicators were counted."""
    by_number = (score.accuracy_with(number) for number in _INDICATORS)
    right = ["–" if each is None else f"{each:.1%}" for each in by_number]
    return _comparison_row(score.name, f"{score.coverage:.1%}", f"{score.error:.1%}", right)


def _comparison_row(name: str, coverage: str, error: str, others: Sequence[str]) -> str:
    return f"{name:<16}" + "".join(f"{cell:>9}" for cell in (coverage, error, *others))
