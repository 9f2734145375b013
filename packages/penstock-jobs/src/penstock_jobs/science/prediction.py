"""Prediction of the origin: two hypotheses, up to ten voters for each, the more certain one wins.

The votes are weighted in three ways (`SCHEMES`), and all three results are returned. If both
hypotheses are equally certain, the one wins that the sample fits better after the correction of its
age and dilution.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock_jobs.science.calibration import (
    SourceCalibration,
    calibration_inputs,
    human_share,
)
from penstock_jobs.science.classifiers import Decide, Labels, fit
from penstock_jobs.science.indicators import ANIMAL, FEATURES, HUMAN
from penstock_jobs.science.matrix import Floats, features
from penstock_jobs.science.model import ModelCell, Signature, SourceModel, suitable

HYPOTHESES: Final = (HUMAN, ANIMAL)


@dataclass(frozen=True, slots=True)
class HypothesisVerdict:
    """The result under one hypothesis; class 0: no model applies."""

    classes: Labels
    confidence: Floats
    hours: Floats
    dilutions: Floats
    misfit: Floats


@dataclass(frozen=True, slots=True)
class SourcePredictions:
    """The predictions of one scheme for all samples."""

    scheme: str
    human: HypothesisVerdict
    animal: HypothesisVerdict
    classes: Labels  #: 0: no prediction
    confidence: Floats
    hours: Floats
    dilutions: Floats
    deciding: tuple[tuple[str, ...], ...]  #: the features that voted, most weight first
    #: Samples whose data does not tell, of those without a prediction; None: not calibrated.
    undecided: NDArray[np.bool_] | None = None

    @property
    def predicted(self) -> int:
        return int((self.classes != 0).sum())


#: Of a prediction that reports its progress.
_BLOCKS: Final = 100
JudgedCallback = Callable[[int, dict[str, int]], None]


def _joined(parts: Sequence[SourcePredictions]) -> SourcePredictions:
    def column(name: str) -> Any:
        return np.concatenate([getattr(each, name) for each in parts])

    def verdict(name: str) -> HypothesisVerdict:
        verdicts = [getattr(each, name) for each in parts]
        return HypothesisVerdict(
            *(
                np.concatenate([getattr(each, field.name) for each in verdicts])
                for field in fields(HypothesisVerdict)
            )
        )

    return SourcePredictions(
        parts[0].scheme,
        verdict("human"),
        verdict("animal"),
        column("classes"),
        column("confidence"),
        column("hours"),
        column("dilutions"),
        tuple(each for part in parts for each in part.deciding),
        None if parts[0].undecided is None else column("undecided"),
    )


class SourcePredictor:
    """Fits each classifier once, on first use."""

    def __init__(self, model: SourceModel, *, corrects: bool = True) -> None:
        """Without correction it is a baseline."""
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
        """By scheme."""
        when = np.asarray(seasons, dtype=np.intp)
        slopes = self._model.coefficients.slopes[when]
        found: dict[int, tuple[CorrectedSamples, Ballot]] = {}
        for origin in HYPOTHESES:
            if self._corrects:
                corrected = correct_samples(values, slopes, self._known[origin])
            else:
                corrected = uncorrected_samples(values)
            found[origin] = corrected, self._vote(corrected, values, when)
        predictions = {scheme: _verdict(scheme, found) for scheme in SCHEMES}
        calibration = self._model.calibration
        if calibration is None or not self._corrects:
            return predictions
        indicators = np.isfinite(values).sum(axis=1)
        return {
            scheme: _calibrated(each, calibration, indicators)
            for scheme, each in predictions.items()
        }

    def predict_in_blocks(
        self, values: Floats, seasons: Sequence[int], judged: JudgedCallback
    ) -> dict[str, SourcePredictions]:
        """As `predict`; `judged` is called up to a hundred times, with the number of samples so far
        and, by scheme, of those with a prediction."""
        size = max(1, -(-len(values) // _BLOCKS))
        blocks: list[dict[str, SourcePredictions]] = []
        predicted = dict.fromkeys(SCHEMES, 0)
        for start in range(0, len(values), size):
            block = self.predict(values[start : start + size], seasons[start : start + size])
            for scheme, each in block.items():
                predicted[scheme] += each.predicted
            blocks.append(block)
            judged(min(start + size, len(values)), predicted)
        if len(blocks) < 2:
            return blocks[0] if blocks else self.predict(values, seasons)
        return {scheme: _joined([each[scheme] for each in blocks]) for scheme in SCHEMES}

    def _vote(self, corrected: CorrectedSamples, values: Floats, when: NDArray[np.intp]) -> Ballot:
        ballot = Ballot(len(values))
        nearest, cells = self._nearest(corrected.hours, when)
        for number, cell in enumerate(cells):
            rows = np.flatnonzero(nearest == number)
            if not len(rows):
                continue
            if cell.section:  # models of this age: correct the dilution only
                fresh = values[rows] * corrected.dilutions[rows, None]
            else:
                fresh = corrected.values[rows]
            self._panels[cell].vote(features(fresh), rows, ballot)
        return ballot

    def _nearest(
        self, hours: Floats, when: NDArray[np.intp]
    ) -> tuple[NDArray[np.intp], list[ModelCell]]:
        """The cell nearest in age, of the same season if there is one."""
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


def verdict_inputs(predictions: SourcePredictions, indicators: NDArray[np.intp]) -> Floats:
    """What the calibration is computed from."""
    human, animal = predictions.human, predictions.animal
    shares = (
        human_share(human.classes, human.confidence),
        human_share(animal.classes, animal.confidence),
    )
    return calibration_inputs(shares, (human.misfit, animal.misfit), indicators)


def _calibrated(
    found: SourcePredictions, calibration: SourceCalibration, indicators: NDArray[np.intp]
) -> SourcePredictions:
    """The confidence is the probability that the answer is right; unlikely answers are none."""
    probability = calibration.human_probability(verdict_inputs(found, indicators))
    right = np.where(found.classes == HUMAN, probability, 1 - probability)
    right = np.where(found.classes == 0, 0.0, right)
    undecided = (found.classes != 0) & (right < calibration.threshold)
    classes = np.where(undecided, 0, found.classes).astype(np.int8)
    return replace(found, classes=classes, confidence=right, undecided=undecided)


SCHEMES: Final = ("MAJORITY_VOTE", "ERROR", "ERROR2")
VOTERS: Final = 10


def weights(scheme: str, scores: Sequence[float]) -> Floats:
    """The weights of votes; their sum is 1."""
    errors = 1 - np.array(scores)
    if scheme == "ERROR2":
        errors = errors**2
    count = len(errors)
    if scheme == "MAJORITY_VOTE" or count == 1 or errors.sum() == 0:
        return np.full(count, 1 / count)
    return np.asarray((1 - errors / errors.sum()) / (count - 1))


class VoterWeights:
    """The voters for samples with the same features present, and their weights."""

    __slots__ = ("deciding", "indices", "weights")

    def __init__(self, bag: Sequence[Signature], present: NDArray[np.bool_]) -> None:
        chosen = suitable(bag, present, VOTERS)
        indices = {each: at for at, each in enumerate(bag)}
        self.indices = [indices[each] for each in chosen]
        self.weights: dict[str, Floats] = {}
        self.deciding: dict[str, tuple[str, ...]] = {}
        for scheme in SCHEMES:
            share = np.zeros(VOTERS)
            if chosen:
                share[: len(chosen)] = weights(scheme, [each.score for each in chosen])
            self.weights[scheme] = share
            self.deciding[scheme] = _deciding(chosen, share)


def _deciding(chosen: Sequence[Signature], share: Floats) -> tuple[str, ...]:
    """The features of the voters, most weight first."""
    total: dict[str, float] = {}
    for voter, weight in zip(chosen, share, strict=False):
        for feature in voter.features:
            name = FEATURES[feature]
            total[name] = total.get(name, 0.0) + weight / len(voter.features)
    return tuple(sorted(total, key=lambda name: (-total[name], name)))


class Ballot:
    """The votes on each sample."""

    def __init__(self, samples: int) -> None:
        self.votes = np.zeros((samples, VOTERS), dtype=np.int8)  #: 0: no vote
        self._voters: list[VoterWeights] = []
        self._which = np.full(samples, -1, dtype=np.intp)

    def enter(self, rows: NDArray[np.intp], voters: VoterWeights) -> None:
        self._which[rows] = len(self._voters)
        self._voters.append(voters)

    def count(self, scheme: str, favoured: int) -> tuple[Labels, Floats]:
        """Classes and their confidence; a tie goes to the favoured class."""
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
    """The classifiers of one cell.

    Samples with the same features present have the same voters. Each classifier is called once for
    all its samples, because there are thousands of feature patterns and few classifiers.
    """

    def __init__(self, bag: Sequence[Signature], x: Floats, y: Labels) -> None:
        self._bag = list(dict.fromkeys(bag))
        self._x = x
        self._y = y
        self._fitted: dict[int, Decide] = {}
        self._voters: dict[bytes, VoterWeights] = {}

    def vote(self, x: Floats, rows: NDArray[np.intp], ballot: Ballot) -> None:
        """`x` are the samples in the given rows of the ballot."""
        present = np.isfinite(x)
        _, first, which = np.unique(_codes(present), return_index=True, return_inverse=True)
        patterns = present[first]
        order = np.argsort(which, kind="stable")
        groups = np.split(order, np.searchsorted(which[order], np.arange(1, len(patterns))))
        calls: dict[int, list[tuple[NDArray[np.intp], int]]] = {}
        for present, group in zip(patterns, groups, strict=True):
            voters = self._of(present)
            if voters.indices:
                ballot.enter(rows[group], voters)
            for slot, index in enumerate(voters.indices):
                calls.setdefault(index, []).append((group, slot))
        for index, parts in calls.items():
            judged = np.concatenate([group for group, _ in parts])
            slots = np.repeat([slot for _, slot in parts], [len(group) for group, _ in parts])
            columns = self._bag[index].features
            ballot.votes[rows[judged], slots] = self._decide(index)(x[judged][:, columns])

    def _of(self, present: NDArray[np.bool_]) -> VoterWeights:
        key = present.tobytes()
        if key not in self._voters:
            self._voters[key] = VoterWeights(self._bag, present)
        return self._voters[key]

    def _decide(self, index: int) -> Decide:
        found = self._fitted.get(index)
        if found is None:
            signature = self._bag[index]
            x = self._x[:, signature.features]
            whole = np.isfinite(x).all(axis=1)
            found = fit(signature.configuration, x[whole], self._y[whole])
            self._fitted[index] = found
        return found


def _codes(present: NDArray[np.bool_]) -> NDArray[np.uint32]:
    """The present features as a number: numbers sort much faster than rows."""
    bits = np.zeros((len(present), 32), dtype=np.bool_)
    bits[:, : present.shape[1]] = present
    return np.packbits(bits, axis=1).view(">u4").reshape(-1).astype(np.uint32)


#: The upper limit of an age. Two indicators with almost the same slope can yield any age.
MAX_SAMPLE_HOURS: Final = 300.0
#: Samples per block, so that their pairs of indicators fit the processor's cache.
_BLOCK: Final = 256


@dataclass(frozen=True, slots=True)
class ReferenceStatistics:
    """Sums over the reference samples of one origin."""

    both: Floats  #: number of samples with a and b
    ratios: Floats  #: their sums of log10(a / b)
    counts: Floats  #: number of samples with a
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
    """Estimate and revert age and dilution. `slopes` is by sample and indicator; NaN: unknown.

    Dilution does not change the ratio of two indicators, and age changes it at a known rate. So all
    pairs, compared with all reference samples, give the age by least squares; the indicators then
    give the dilution.
    """
    there = (samples > 0) & np.isfinite(slopes)
    logs = np.log10(samples, where=there, out=np.zeros_like(samples))
    k = np.where(there, slopes, 0.0)
    hours = np.empty(len(samples))
    for start in range(0, len(samples), _BLOCK):
        part = slice(start, start + _BLOCK)
        hours[part] = _hours(logs[part], k[part], there[part], known)
    used = there & (known.counts > 0)
    decay = k * hours[:, None]
    dilutions = _dilutions(np.where(used, samples, 0.0), decay, known)
    values = samples / np.power(10.0, np.nan_to_num(slopes) * hours[:, None]) * dilutions[:, None]
    off = np.where(used, logs - decay + np.log10(dilutions)[:, None] - known.logs, 0.0)
    misfit = (off**2).sum(axis=1) / np.maximum(used.sum(axis=1), 1)
    return CorrectedSamples(values, hours, dilutions, misfit)


def uncorrected_samples(samples: Floats) -> CorrectedSamples:
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


def _dilutions(samples: Floats, decay: Floats, known: ReferenceStatistics) -> Floats:
    """Least squares of v_a d = u_a 10^(k_a t), over indicators and rows."""
    above = (samples * np.power(10.0, decay) * known.sums).sum(axis=1)
    below = (known.counts * samples**2).sum(axis=1)
    found = np.divide(above, below, where=below > 0, out=np.ones_like(above))
    return np.where(np.isfinite(found) & (found > 0), found, 1.0)
