"""A built model: the reference it was built from, how indicators fade, and its signatures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock_jobs.errors import DatasetError, DatasetProblem
from penstock_jobs.science.classifiers import CONFIGURATIONS, ClassifierConfiguration, Labels, fit
from penstock_jobs.science.decay import DecayCoefficients
from penstock_jobs.science.indicators import ANIMAL, HUMAN, Season
from penstock_jobs.science.matrix import Floats, SampleMatrix, features
from penstock_jobs.science.simulation import SECTIONS, aged_values

#: Unless a request says otherwise.
SEED: Final = 1


@dataclass(frozen=True, slots=True, order=True)
class ModelCell:
    """Models for samples of a season and an age."""

    season: Season
    section: int

    @property
    def hours(self) -> float:
        return SECTIONS[self.section]


#: One, fresh samples; or all ages in both seasons.
FRESH: Final = (ModelCell(Season.SUMMER, 0),)
ALL: Final = tuple(ModelCell(season, at) for season in Season for at in range(len(SECTIONS)))


@dataclass(frozen=True, slots=True)
class SourceModel:
    matrix: SampleMatrix
    coefficients: DecayCoefficients
    bags: Mapping[ModelCell, tuple[Signature, ...]]
    seed: int = SEED

    def features_of(self, cell: ModelCell) -> Floats:
        """The reference as it would be at the cell's age."""
        slopes = self.coefficients.of(cell.season)
        return features(aged_values(self.matrix.values, slopes, cell.hours))


@dataclass(frozen=True, slots=True)
class SignatureSearch:
    """One piece of the work of building: independent of all others."""

    cell: ModelCell
    configuration: ClassifierConfiguration


def searches(
    cells: Sequence[ModelCell] = FRESH,
    configurations: Sequence[ClassifierConfiguration] = CONFIGURATIONS,
) -> list[SignatureSearch]:
    return [
        SignatureSearch(cell, configuration) for cell in cells for configuration in configurations
    ]


def run_search(model: SourceModel, wanted: SignatureSearch) -> list[Signature]:
    """The same signatures wherever and whenever it is done."""
    cell, configuration = wanted.cell, wanted.configuration
    y = model.matrix.origins
    place = (model.seed, int(cell.season), cell.section)
    return search(
        configuration,
        model.features_of(cell),
        y,
        folds(y, place),
        (*place, CONFIGURATIONS.index(configuration)),
    )


def new_model(
    matrix: SampleMatrix, coefficients: DecayCoefficients, seed: int = SEED
) -> SourceModel:
    """What is there before any search; refused if no search could make anything of it."""
    origins = matrix.origins
    for label, name in ((HUMAN, "human"), (ANIMAL, "animal")):
        count = int((origins == label).sum())
        if count < FOLDS:
            text = f"{count} {name} samples; at least {FOLDS} of each origin are needed"
            raise DatasetError([DatasetProblem(0, "CLASS", text)])
    if not np.isfinite(coefficients.slopes).any():
        raise DatasetError([DatasetProblem(0, "", "no trials of how any indicator fades")])
    return SourceModel(matrix, coefficients, {}, seed)


def with_signatures(
    model: SourceModel, results: Mapping[SignatureSearch, Sequence[Signature]]
) -> SourceModel:
    """With the signatures that were found, in an order that does not depend on who was first."""

    def order(wanted: SignatureSearch) -> tuple[ModelCell, int]:
        return wanted.cell, CONFIGURATIONS.index(wanted.configuration)

    bags: dict[ModelCell, tuple[Signature, ...]] = {}
    for wanted in sorted(results, key=order):
        bags[wanted.cell] = (*bags.get(wanted.cell, ()), *results[wanted])
    return replace(model, bags=bags)


def build(
    model: SourceModel,
    wanted: Sequence[SignatureSearch],
    told: Callable[[float], None] = lambda _: None,
) -> SourceModel:
    """Here and now, one search after the other."""
    return with_signatures(model, dict(_run_searches(model, wanted, told)))


def _run_searches(
    model: SourceModel, wanted: Sequence[SignatureSearch], told: Callable[[float], None]
) -> Iterator[tuple[SignatureSearch, list[Signature]]]:
    for done, each in enumerate(wanted, 1):
        yield each, run_search(model, each)
        told(done / len(wanted))


# The bag of signatures: which few features tell the classes apart, with which classifier.
#
# For each configuration a forward search adds the feature that helps cross-validation most, up to
# five, and keeps what it had at every size. It is repeated without the feature that came first, so
# that samples in which that one was not counted have models, too.

FOLDS: Final = 10
REPETITIONS: Final = 5
LARGEST: Final = 5
#: A feature that so few samples have is not looked at.
LEAST_PRESENT: Final = 0.8


@dataclass(frozen=True, slots=True)
class Signature:
    configuration: ClassifierConfiguration
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
    configuration: ClassifierConfiguration, x: Floats, y: Labels, fold: NDArray[np.int8]
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
    configuration: ClassifierConfiguration,
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
