"""Predictions as tables: for responses, and as text in the layout of R."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock_jobs.model import VoteResult
from penstock_jobs.science.indicators import ANIMAL, HUMAN, INDICATORS, SAMPLE
from penstock_jobs.science.matrix import SampleMatrix
from penstock_jobs.science.prediction import SourcePredictions
from penstock_jobs.science.validation import confusion

#: The width at which R continues a table below.
_WIDTH: Final = 80
#: The columns of `explanation`, which the Ichnaea script does not have.
_EXPLANATION: Final = ("origin", "confidence", "hours", "dilution", "decided by")


def prediction_table(
    matrix: SampleMatrix, predictions: SourcePredictions
) -> dict[str, tuple[str, ...]]:
    """The counts, the verdict of each hypothesis, and the prediction."""

    def column(values: NDArray[np.floating[Any] | np.integer[Any]]) -> tuple[str, ...]:
        return tuple("" if np.isnan(value) else f"{value:.6g}" for value in values)

    columns = {name: column(matrix.values[:, at]) for at, name in enumerate(INDICATORS)}
    columns[SAMPLE] = matrix.samples
    for name, verdict in (("HM", predictions.human), ("AN", predictions.animal)):
        columns[f"t{name}"] = column(verdict.hours)
        columns[f"d{name}"] = column(verdict.dilutions)
        columns[f"PRED{name}"] = column(verdict.classes)
    columns["PRED"] = column(predictions.classes)
    return columns


def explanation(predictions: SourcePredictions) -> dict[str, tuple[str, ...]]:
    """Confidence, age, dilution and deciding features of each sample."""
    named = {HUMAN: "human", ANIMAL: "animal", 0: ""}
    undecided = predictions.undecided
    columns = (
        tuple(
            "undecided" if undecided is not None and undecided[row] else named[int(each)]
            for row, each in enumerate(predictions.classes)
        ),
        tuple(f"{each:.3f}" for each in predictions.confidence),
        tuple(f"{each:.0f}" for each in predictions.hours),
        tuple(f"{each:.3g}" for each in predictions.dilutions),
        tuple(", ".join(each[:5]) for each in predictions.deciding),
    )
    return dict(zip(_EXPLANATION, columns, strict=True))


def prediction_result(matrix: SampleMatrix, predictions: SourcePredictions) -> VoteResult:
    """The table of the Ichnaea script, with the columns of the explanation."""
    counts = confusion(matrix.origins, predictions.classes)
    return VoteResult(
        predictions.scheme,
        len(matrix),
        predictions.predicted,
        _error(matrix, predictions),
        {**prediction_table(matrix, predictions), **explanation(predictions)},
        {"-1": (int(counts[0, 0]), int(counts[1, 0])), "1": (int(counts[0, 1]), int(counts[1, 1]))},
    )


def _error(matrix: SampleMatrix, predictions: SourcePredictions) -> float:
    if not predictions.predicted:
        return 0.0
    decided = predictions.classes != 0
    return float((predictions.classes[decided] != matrix.origins[decided]).mean())


def prediction_lines(
    name: str, matrix: SampleMatrix, predictions: SourcePredictions
) -> Iterator[str]:
    """In the format of the Ichnaea script, for programs that parse it."""
    counts = confusion(matrix.origins, predictions.classes)
    error = f"{100 * _error(matrix, predictions):.4g}%"
    yield "Table:"
    yield from data_frame(prediction_table(matrix, predictions))
    yield "Summary:"
    yield f"{predictions.predicted} test samples predicted out of {len(matrix)}"
    yield "Confusion matrix (real\\pred):"
    yield from data_frame({"-1": map(str, counts[:, 0]), "1": map(str, counts[:, 1])}, ("-1", "1"))
    yield f"Test error: {error}"
    cells = " ".join(map(str, counts.reshape(-1)))
    yield f"{name}-{predictions.scheme}: {predictions.predicted}/{len(matrix)}, {cells}, {error}"


def result_lines(name: str, result: VoteResult) -> Iterator[str]:
    """A received result in the same format, without the columns that the script does not have."""
    table = {
        name: cells for name, cells in (result.dataset or {}).items() if name not in _EXPLANATION
    }
    columns = result.confusion or {}
    counts = [columns.get(each, (0, 0)) for each in ("-1", "1")]
    error = "" if result.test_error is None else f"{100 * result.test_error:.4g}%"
    yield "Table:"
    yield from data_frame(table)
    yield "Summary:"
    yield f"{result.predicted_samples} test samples predicted out of {result.total_samples}"
    yield "Confusion matrix (real\\pred):"
    yield from data_frame({"-1": map(str, counts[0]), "1": map(str, counts[1])}, ("-1", "1"))
    yield f"Test error: {error}"
    cells = " ".join(str(column[row]) for row in range(2) for column in counts)
    samples = f"{result.predicted_samples}/{result.total_samples}"
    yield f"{name}-{result.name}: {samples}, {cells}, {error}"


def data_frame(columns: Mapping[str, Iterable[str]], rows: Sequence[str] = ()) -> Iterator[str]:
    """In the layout of R: right-aligned columns, in blocks below each other."""
    cells = {name: [each or "NA" for each in values] for name, values in columns.items()}
    count = len(next(iter(cells.values()), []))
    names = list(rows) or [str(number) for number in range(1, count + 1)]
    margin = max(map(len, names), default=0)
    part: list[list[str]] = []
    width = margin
    for name, values in cells.items():
        wide = max(len(text) for text in [name, *values])
        column = [text.rjust(wide) for text in [name, *values]]
        if part and width + 1 + wide > _WIDTH:
            yield from _rows(names, margin, part)
            part, width = [], margin
        part.append(column)
        width += 1 + wide
    if part:
        yield from _rows(names, margin, part)


def _rows(names: Sequence[str], margin: int, columns: list[list[str]]) -> Iterator[str]:
    for name, cells in zip(["", *names], zip(*columns, strict=True), strict=True):
        yield " ".join([name.ljust(margin), *cells])
