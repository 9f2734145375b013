"""Predefined matrices: the columns of a data set, and the check of each cell.

A column's name tells what its cells are: the id of a sample, a season, a percentage, a number, or,
under a name that the models do not use, any text.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from penstock.core.errors import ConfigurationError
from penstock_jobs.errors import DatasetError, DatasetProblem
from penstock_jobs.model import Dataset
from penstock_jobs.science.indicators import (
    INDICATORS,
    REFERENCE_COLUMNS,
    SAMPLE,
    SEASON,
    SHARES,
    UNUSED,
    column_name,
    season,
)
from penstock_jobs.science.matrix import MAX_CELLS, parse_cell

MAX_COLUMNS: Final = 200
NAME_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9_.\-]{0,99}$"
_NAME: Final = re.compile(NAME_PATTERN)


class CellKind(StrEnum):
    ID = "id"  #: Of a sample; a cell must not be empty.
    SEASON = "season"  #: Its name, or the position in the year.
    PERCENTAGE = "percentage"  #: 0 to 100.
    NUMBER = "number"  #: Not negative, with a decimal comma or point; `<20` is below detection.
    TEXT = "text"  #: Anything: the column is kept and not used.


def cell_kind(column: str) -> CellKind:
    name = column_name(column)
    if name == SAMPLE:
        return CellKind.ID
    if name == SEASON:
        return CellKind.SEASON
    if name in SHARES:
        return CellKind.PERCENTAGE
    return CellKind.NUMBER if name in INDICATORS or name in UNUSED else CellKind.TEXT


@dataclass(frozen=True, slots=True)
class DataMatrix:
    name: str
    title: str
    columns: tuple[str, ...]
    built_in: bool = False

    def __post_init__(self) -> None:
        check_name(self.name)
        names = [column_name(each) for each in self.columns]
        if not 2 <= len(names) <= MAX_COLUMNS:
            raise ConfigurationError(f"matrix {self.name!r}: must have 2 to {MAX_COLUMNS} columns")
        if names.count(SAMPLE) != 1:
            raise ConfigurationError(f"matrix {self.name!r}: needs a column {SAMPLE} for the ids")
        for name, times in Counter(names).items():
            if not name or times > 1:
                text = f"{times} columns are named {name!r}" if name else "a column has no name"
                raise ConfigurationError(f"matrix {self.name!r}: {text}")

    @property
    def kinds(self) -> tuple[CellKind, ...]:
        return tuple(cell_kind(each) for each in self.columns)


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"name {name!r}: must have 1 to 100 of A-Z, a-z, 0-9, '_.-'")


#: Where everybody starts; others are added by operators.
BUILT_IN: Final = {
    matrix.name: matrix
    for matrix in (
        DataMatrix(
            "indicators",
            "The indicators of the models, with the season",
            (SAMPLE, SEASON, *INDICATORS),
            built_in=True,
        ),
        DataMatrix(
            "phages", "Coliforms and phages only", (SAMPLE, "FC", "SOMCPH", "GA17"), built_in=True
        ),
        DataMatrix(
            "reference",
            "All columns of a reference matrix",
            (SAMPLE, *REFERENCE_COLUMNS),
            built_in=True,
        ),
    )
}


def check_rows(matrix: DataMatrix, rows: Sequence[Sequence[str]]) -> list[DatasetProblem]:
    """All problems, by row and column; row 1 has the names."""
    if len(rows) * len(matrix.columns) > MAX_CELLS:
        return [DatasetProblem(0, "", f"more than {MAX_CELLS:,} cells")]
    if not rows:
        return [DatasetProblem(2, "", "no samples")]
    problems = []
    kinds = matrix.kinds
    for number, row in enumerate(rows, 2):
        if len(row) > len(kinds):
            text = f"{len(row)} cells, but {len(kinds)} columns"
            problems.append(DatasetProblem(number, "", text))
        for at, kind in enumerate(kinds):
            cell = row[at].strip() if at < len(row) else ""
            if wrong := cell_problem(kind, cell):
                problems.append(DatasetProblem(number, column_name(matrix.columns[at]), wrong))
    return problems


def cell_problem(kind: CellKind, cell: str) -> str:
    """Why a cell cannot be used; empty if it can."""
    if kind is CellKind.TEXT:
        return "a cell must not have a zero byte" if "\0" in cell else ""
    if kind is CellKind.ID:
        return "" if cell and "\0" not in cell else "a sample without an id"
    if not cell:
        return ""
    if kind is CellKind.SEASON:
        return "" if season(cell) is not None else f"{cell!r} is not a season"
    value = parse_cell(cell)
    if value is None:
        return f"{cell!r} is not a number"
    if kind is CellKind.PERCENTAGE and not math.isnan(value) and value > 100:
        return f"{cell!r} is more than 100 %"
    return ""


def dataset_of(matrix: DataMatrix, rows: Sequence[Sequence[str]]) -> Dataset:
    """The columns; empty rows are left out. Raises `DatasetError` with all problems."""
    used = [row for row in rows if any(cell.strip() for cell in row)]
    if problems := check_rows(matrix, used):
        raise DatasetError(problems)
    return {
        column_name(name): tuple(row[at].strip() if at < len(row) else "" for row in used)
        for at, name in enumerate(matrix.columns)
    }


def rows_of(matrix: DataMatrix, columns: Dataset) -> list[list[str]]:
    """A data set in the order of the matrix, for columns it has."""
    count = max(map(len, columns.values()), default=0)
    ordered = [columns.get(column_name(name), ()) for name in matrix.columns]
    return [[cells[row] if row < len(cells) else "" for cells in ordered] for row in range(count)]


def rows_of_csv(matrix: DataMatrix, columns: Dataset) -> list[list[str]]:
    """As `rows_of`, for columns that must be those of the matrix."""
    names = {column_name(each) for each in matrix.columns}
    foreign = [
        DatasetProblem(1, name, f"no column of the matrix {matrix.name!r}")
        for name in columns
        if name not in names
    ]
    if foreign:
        raise DatasetError(foreign)
    return rows_of(matrix, columns)
