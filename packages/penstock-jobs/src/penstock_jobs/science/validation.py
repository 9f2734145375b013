"""Validation of methods on samples whose base was held out.

The reference is split into folds by sample id. A method is built from all folds but one, and scored
on simulated samples of that one. It is compared with two baselines: "human" for every sample, and
the same method without the correction of age and dilution.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from penstock_jobs.science.boosted import SCHEME, BoostedPredictor
from penstock_jobs.science.calibration import (
    THRESHOLD,
    CalibrationReport,
    SourceCalibration,
    brier_score,
    expected_calibration_error,
    fit_weights,
    reliability,
)
from penstock_jobs.science.classifiers import CONFIGURATIONS, ClassifierConfiguration, Labels
from penstock_jobs.science.decay import DecayCoefficients
from penstock_jobs.science.indicators import ANIMAL, HUMAN
from penstock_jobs.science.matrix import Floats, SampleMatrix
from penstock_jobs.science.model import FRESH, SourceModel, build, new_model, searches
from penstock_jobs.science.prediction import SourcePredictions, SourcePredictor, verdict_inputs
from penstock_jobs.science.simulation import draw_samples

FOLDS: Final = 5


class PredictionMethod(Protocol):
    def predict(self, values: Floats, seasons: Sequence[int]) -> dict[str, SourcePredictions]: ...


MethodFactory = Callable[[SampleMatrix, DecayCoefficients], PredictionMethod]


@dataclass(frozen=True, slots=True)
class MethodScore:
    """The predictions of a scheme for samples of known origin."""

    name: str
    truth: Labels
    classes: Labels  #: 0: no prediction
    indicators: NDArray[np.intp]  #: their number in each sample
    confidence: Floats | None = None

    @property
    def calibration_error(self) -> float | None:
        """The expected difference between confidence and accuracy, of predictions."""
        return self._measured(expected_calibration_error)

    @property
    def brier(self) -> float | None:
        return self._measured(brier_score)

    def _measured(self, measure: Callable[[Floats, NDArray[np.bool_]], float]) -> float | None:
        decided = self.classes != 0
        if self.confidence is None or not decided.any():
            return None
        return measure(self.confidence[decided], self.classes[decided] == self.truth[decided])

    @property
    def coverage(self) -> float:
        return float((self.classes != 0).mean())

    @property
    def error(self) -> float:
        decided = self.classes != 0
        wrong = self.classes[decided] != self.truth[decided]
        return float(wrong.mean()) if decided.any() else 1.0

    @property
    def confusion(self) -> NDArray[np.intp]:
        """Real by predicted class, animal first."""
        return confusion(self.truth, self.classes)

    def accuracy_with(self, indicators: int) -> float | None:
        among = (self.indicators == indicators) & (self.classes != 0)
        if not among.any():
            return None
        return float((self.classes[among] == self.truth[among]).mean())


def confusion(truth: Labels, classes: Labels) -> NDArray[np.intp]:
    return np.array(
        [
            [int(((truth == real) & (classes == predicted)).sum()) for predicted in (ANIMAL, HUMAN)]
            for real in (ANIMAL, HUMAN)
        ]
    )


def folds(matrix: SampleMatrix, seed: int) -> NDArray[np.intp]:
    """By id: samples with the same id are in the same fold."""
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
    """The scores of each scheme over all folds, and of `ALWAYS_HUMAN`."""
    fold = folds(matrix, seed)
    classes: dict[str, list[Labels]] = {}
    confidence: dict[str, list[Floats]] = {}
    truths: list[Labels] = []
    counted: list[NDArray[np.intp]] = []
    for number in range(FOLDS):
        used, held_out = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        method = make(matrix.take(used), coefficients)
        drawn = draw_samples(matrix.values[held_out], coefficients, samples // FOLDS, seed, number)
        for scheme, found in method.predict(drawn.values, drawn.seasons.tolist()).items():
            classes.setdefault(scheme, []).append(found.classes)
            confidence.setdefault(scheme, []).append(found.confidence)
        truths.append(matrix.origins[held_out][drawn.rows])
        counted.append(np.isfinite(drawn.values).sum(axis=1))
    truth, indicators = np.concatenate(truths), np.concatenate(counted)
    classes["ALWAYS_HUMAN"] = [np.full(len(truth), HUMAN, dtype=np.int8)]
    return {
        name: MethodScore(
            name,
            truth,
            np.concatenate(each),
            indicators,
            np.concatenate(confidence[name]) if name in confidence else None,
        )
        for name, each in classes.items()
    }


#: Simulated samples that a calibration is learned from.
CALIBRATION_SAMPLES: Final = 2_000


def calibrate(
    model: SourceModel, *, samples: int = CALIBRATION_SAMPLES
) -> SourceCalibration | None:
    """From simulated samples of held-out rows: classifiers are fitted without them. The report is
    cross-fitted: each fold is judged by a calibration of the others. None if nothing is predicted.
    """
    matrix, coefficients, seed = model.matrix, model.coefficients, model.seed
    fold = folds(matrix, seed)
    drawn_folds: list[NDArray[np.intp]] = []
    inputs: list[Floats] = []
    truths: list[Labels] = []
    votes: list[SourcePredictions] = []
    for number in range(FOLDS):
        held_out = np.flatnonzero(fold == number)
        part = replace(model, matrix=matrix.take(np.flatnonzero(fold != number)), calibration=None)
        drawn = draw_samples(
            matrix.values[held_out], coefficients, samples // FOLDS, seed + 1, number
        )
        found = SourcePredictor(part).predict(drawn.values, drawn.seasons.tolist())[_SCHEME]
        inputs.append(verdict_inputs(found, np.isfinite(drawn.values).sum(axis=1)))
        truths.append(matrix.origins[held_out][drawn.rows])
        votes.append(found)
        drawn_folds.append(np.full(len(drawn), number))
    x, truth, of = np.vstack(inputs), np.concatenate(truths), np.concatenate(drawn_folds)
    classes = np.concatenate([each.classes for each in votes])
    raw = np.concatenate([each.confidence for each in votes])
    some = classes != 0
    if len(set(truth[some].tolist())) < 2:
        return None
    after = np.zeros(len(truth))
    for number in range(FOLDS):
        judged, learned = some & (of == number), some & (of != number)
        if judged.any() and len(set(truth[learned].tolist())) == 2:
            weights = np.array(fit_weights(x[learned], truth[learned] == HUMAN))
            human = 1 / (1 + np.exp(-(x[judged] @ weights)))
            after[judged] = np.where(classes[judged] == HUMAN, human, 1 - human)
    right = classes[some] == truth[some]
    decided = after[some] >= THRESHOLD
    report = CalibrationReport(
        tuple(expected_calibration_error(each[some], right) for each in (raw, after)),  # type: ignore[arg-type]
        (brier_score(raw[some], right), brier_score(after[some], right)),
        reliability(raw[some], right),
        reliability(after[some], right),
        float(decided.sum() / len(truth)),
        float(right[decided].mean()) if decided.any() else 0.0,
    )
    return SourceCalibration(fit_weights(x[some], truth[some] == HUMAN), report)


#: The reported voting scheme.
_SCHEME: Final = "ERROR2"
#: Numbers of indicators that are reported.
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
    """The vote, also calibrated and without correction; boosted trees; "human" for all samples."""
    built: dict[tuple[str, ...], SourceModel] = {}

    def vote(part: SampleMatrix, k: DecayCoefficients) -> SourcePredictor:
        model = new_model(part, k, seed)
        built[part.samples] = build(model, searches(FRESH, configurations))
        return SourcePredictor(built[part.samples])

    def calibrated(part: SampleMatrix, k: DecayCoefficients) -> SourcePredictor:
        model = built[part.samples]
        return SourcePredictor(replace(model, calibration=calibrate(model)))

    def uncorrected(part: SampleMatrix, k: DecayCoefficients) -> SourcePredictor:
        return SourcePredictor(built[part.samples], corrects=False)

    def boost(part: SampleMatrix, k: DecayCoefficients) -> BoostedPredictor:
        return BoostedPredictor(part, k, seed=seed)

    scores = validate(matrix, coefficients, vote, samples=samples, seed=seed)
    yield replace(scores[_SCHEME], name="vote of models")
    sure = validate(matrix, coefficients, calibrated, samples=samples, seed=seed)
    yield replace(sure[_SCHEME], name="calibrated vote")
    baseline = validate(matrix, coefficients, uncorrected, samples=samples, seed=seed)
    yield replace(baseline[_SCHEME], name="no correction")
    if boosted:
        trees = validate(matrix, coefficients, boost, samples=samples, seed=seed)
        yield replace(trees[SCHEME], name="boosted")
    yield replace(scores["ALWAYS_HUMAN"], name="always human")


def comparison_heading() -> str:
    others = ["ECE", "Brier", *(f"with {number}" for number in _INDICATORS)]
    return _comparison_row("", "coverage", "error", others)


def comparison_line(score: MethodScore) -> str:
    """Coverage, error, calibration, and the accuracy by the number of indicators."""
    by_number = (score.accuracy_with(number) for number in _INDICATORS)
    others = [
        "–" if each is None else f"{each:.3f}" for each in (score.calibration_error, score.brier)
    ]
    others += ["–" if each is None else f"{each:.1%}" for each in by_number]
    return _comparison_row(score.name, f"{score.coverage:.1%}", f"{score.error:.1%}", others)


def _comparison_row(name: str, coverage: str, error: str, others: Sequence[str]) -> str:
    return f"{name:<16}" + "".join(f"{cell:>9}" for cell in (coverage, error, *others))
