"""The panel of a cell's classifiers, and how votes are counted.

Samples in which the same features are there have the same voters. A classifier is asked once for
all samples it has to judge, however many patterns of features they have: there are thousands of
patterns, and few classifiers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock.jobs.science.classifiers import Decide, Labels, fit
from penstock.jobs.science.indicators import ANIMAL, FEATURES, HUMAN
from penstock.jobs.science.matrix import Floats
from penstock.jobs.science.signatures import Signature, suitable

SCHEMES: Final = ("MAJORITY_VOTE", "ERROR", "ERROR2")
#: How many models vote.
VOTERS: Final = 10


def weights(scheme: str, scores: Sequence[float]) -> Floats:
    """They add up to one."""
    errors = 1 - np.array(scores)
    if scheme == "ERROR2":
        errors = errors**2
    count = len(errors)
    if scheme == "MAJORITY_VOTE" or count == 1 or errors.sum() == 0:
        return np.full(count, 1 / count)
    return np.asarray((1 - errors / errors.sum()) / (count - 1))


class Voters:
    """Who votes on samples with a pattern of features, and what their votes weigh."""

    __slots__ = ("deciding", "places", "weights")

    def __init__(self, bag: Sequence[Signature], present: NDArray[np.bool_]) -> None:
        chosen = suitable(bag, present, VOTERS)
        places = {each: at for at, each in enumerate(bag)}
        self.places = [places[each] for each in chosen]
        self.weights: dict[str, Floats] = {}
        self.deciding: dict[str, tuple[str, ...]] = {}
        for scheme in SCHEMES:
            share = np.zeros(VOTERS)
            if chosen:
                share[: len(chosen)] = weights(scheme, [each.score for each in chosen])
            self.weights[scheme] = share
            self.deciding[scheme] = _deciding(chosen, share)


def _deciding(chosen: Sequence[Signature], share: Floats) -> tuple[str, ...]:
    """The features that voted, most weight first."""
    total: dict[str, float] = {}
    for voter, weight in zip(chosen, share, strict=False):
        for feature in voter.features:
            name = FEATURES[feature]
            total[name] = total.get(name, 0.0) + weight / len(voter.features)
    return tuple(sorted(total, key=lambda name: (-total[name], name)))


class Ballot:
    """What was voted on each sample, and by whom."""

    def __init__(self, samples: int) -> None:
        self.votes = np.zeros((samples, VOTERS), dtype=np.int8)  #: 0: nobody
        self._voters: list[Voters] = []
        self._which = np.full(samples, -1, dtype=np.intp)

    def enter(self, rows: NDArray[np.intp], voters: Voters) -> None:
        self._which[rows] = len(self._voters)
        self._voters.append(voters)

    def count(self, scheme: str, favoured: int) -> tuple[Labels, Floats]:
        """Classes and how certain they are; who is undecided says what is favoured."""
        samples = len(self.votes)
        if not self._voters:
            return np.zeros(samples, dtype=np.int8), np.zeros(samples)
        table = np.array([voters.weights[scheme] for voters in self._voters])
        share = table[self._which] * (self._which >= 0)[:, None]
        human = (share * (self.votes == HUMAN)).sum(axis=1)
        whole = share.sum(axis=1)
        classes = np.where(human > whole / 2, HUMAN, ANIMAL)
        classes = np.where(np.isclose(human, whole / 2), favoured, classes)
        some = whole > 0
        confidence = np.where(some, np.maximum(human, whole - human), 0.0)
        return np.where(some, classes, 0).astype(np.int8), np.asarray(np.round(confidence, 12))

    def deciding(self, scheme: str, row: int) -> tuple[str, ...]:
        at = self._which[row]
        return () if at < 0 else self._voters[at].deciding[scheme]


class Panel:
    """The classifiers of one cell, fitted when they are first needed."""

    def __init__(self, bag: Sequence[Signature], x: Floats, y: Labels) -> None:
        self._bag = list(dict.fromkeys(bag))
        self._x = x
        self._y = y
        self._fitted: dict[int, Decide] = {}
        self._voters: dict[bytes, Voters] = {}

    def vote(self, x: Floats, rows: NDArray[np.intp], ballot: Ballot) -> None:
        """On the samples `x`, which are the ballot's `rows`."""
        present = np.isfinite(x)
        _, first, which = np.unique(_codes(present), return_index=True, return_inverse=True)
        patterns = present[first]
        order = np.argsort(which, kind="stable")
        groups = np.split(order, np.searchsorted(which[order], np.arange(1, len(patterns))))
        asked: dict[int, list[tuple[NDArray[np.intp], int]]] = {}
        for present, group in zip(patterns, groups, strict=True):
            voters = self._of(present)
            if voters.places:
                ballot.enter(rows[group], voters)
            for slot, place in enumerate(voters.places):
                asked.setdefault(place, []).append((group, slot))
        for place, pieces in asked.items():
            judged = np.concatenate([group for group, _ in pieces])
            slots = np.repeat([slot for _, slot in pieces], [len(group) for group, _ in pieces])
            columns = self._bag[place].features
            ballot.votes[rows[judged], slots] = self._decide(place)(x[judged][:, columns])

    def _of(self, present: NDArray[np.bool_]) -> Voters:
        key = present.tobytes()
        if key not in self._voters:
            self._voters[key] = Voters(self._bag, present)
        return self._voters[key]

    def _decide(self, place: int) -> Decide:
        found = self._fitted.get(place)
        if found is None:
            signature = self._bag[place]
            x = self._x[:, signature.features]
            whole = np.isfinite(x).all(axis=1)
            found = fit(signature.configuration, x[whole], self._y[whole])
            self._fitted[place] = found
        return found


def _codes(present: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """What is present, as a number: numbers are sorted many times quicker than rows."""
    bits = np.zeros((len(present), 32), dtype=np.bool_)
    bits[:, : present.shape[1]] = present
    return np.packbits(bits, axis=1).view(">u4").reshape(-1).astype(np.uint32)
