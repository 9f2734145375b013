"""A built model: the reference it was built from, how indicators fade, and its signatures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from penstock.jobs.errors import DataError, Problem
from penstock.jobs.science.ageing import Coefficients
from penstock.jobs.science.classifiers import CONFIGURATIONS, Configuration
from penstock.jobs.science.features import features
from penstock.jobs.science.indicators import ANIMAL, HUMAN, Season
from penstock.jobs.science.matrix import Floats, Matrix
from penstock.jobs.science.signatures import FOLDS, Signature, folds, search
from penstock.jobs.science.simulation import SECTIONS, aged

#: Unless a request says otherwise.
SEED: Final = 1


@dataclass(frozen=True, slots=True, order=True)
class Cell:
    """Models for samples of a season and an age."""

    season: Season
    section: int

    @property
    def hours(self) -> float:
        return SECTIONS[self.section]


#: One, fresh samples; or all ages in both seasons.
FRESH: Final = (Cell(Season.SUMMER, 0),)
ALL: Final = tuple(Cell(season, at) for season in Season for at in range(len(SECTIONS)))


@dataclass(frozen=True, slots=True)
class Model:
    matrix: Matrix
    coefficients: Coefficients
    bags: Mapping[Cell, tuple[Signature, ...]]
    seed: int = SEED

    def features_of(self, cell: Cell) -> Floats:
        """The reference as it would be at the cell's age."""
        slopes = self.coefficients.of(cell.season)
        return features(aged(self.matrix.values, slopes, cell.hours))


@dataclass(frozen=True, slots=True)
class Search:
    """One piece of the work of building: independent of all others."""

    cell: Cell
    configuration: Configuration


def searches(
    cells: Sequence[Cell] = FRESH, configurations: Sequence[Configuration] = CONFIGURATIONS
) -> list[Search]:
    return [Search(cell, configuration) for cell in cells for configuration in configurations]


def carry_out(model: Model, wanted: Search) -> list[Signature]:
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


def unbuilt(matrix: Matrix, coefficients: Coefficients, seed: int = SEED) -> Model:
    """What is there before any search; refused if no search could make anything of it."""
    origins = matrix.origins
    for label, name in ((HUMAN, "human"), (ANIMAL, "animal")):
        count = int((origins == label).sum())
        if count < FOLDS:
            text = f"{count} {name} samples; at least {FOLDS} of each origin are needed"
            raise DataError([Problem(0, "CLASS", text)])
    if not np.isfinite(coefficients.slopes).any():
        raise DataError([Problem(0, "", "no trials of how any indicator fades")])
    return Model(matrix, coefficients, {}, seed)


def gathered(model: Model, results: Mapping[Search, Sequence[Signature]]) -> Model:
    """With the signatures that were found, in an order that does not depend on who was first."""

    def order(wanted: Search) -> tuple[Cell, int]:
        return wanted.cell, CONFIGURATIONS.index(wanted.configuration)

    bags: dict[Cell, tuple[Signature, ...]] = {}
    for wanted in sorted(results, key=order):
        bags[wanted.cell] = (*bags.get(wanted.cell, ()), *results[wanted])
    return replace(model, bags=bags)


def build(
    model: Model, wanted: Sequence[Search], told: Callable[[float], None] = lambda _: None
) -> Model:
    """Here and now, one search after the other."""
    return gathered(model, dict(_carried_out(model, wanted, told)))


def _carried_out(
    model: Model, wanted: Sequence[Search], told: Callable[[float], None]
) -> Iterator[tuple[Search, list[Signature]]]:
    for done, each in enumerate(wanted, 1):
        yield each, carry_out(model, each)
        told(done / len(wanted))
