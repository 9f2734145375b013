"""What the methods are worth beside each other, on the same simulated samples of kept-back base.

The vote of models stands beside the same vote without taking age and dilution back, the other
method, and saying "human" each time; each with how often it says anything at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from penstock.jobs.science.ageing import Coefficients
from penstock.jobs.science.boosted import SCHEME, Boosted
from penstock.jobs.science.classifiers import CONFIGURATIONS, Configuration
from penstock.jobs.science.matrix import Matrix
from penstock.jobs.science.model import FRESH, Model, build, searches, unbuilt
from penstock.jobs.science.prediction import Predictor
from penstock.jobs.science.validation import Score, validate

#: Of the ways to weigh votes, the one that is reported.
_WEIGHED: Final = "ERROR2"
#: Simulated samples have so many.
_INDICATORS: Final = range(2, 6)


def compare(
    matrix: Matrix,
    coefficients: Coefficients,
    *,
    configurations: Sequence[Configuration] = CONFIGURATIONS,
    samples: int = 1000,
    seed: int = 1,
    boosted: bool = True,
) -> Iterator[Score]:
    """Each as soon as it is known."""
    built: dict[tuple[str, ...], Model] = {}

    def vote(part: Matrix, k: Coefficients) -> Predictor:
        model = unbuilt(part, k, seed)
        built[part.samples] = build(model, searches(FRESH, configurations))
        return Predictor(built[part.samples])

    def uncorrected(part: Matrix, k: Coefficients) -> Predictor:
        return Predictor(built[part.samples], corrects=False)

    def other(part: Matrix, k: Coefficients) -> Boosted:
        return Boosted(part, k, seed=seed)

    found = validate(matrix, coefficients, vote, samples=samples, seed=seed)
    yield replace(found[_WEIGHED], name="vote of models")
    plain = validate(matrix, coefficients, uncorrected, samples=samples, seed=seed)
    yield replace(plain[_WEIGHED], name="no correction")
    if boosted:
        scores = validate(matrix, coefficients, other, samples=samples, seed=seed)
        yield replace(scores[SCHEME], name="boosted")
    yield replace(found["ALWAYS_HUMAN"], name="always human")


def heading() -> str:
    return _row("", "coverage", "error", [f"with {number}" for number in _INDICATORS])


def line(score: Score) -> str:
    """Coverage, error, and how often it is right by how many indicators were counted."""
    by_number = (score.accuracy_with(number) for number in _INDICATORS)
    right = ["–" if each is None else f"{each:.1%}" for each in by_number]
    return _row(score.name, f"{score.coverage:.1%}", f"{score.error:.1%}", right)


def _row(name: str, coverage: str, error: str, others: Sequence[str]) -> str:
    return f"{name:<16}" + "".join(f"{cell:>9}" for cell in (coverage, error, *others))
