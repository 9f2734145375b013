"""Where samples come from: two hypotheses, ten voters for each, and the more certain one holds.

The votes of classifiers are weighted in three ways (`SCHEMES`); all three are answered, for they
come from the same votes. When both hypotheses are equally certain the one that the sample fits
better, once its age and dilution are taken back, holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.jobs.science.classifiers import Labels
from penstock.jobs.science.correction import (
    Corrected,
    Reference,
    correct,
    reference,
    uncorrected,
)
from penstock.jobs.science.features import features
from penstock.jobs.science.indicators import ANIMAL, HUMAN
from penstock.jobs.science.matrix import Floats
from penstock.jobs.science.model import Cell, Model
from penstock.jobs.science.voting import SCHEMES, Ballot, Panel

HYPOTHESES: Final = (HUMAN, ANIMAL)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came out under one hypothesis: the class, or 0 where no model could say."""

    classes: Labels
    confidence: Floats
    hours: Floats
    dilutions: Floats
    misfit: Floats


@dataclass(frozen=True, slots=True)
class Predictions:
    """By scheme, for all samples."""

    scheme: str
    human: Verdict
    animal: Verdict
    classes: Labels  #: 0 where there is no prediction
    confidence: Floats
    hours: Floats
    dilutions: Floats
    deciding: tuple[tuple[str, ...], ...]  #: the features that voted, most weight first

    @property
    def predicted(self) -> int:
        return int((self.classes != 0).sum())


class Predictor:
    """A model made ready: everything is fitted once, when it is first asked for."""

    def __init__(self, model: Model, *, corrects: bool = True) -> None:
        """Without correction only to see what it is good for."""
        self._model = model
        self._corrects = corrects
        origins = model.matrix.origins
        self._known: dict[int, Reference] = {
            origin: reference(model.matrix.values[origins == origin]) for origin in HYPOTHESES
        }
        self._panels = {
            cell: Panel(bag, model.features_of(cell), origins) for cell, bag in model.bags.items()
        }

    def predict(self, values: Floats, seasons: Sequence[int]) -> dict[str, Predictions]:
        """By scheme. Samples do not depend on each other."""
        when = np.asarray(seasons, dtype=np.intp)
        slopes = self._model.coefficients.slopes[when]
        found: dict[int, tuple[Corrected, Ballot]] = {}
        for origin in HYPOTHESES:
            if self._corrects:
                corrected = correct(values, slopes, self._known[origin])
            else:
                corrected = uncorrected(values)
            found[origin] = corrected, self._vote(corrected, values, when)
        return {scheme: _verdict(scheme, found) for scheme in SCHEMES}

    def _vote(self, corrected: Corrected, values: Floats, when: NDArray[np.intp]) -> Ballot:
        ballot = Ballot(len(values))
        nearest, cells = self._nearest(corrected.hours, when)
        for number, cell in enumerate(cells):
            rows = np.flatnonzero(nearest == number)
            if not len(rows):
                continue
            if cell.section:  # models of this age: take back the dilution alone
                fresh = values[rows] * corrected.dilutions[rows, None]
            else:
                fresh = corrected.values[rows]
            self._panels[cell].vote(features(fresh), rows, ballot)
        return ballot

    def _nearest(
        self, hours: Floats, when: NDArray[np.intp]
    ) -> tuple[NDArray[np.intp], list[Cell]]:
        """Of the cells that were built, the nearest in age; those of the season before others."""
        cells = sorted(self._panels)
        ages = np.array([cell.hours for cell in cells])
        seasons = np.array([cell.season for cell in cells])
        foreign = (seasons[None, :] != when[:, None]) * 1e6
        return np.argmin(np.abs(ages[None, :] - hours[:, None]) + foreign, axis=1), cells


def _verdict(scheme: str, found: dict[int, tuple[Corrected, Ballot]]) -> Predictions:
    verdicts = {}
    for origin, (corrected, ballot) in found.items():
        classes, confidence = ballot.count(scheme, origin)
        verdicts[origin] = Verdict(
            classes, confidence, corrected.hours, corrected.dilutions, corrected.misfit
        )
    human, animal = verdicts[HUMAN], verdicts[ANIMAL]
    surer = human.confidence > animal.confidence
    equal = human.confidence == animal.confidence
    holds = surer | (equal & (human.misfit <= animal.misfit))
    ballots = {True: found[HUMAN][1], False: found[ANIMAL][1]}
    return Predictions(
        scheme,
        human,
        animal,
        np.where(holds, human.classes, animal.classes),
        np.where(holds, human.confidence, animal.confidence),
        np.where(holds, human.hours, animal.hours),
        np.where(holds, human.dilutions, animal.dilutions),
        tuple(ballots[bool(each)].deciding(scheme, row) for row, each in enumerate(holds)),
    )
