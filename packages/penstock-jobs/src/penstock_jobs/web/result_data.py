"""The figures and series of a result, without drawing.

Predictions are read from the table of a response, models from the zip.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from penstock_jobs.model import VoteResult
from penstock_jobs.science.calibration import CalibrationReport
from penstock_jobs.science.indicators import FEATURES, INDICATORS, SAMPLE, Season
from penstock_jobs.science.model import SourceModel

HUMAN, ANIMAL, UNDECIDED = "human", "animal", "undecided"


@dataclass(frozen=True, slots=True)
class ResultSample:
    name: str
    origin: str  #: human, animal, undecided, or empty where no model applies
    confidence: float
    hours: float
    dilution: float
    decided_by: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ResultPrediction:
    """The prediction of one voting scheme."""

    scheme: str
    samples: tuple[ResultSample, ...]
    predicted: int
    error: float | None
    #: Real animal and real human, each as predicted animal and predicted human.
    confusion: tuple[tuple[int, int], tuple[int, int]] | None

    def count(self, origin: str) -> int:
        return sum(sample.origin == origin for sample in self.samples)

    @property
    def deciding(self) -> list[tuple[str, int]]:
        """Features by the number of samples they decided, most first."""
        counts = Counter(name for sample in self.samples for name in sample.decided_by)
        return counts.most_common(12)


def read_prediction(result: VoteResult) -> ResultPrediction:
    columns = result.dataset or {}
    names = columns.get(SAMPLE, ())
    return ResultPrediction(
        result.name,
        tuple(_sample(columns, names, row) for row in range(len(names))),
        result.predicted_samples,
        result.test_error,
        _confusion(result.confusion),
    )


def _sample(columns: Mapping[str, Sequence[str]], names: Sequence[str], row: int) -> ResultSample:
    def cell(column: str) -> str:
        cells = columns.get(column, ())
        return cells[row] if row < len(cells) else ""

    origin = cell("origin") or {"1": HUMAN, "-1": ANIMAL}.get(cell("PRED"), "")
    side = "AN" if origin == ANIMAL else "HM"
    return ResultSample(
        names[row],
        origin,
        _number(cell("confidence")),
        _number(cell("hours") or cell(f"t{side}")),
        _number(cell("dilution") or cell(f"d{side}")),
        tuple(part.strip() for part in cell("decided by").split(",") if part.strip()),
    )


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def _confusion(
    counts: Mapping[str, Sequence[int]] | None,
) -> tuple[tuple[int, int], tuple[int, int]] | None:
    animal, human = (tuple((counts or {}).get(name, ())) for name in ("-1", "1"))
    if len(animal) != 2 or len(human) != 2:
        return None
    return (animal[0], human[0]), (animal[1], human[1])


@dataclass(frozen=True, slots=True)
class ModelFacts:
    samples: int
    cells: int
    signatures: int
    median_score: float
    perfect: int  #: signatures without an error in cross-validation
    best_by_classifier: list[tuple[str, float]]  #: best first
    features: list[tuple[str, int]]  #: most used first
    scores: list[tuple[str, int]]  #: a histogram
    #: Indicator, hours until 10 % are left in summer and in winter.
    decay: list[tuple[str, float | None, float | None]]
    calibration: CalibrationReport | None = None


def read_model_facts(model: SourceModel) -> ModelFacts:
    signatures = [each for bag in model.bags.values() for each in bag]
    best: dict[str, float] = {}
    for each in signatures:
        name = each.configuration.name
        best[name] = max(best.get(name, 0.0), each.score)
    used = Counter(FEATURES[at] for each in signatures for at in each.features)
    scores = [each.score for each in signatures]
    return ModelFacts(
        len(model.matrix),
        len(model.bags),
        len(signatures),
        median(scores) if scores else 0.0,
        sum(score >= 1.0 for score in scores),
        sorted(best.items(), key=lambda item: (-item[1], item[0])),
        used.most_common(12),
        _histogram(scores),
        [
            (name, _tenth_hours(model, Season.SUMMER, at), _tenth_hours(model, Season.WINTER, at))
            for at, name in enumerate(INDICATORS)
        ],
        None if model.calibration is None else model.calibration.report,
    )


def _histogram(scores: Sequence[float]) -> list[tuple[str, int]]:
    """In steps of 0.05, from the lowest score."""
    counted = Counter(min(int(score * 20 + 1e-9), 20) for score in scores)
    if not counted:
        return []
    return [(f"{at / 20:.2f}", counted.get(at, 0)) for at in range(min(counted), 21)]


def _tenth_hours(model: SourceModel, season: Season, at: int) -> float | None:
    slope = float(model.coefficients.of(season)[at])
    return -1 / slope if slope < 0 else None
