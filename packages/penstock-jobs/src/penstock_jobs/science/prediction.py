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

from penstock_jobs.science.classifiers import Decide, Labels, fit
from penstock_jobs.science.indicators import ANIMAL, FEATURES, HUMAN
from penstock_jobs.science.matrix import Floats, features
from penstock_jobs.science.model import ModelCell, Signature, SourceModel, suitable

HYPOTHESES: Final = (HUMAN, ANIMAL)


@dataclass(frozen=True, slots=True)
class HypothesisVerdict:
    """What came out under one hypothesis: the class, or 0 where no model could say."""

    classes: Labels
    confidence: Floats
    hours: Floats
    dilutions: Floats
    misfit: Floats


@dataclass(frozen=True, slots=True)
class SourcePredictions:
    """By scheme, for all samples."""

    scheme: str
    human: HypothesisVerdict
    animal: HypothesisVerdict
    classes: Labels  #: 0 where there is no prediction
    confidence: Floats
    hours: Floats
    dilutions: Floats
    deciding: tuple[tuple[str, ...], ...]  #: the features that voted, most weight first

    @property
    def predicted(self) -> int:
        return int((self.classes != 0).sum())


class SourcePredictor:
    """A model made ready: everything is fitted once, when it is first asked for."""

    def __init__(self, model: SourceModel, *, corrects: bool = True) -> None:
        """Without correction only to see what it is good for."""
        self._model = model
        self._corrects = corrects
        origins = model.matrix.origins
        self._known: dict[int, ReferenceStatistics] = {
            origin: reference_statistics(model.matrix.values[origins == origin])
            for origin in HYPOTHESES
        }
        self._panels = {
            cell: VotingPanel(bag, model.features_of(cell), origins)
            for cell, bag in model.bags.items()
        }

    def predict(self, values: Floats, seasons: Sequence[int]) -> dict[str, SourcePredictions]:
        """By scheme. Samples do not depend on each other."""
        when = np.asarray(seasons, dtype=np.intp)
        slopes = self._model.coefficients.slopes[when]
        found: dict[int, tuple[CorrectedSamples, Ballot]] = {}
        for origin in HYPOTHESES:
            if self._corrects:
                corrected = correct_samples(values, slopes, self._known[origin])
            else:
                corrected = uncorrected_samples(values)
            found[origin] = corrected, self._vote(corrected, values, when)
        return {scheme: _verdict(scheme, found) for scheme in SCHEMES}

    def _vote(self, corrected: CorrectedSamples, values: Floats, when: NDArray[np.intp]) -> Ballot:
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
    ) -> tuple[NDArray[np.intp], list[ModelCell]]:
        """Of the cells that were built, the nearest in age; those of the season before others."""
        cells = sorted(self._panels)
        ages = np.array([cell.hours for cell in cells])
        seasons = np.array([cell.season for cell in cells])
        foreign = (seasons[None, :] != when[:, None]) * 1e6
        return np.argmin(np.abs(ages[None, :] - hours[:, None]) + foreign, axis=1), cells


def _verdict(scheme: str, found: dict[int, tuple[CorrectedSamples, Ballot]]) -> SourcePredictions:
    verdicts = {}
    for origin, (corrected, ballot) in found.items():
        classes, confidence = ballot.count(scheme, origin)
        verdicts[origin] = HypothesisVerdict(
            classes, confidence, corrected.hours, corrected.dilutions, corrected.misfit
        )
    human, animal = verdicts[HUMAN], verdicts[ANIMAL]
    surer = human.confidence > animal.confidence
    equal = human.confidence == animal.confidence
    holds = surer | (equal & (human.misfit <= animal.misfit))
    ballots = {True: found[HUMAN][1], False: found[ANIMAL][1]}
    return SourcePredictions(
        scheme,
        human,
        animal,
        np.where(holds, human.classes, animal.classes),
        np.where(holds, human.confidence, animal.confidence),
        np.where(holds, human.hours, animal.hours),
        np.where(holds, human.dilutions, animal.dilutions),
        tuple(ballots[bool(each)].deciding(scheme, row) for row, each in enumerate(holds)),
    )


# The panel of a cell's classifiers, and how votes are counted.
#
# Samples in which the same features are there have the same voters. A classifier is asked once for
# all samples it has to judge, however many patterns of features they have: there are thousands of
# patterns, and few classifiers.

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


class VoterWeights:
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
        self._voters: list[VoterWeights] = []
        self._which = np.full(samples, -1, dtype=np.intp)

    def enter(self, rows: NDArray[np.intp], voters: VoterWeights) -> None:
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


class VotingPanel:
    """The classifiers of one cell, fitted when they are first needed."""

    def __init__(self, bag: Sequence[Signature], x: Floats, y: Labels) -> None:
        self._bag = list(dict.fromkeys(bag))
        self._x = x
        self._y = y
        self._fitted: dict[int, Decide] = {}
        self._voters: dict[bytes, VoterWeights] = {}

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

    def _of(self, present: NDArray[np.bool_]) -> VoterWeights:
        key = present.tobytes()
        if key not in self._voters:
            self._voters[key] = VoterWeights(self._bag, present)
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


# How old and how thin a sample is, if it is of this origin; and what it was when it was fresh.
#
# Ratios of two indicators do not change by dilution and change with age at a known rate, so all
# pairs together, against all reference samples of the origin, give the age by least squares; then
# what all indicators lack gives the dilution. Both are sums that can be made once for the reference
# and used for any number of samples at a time.

#: No sample is younger than fresh; and later than this little is left that could tell its age.
#: Two indicators that fade almost alike give any age at all, which these bounds catch.
MAX_SAMPLE_HOURS: Final = 300.0
#: Samples whose pairs of indicators are looked at together: as many as a processor's cache holds.
_TOGETHER: Final = 256


@dataclass(frozen=True, slots=True)
class ReferenceStatistics:
    """What has to be known of the reference samples of one origin."""

    both: Floats  #: how many have a and b
    ratios: Floats  #: their sums of log10(a / b)
    counts: Floats  #: how many have a
    sums: Floats  #: of a
    logs: Floats  #: the mean of log10(a)


def reference_statistics(values: Floats) -> ReferenceStatistics:
    there = (values > 0).astype(np.float64)
    logs = np.log10(values, where=values > 0, out=np.zeros_like(values))
    both = there.T @ there
    sums = logs.T @ there
    counts = there.sum(axis=0)
    return ReferenceStatistics(
        both,
        sums - sums.T,
        counts,
        np.where(values > 0, values, 0.0).sum(axis=0),
        np.divide(logs.sum(axis=0), counts, where=counts > 0, out=np.zeros_like(counts)),
    )


@dataclass(frozen=True, slots=True)
class CorrectedSamples:
    values: Floats
    hours: Floats
    dilutions: Floats
    misfit: Floats  #: mean squared difference to the reference, in orders of magnitude


def correct_samples(
    samples: Floats, slopes: Floats, known: ReferenceStatistics
) -> CorrectedSamples:
    """Take age and dilution back. `slopes` is by sample and indicator; unknown ones are NaN."""
    there = (samples > 0) & np.isfinite(slopes)
    logs = np.log10(samples, where=there, out=np.zeros_like(samples))
    k = np.where(there, slopes, 0.0)
    hours = np.empty(len(samples))
    for start in range(0, len(samples), _TOGETHER):
        part = slice(start, start + _TOGETHER)
        hours[part] = _hours(logs[part], k[part], there[part], known)
    used = there & (known.counts > 0)
    fading = k * hours[:, None]
    dilutions = _dilutions(np.where(used, samples, 0.0), fading, known)
    values = samples / np.power(10.0, np.nan_to_num(slopes) * hours[:, None]) * dilutions[:, None]
    off = np.where(used, logs - fading + np.log10(dilutions)[:, None] - known.logs, 0.0)
    misfit = (off**2).sum(axis=1) / np.maximum(used.sum(axis=1), 1)
    return CorrectedSamples(values, hours, dilutions, misfit)


def uncorrected_samples(samples: Floats) -> CorrectedSamples:
    """As they came: what correction has to be better than."""
    none = np.zeros(len(samples))
    return CorrectedSamples(samples, none, none + 1.0, none)


def _hours(logs: Floats, k: Floats, there: NDArray[np.bool_], known: ReferenceStatistics) -> Floats:
    """Least squares of (k_a - k_b) t = log10(v_a / v_b) - log10(u_a / u_b), over pairs and rows."""
    pairs = there[:, :, None] & there[:, None, :]
    c = np.where(pairs, k[:, :, None] - k[:, None, :], 0.0)
    seen = known.both * (logs[:, :, None] - logs[:, None, :]) - known.ratios
    above = (c * seen).sum(axis=(1, 2))
    below = (known.both * c**2).sum(axis=(1, 2))
    hours = np.divide(above, below, where=below > 0, out=np.zeros_like(above))
    return np.asarray(np.clip(hours, 0.0, MAX_SAMPLE_HOURS))


def _dilutions(samples: Floats, fading: Floats, known: ReferenceStatistics) -> Floats:
    """Least squares of v_a d = u_a 10^(k_a t), over indicators and rows."""
    above = (samples * np.power(10.0, fading) * known.sums).sum(axis=1)
    below = (known.counts * samples**2).sum(axis=1)
    found = np.divide(above, below, where=below > 0, out=np.ones_like(above))
    return np.where(np.isfinite(found) & (found > 0), found, 1.0)
