"""Source models: the reference, the decay coefficients, and signatures.

A signature is a classifier and a few features that separate the classes. For each configuration a
forward search adds the feature that improves cross-validation most, up to five, and keeps a
signature of every size. The search is repeated without the feature found first, so that there are
signatures for samples in which it was not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock_jobs.errors import DatasetError, DatasetProblem
from penstock_jobs.science.calibration import SourceCalibration
from penstock_jobs.science.classifiers import CONFIGURATIONS, ClassifierConfiguration, Labels, fit
from penstock_jobs.science.decay import DecayCoefficients
from penstock_jobs.science.indicators import ANIMAL, HUMAN, Season
from penstock_jobs.science.matrix import Floats, SampleMatrix, features
from penstock_jobs.science.simulation import SECTIONS, aged_values

SEED: Final = 1


@dataclass(frozen=True, slots=True, order=True)
class ModelCell:
    """A season and an age that have models of their own."""

    season: Season
    section: int

    @property
    def hours(self) -> float:
        return SECTIONS[self.section]


#: Fresh samples only, or all ages in both seasons.
FRESH: Final = (ModelCell(Season.SUMMER, 0),)
ALL: Final = tuple(ModelCell(season, at) for season in Season for at in range(len(SECTIONS)))


@dataclass(frozen=True, slots=True)
class SourceModel:
    matrix: SampleMatrix
    coefficients: DecayCoefficients
    bags: Mapping[ModelCell, tuple[Signature, ...]]
    seed: int = SEED
    calibration: SourceCalibration | None = None

    def features_of(self, cell: ModelCell) -> Floats:
        """The reference at the age of the cell."""
        slopes = self.coefficients.of(cell.season)
        return features(aged_values(self.matrix.values, slopes, cell.hours))


@dataclass(frozen=True, slots=True)
class SignatureSearch:
    """One search, independent of all others."""

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
    """Deterministic."""
    cell, configuration = wanted.cell, wanted.configuration
    y = model.matrix.origins
    seed = (model.seed, int(cell.season), cell.section)
    return search(
        configuration,
        model.features_of(cell),
        y,
        folds(y, seed),
        (*seed, CONFIGURATIONS.index(configuration)),
    )


def new_model(
    matrix: SampleMatrix, coefficients: DecayCoefficients, seed: int = SEED
) -> SourceModel:
    """A model without signatures; raises `DatasetError` if no search can succeed."""
    origins = matrix.origins
    for label, name in ((HUMAN, "human"), (ANIMAL, "animal")):
        count = int((origins == label).sum())
        if count < FOLDS:
            text = f"{count} {name} samples; at least {FOLDS} of each origin are needed"
            raise DatasetError([DatasetProblem(0, "CLASS", text)])
    if not np.isfinite(coefficients.slopes).any():
        raise DatasetError([DatasetProblem(0, "", "no trials of the decay of any indicator")])
    return SourceModel(matrix, coefficients, {}, seed)


def with_signatures(
    model: SourceModel, results: Mapping[SignatureSearch, Sequence[Signature]]
) -> SourceModel:
    """Add signatures, in an order that does not depend on the order of the results."""

    def order(wanted: SignatureSearch) -> tuple[ModelCell, int]:
        return wanted.cell, CONFIGURATIONS.index(wanted.configuration)

    bags: dict[ModelCell, tuple[Signature, ...]] = {}
    for wanted in sorted(results, key=order):
        bags[wanted.cell] = (*bags.get(wanted.cell, ()), *results[wanted])
    return replace(model, bags=bags)


def build(
    model: SourceModel,
    wanted: Sequence[SignatureSearch],
    progress: Callable[[float], None] = lambda _: None,
) -> SourceModel:
    """In this process, one search after the other."""
    results = {}
    for done, each in enumerate(wanted, 1):
        results[each] = run_search(model, each)
        progress(done / len(wanted))
    return with_signatures(model, results)


FOLDS: Final = 10
REPETITIONS: Final = 5
MAX_FEATURES: Final = 5
#: A feature must be present in this share of the samples.
MIN_PRESENT: Final = 0.8


@dataclass(frozen=True, slots=True)
class Signature:
    configuration: ClassifierConfiguration
    features: tuple[int, ...]
    score: float  #: the mean accuracy over the folds

    @property
    def rank(self) -> tuple[float, int]:
        """The best sorts first; of equals, the one with fewer features."""
        return -self.score, len(self.features)


def folds(y: Labels, seed: Sequence[int]) -> NDArray[np.int8]:
    """A random fold for each sample, with classes spread evenly."""
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
    """The mean accuracy over the folds, for samples with all features."""
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
    """All signatures of one configuration, in the order of the search."""
    random = np.random.Generator(np.random.PCG64(list(seed)))
    enough = np.isfinite(x).mean(axis=0) >= MIN_PRESENT
    pool = [int(feature) for feature in np.flatnonzero(enough)]
    found: list[Signature] = []
    for _ in range(min(REPETITIONS, len(pool))):
        chosen: list[int] = []
        while len(chosen) < min(MAX_FEATURES, len(pool)):
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
    """The best signatures whose features are present; equals in the order of the bag."""
    fitting = [each for each in bag if all(present[feature] for feature in each.features)]
    return sorted(fitting, key=lambda each: each.rank)[:most]
