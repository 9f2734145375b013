"""Where samples come from: two hypotheses, ten voters for each, and the more certain one holds.

The votes of classifiers are weighted in three ways (`SCHEMES`); all three are answered, for they
come from the same votes. When both hypotheses are equally certain the one that the sample fits
better, once its age and dilution are taken back, holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.jobs.science.classifiers import Decide, Labels, fit
from penstock.jobs.science.correction import (
    Corrected,
    Reference,
    correct,
    reference,
    uncorrected,
)
from penstock.jobs.science.features import features
from penstock.jobs.science.indicators import ANIMAL, FEATURES, HUMAN, Season
from penstock.jobs.science.matrix import Floats
from penstock.jobs.science.model import Cell, Model
from penstock.jobs.science.signatures import Signature, suitable

SCHEMES: Final = ("MAJORITY_VOTE", "ERROR", "ERROR2")
#: How many models vote.
VOTERS: Final = 10
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
        self._fitted: dict[tuple[Cell, Signature], Decide] = {}
        self._features: dict[Cell, Floats] = {}

    def predict(
        self,
        values: Floats,
        seasons: Sequence[Season],
        told: Callable[[int], None] = lambda _: None,
    ) -> dict[str, Predictions]:
        """All schemes; `told` hears how many samples are done."""
        slopes = self._model.coefficients.slopes[np.asarray(seasons, dtype=np.intp)]
        ballots = {
            origin: self._ballot(
                correct(values, slopes, self._known[origin])
                if self._corrects
                else uncorrected(values),
                values,
                seasons,
            )
            for origin in HYPOTHESES
        }
        told(len(values))
        return {scheme: _verdict(scheme, ballots) for scheme in SCHEMES}

    def _ballot(self, corrected: Corrected, values: Floats, seasons: Sequence[Season]) -> _Ballot:
        cells = self._cells(corrected.hours, seasons)
        ballot = _Ballot(corrected, len(values))
        for cell in dict.fromkeys(cells):
            rows = np.array([at for at, each in enumerate(cells) if each == cell])
            if cell.section:  # models of this age: take back the dilution alone
                fresh = values[rows] * corrected.dilutions[rows, None]
            else:
                fresh = corrected.values[rows]
            self._vote(cell, features(fresh), rows, ballot)
        return ballot

    def _vote(self, cell: Cell, x: Floats, rows: NDArray[np.intp], ballot: _Ballot) -> None:
        """Samples in which the same features are there have the same voters."""
        patterns, which = np.unique(np.isfinite(x), axis=0, return_inverse=True)
        for number, present in enumerate(patterns):
            voters = suitable(self._model.bags[cell], present, VOTERS)
            if not voters:
                continue
            group = np.flatnonzero(which.reshape(-1) == number)
            votes = np.column_stack(
                [self._decide(cell, voter)(x[group][:, voter.features]) for voter in voters]
            )
            ballot.add(rows[group], votes, voters)

    def _decide(self, cell: Cell, signature: Signature) -> Decide:
        found = self._fitted.get((cell, signature))
        if found is None:
            if cell not in self._features:
                self._features[cell] = self._model.features_of(cell)
            x = self._features[cell][:, signature.features]
            whole = np.isfinite(x).all(axis=1)
            found = fit(signature.configuration, x[whole], self._model.matrix.origins[whole])
            self._fitted[cell, signature] = found
        return found

    def _cells(self, hours: Floats, seasons: Sequence[Season]) -> list[Cell]:
        """The nearest in age of those that were built for the season, or for any."""
        built = tuple(self._model.bags)
        found = []
        for age, season in zip(hours, seasons, strict=True):
            there = [cell for cell in built if cell.season == season] or built
            found.append(min(there, key=lambda cell: abs(cell.hours - age)))
        return found


class _Ballot:
    """Who voted what, under one hypothesis."""

    def __init__(self, corrected: Corrected, samples: int) -> None:
        self.corrected = corrected
        self.votes: list[Labels | None] = [None] * samples
        self.voters: list[list[Signature]] = [[] for _ in range(samples)]

    def add(self, rows: NDArray[np.intp], votes: Labels, voters: list[Signature]) -> None:
        for row, cast in zip(rows, votes, strict=True):
            self.votes[row] = cast
            self.voters[row] = voters


def weights(scheme: str, scores: Sequence[float]) -> Floats:
    """They add up to one."""
    errors = 1 - np.array(scores)
    if scheme == "ERROR2":
        errors = errors**2
    count = len(errors)
    if scheme == "MAJORITY_VOTE" or count == 1 or errors.sum() == 0:
        return np.full(count, 1 / count)
    return np.asarray((1 - errors / errors.sum()) / (count - 1))


def _verdict(scheme: str, ballots: dict[int, _Ballot]) -> Predictions:
    verdicts = {origin: _count(scheme, ballot, origin) for origin, ballot in ballots.items()}
    human, animal = verdicts[HUMAN], verdicts[ANIMAL]
    surer = human.confidence > animal.confidence
    equal = human.confidence == animal.confidence
    chosen = surer | (equal & (human.misfit <= animal.misfit))

    def pick(one: NDArray[np.generic], other: NDArray[np.generic]) -> NDArray[np.generic]:
        return np.where(chosen, one, other)

    deciding = tuple(
        _deciding(scheme, ballots[HUMAN if human_holds else ANIMAL], row)
        for row, human_holds in enumerate(chosen)
    )
    return Predictions(
        scheme,
        human,
        animal,
        pick(human.classes, animal.classes).astype(np.int8),
        pick(human.confidence, animal.confidence).astype(np.float64),
        pick(human.hours, animal.hours).astype(np.float64),
        pick(human.dilutions, animal.dilutions).astype(np.float64),
        deciding,
    )


def _count(scheme: str, ballot: _Ballot, origin: int) -> Verdict:
    classes = np.zeros(len(ballot.votes), dtype=np.int8)
    confidence = np.zeros(len(ballot.votes))
    for row, cast in enumerate(ballot.votes):
        if cast is None:
            continue
        share = weights(scheme, [voter.score for voter in ballot.voters[row]])
        human = float(share[cast == HUMAN].sum())
        if human != 0.5:
            classes[row] = HUMAN if human > 0.5 else ANIMAL
        else:
            classes[row] = origin
        confidence[row] = max(human, 1 - human)
    corrected = ballot.corrected
    return Verdict(classes, confidence, corrected.hours, corrected.dilutions, corrected.misfit)


def _deciding(scheme: str, ballot: _Ballot, row: int) -> tuple[str, ...]:
    voters = ballot.voters[row]
    if not voters:
        return ()
    total: dict[str, float] = {}
    for voter, share in zip(voters, weights(scheme, [v.score for v in voters]), strict=True):
        for feature in voter.features:
            name = FEATURES[feature]
            total[name] = total.get(name, 0.0) + share / len(voter.features)
    return tuple(sorted(total, key=lambda name: (-total[name], name)))
