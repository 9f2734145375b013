"""What came of a prediction: as a response carries it, and as a command prints it."""

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

#: As wide as R prints a table before it goes on below.
_WIDTH: Final = 80


def prediction_table(matrix: SampleMatrix, found: SourcePredictions) -> dict[str, tuple[str, ...]]:
    """What was counted, what each hypothesis made of it, and the verdict."""

    def column(values: NDArray[np.floating[Any] | np.integer[Any]]) -> tuple[str, ...]:
        return tuple("" if np.isnan(value) else f"{value:.6g}" for value in values)

    columns = {name: column(matrix.values[:, at]) for at, name in enumerate(INDICATORS)}
    columns[SAMPLE] = matrix.samples
    for name, verdict in (("HM", found.human), ("AN", found.animal)):
        columns[f"t{name}"] = column(verdict.hours)
        columns[f"d{name}"] = column(verdict.dilutions)
        columns[f"PRED{name}"] = column(verdict.classes)
    columns["PRED"] = column(found.classes)
    return columns


def explanation(found: SourcePredictions) -> dict[str, tuple[str, ...]]:
    """What a microbiologist asks next: how sure, how old, how thin, and by what."""
    named = {HUMAN: "human", ANIMAL: "animal", 0: ""}
    return {
        "origin": tuple(named[int(each)] for each in found.classes),
        "confidence": tuple(f"{each:.3f}" for each in found.confidence),
        "hours": tuple(f"{each:.0f}" for each in found.hours),
        "dilution": tuple(f"{each:.3g}" for each in found.dilutions),
        "decided by": tuple(", ".join(each[:5]) for each in found.deciding),
    }


def prediction_result(matrix: SampleMatrix, found: SourcePredictions) -> VoteResult:
    """The original's table, and what explains it in further columns."""
    counts = confusion(matrix.origins, found.classes)
    return VoteResult(
        found.scheme,
        len(matrix),
        found.predicted,
        _error(matrix, found),
        {**prediction_table(matrix, found), **explanation(found)},
        {"-1": (int(counts[0, 0]), int(counts[1, 0])), "1": (int(counts[0, 1]), int(counts[1, 1]))},
    )


def _error(matrix: SampleMatrix, found: SourcePredictions) -> float:
    if not found.predicted:
        return 0.0
    said = found.classes != 0
    return float((found.classes[said] != matrix.origins[said]).mean())


def prediction_lines(name: str, matrix: SampleMatrix, found: SourcePredictions) -> Iterator[str]:
    """As the original prints it, for programs that read that."""
    counts = confusion(matrix.origins, found.classes)
    error = f"{100 * _error(matrix, found):.4g}%"
    yield "Table:"
    yield from data_frame(prediction_table(matrix, found))
    yield "Summary:"
    yield f"{found.predicted} test samples predicted out of {len(matrix)}"
    yield "Confusion matrix (real\\pred):"
    yield from data_frame({"-1": map(str, counts[:, 0]), "1": map(str, counts[:, 1])}, ("-1", "1"))
    yield f"Test error: {error}"
    cells = " ".join(map(str, counts.reshape(-1)))
    yield f"{name}-{found.scheme}: {found.predicted}/{len(matrix)}, {cells}, {error}"


def data_frame(columns: Mapping[str, Iterable[str]], rows: Sequence[str] = ()) -> Iterator[str]:
    """Columns side by side as R has them: right-aligned, below each other where they are many."""
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
