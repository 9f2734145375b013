"""Matrices of samples: from the text of a CSV or a request to numbers.

All cells that cannot be parsed are reported, each by row and column; row 1 has the names.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from penstock_jobs.errors import DatasetError, DatasetProblem
from penstock_jobs.science.indicators import (
    AT,
    DIFFERENCES,
    FEATURES,
    INDICATORS,
    RATIO,
    SAMPLE,
    SEASON,
    SHARES,
    SUMS,
    UNUSED,
    Season,
    column_name,
    origin,
    season,
)

Floats = NDArray[np.float64]

#: Of a CSV: fifty thousand samples in twenty columns.
MAX_CELLS: Final = 1_000_000
_NUMBER: Final = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?")
#: A value below the detection limit is taken as this fraction of the limit.
_CENSORED: Final = 100.0


@dataclass(frozen=True, slots=True)
class SampleMatrix:
    samples: tuple[str, ...]
    values: Floats  #: samples x indicators; missing is NaN
    seasons: tuple[Season, ...]

    @property
    def origins(self) -> NDArray[np.int8]:
        return np.array([origin(sample) for sample in self.samples], dtype=np.int8)

    def __len__(self) -> int:
        return len(self.samples)

    def take(self, rows: NDArray[np.intp]) -> SampleMatrix:
        return SampleMatrix(
            tuple(self.samples[row] for row in rows),
            self.values[rows],
            tuple(self.seasons[row] for row in rows),
        )


def decode_text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def read_csv(data: bytes, *, foreign: bool = False) -> dict[str, tuple[str, ...]]:
    """The columns as text; cells are separated by `;` and may be quoted. With `foreign`, columns
    with unknown names are read, too; otherwise they are refused as mistakes."""
    text = decode_text(data)
    if "\0" in text:
        raise DatasetError([DatasetProblem(1, "", "no text; use a CSV in UTF-8 or Latin-1")])
    if text.count(";") + text.count("\n") > MAX_CELLS:
        raise DatasetError([DatasetProblem(0, "", f"more than {MAX_CELLS:,} cells")])
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=";"))
    while rows and not any(cell.strip() for cell in rows[-1]):
        rows.pop()
    if not rows:
        raise DatasetError([DatasetProblem(1, "", "the file is empty")])
    names = [column_name(name) for name in rows[0]]
    _check_names(names, foreign)
    problems = [
        DatasetProblem(at, "", f"{len(row)} cells, but {len(names)} columns")
        for at, row in enumerate(rows[1:], 2)
        if len(row) != len(names)
    ]
    if problems:
        raise DatasetError(problems)
    return {name: tuple(row[at].strip() for row in rows[1:]) for at, name in enumerate(names)}


def _check_names(names: list[str], foreign: bool = False) -> None:
    if len(names) == 1 and re.search(r"[,\t]", names[0]):
        raise DatasetError(
            [DatasetProblem(1, names[0], "only one column: cells must be separated by ';'")]
        )
    known = {SAMPLE, SEASON, *INDICATORS, *UNUSED}
    problems = [
        DatasetProblem(1, name, "unknown column" if name else "a column without a name")
        for name in names
        if not name or not (foreign or name in known)
    ]
    problems += [
        DatasetProblem(1, name, "two columns have this name")
        for name, times in Counter(names).items()
        if times > 1
    ]
    if SAMPLE not in names:
        problems.append(DatasetProblem(1, SAMPLE, "the column with the sample ids is missing"))
    if problems:
        raise DatasetError(problems)


def prepare(columns: Mapping[str, tuple[str, ...]]) -> SampleMatrix:
    """The indicators as absolute numbers; shares and values below detection are converted."""
    named = {column_name(name): cells for name, cells in columns.items()}
    _check_names(list(named), foreign=True)
    samples = tuple(cell.strip() for cell in named[SAMPLE])
    problems: list[DatasetProblem] = []
    values = np.full((len(samples), len(INDICATORS)), np.nan)
    for name, cells in named.items():
        if len(cells) > len(samples):
            problems.append(DatasetProblem(len(samples) + 2, name, "a cell without a sample"))
        elif name in AT:
            for row, cell in enumerate(cells):
                value = parse_cell(cell)
                if value is None:
                    problems.append(
                        DatasetProblem(row + 2, name, f"{cell.strip()!r} is not a number")
                    )
                else:
                    values[row, AT[name]] = value
    problems += [
        DatasetProblem(row + 2, SAMPLE, "a sample without an id")
        for row, sample in enumerate(samples)
        if not sample
    ]
    seasons = _seasons(named.get(SEASON, ()), len(samples), problems)
    if problems:
        raise DatasetError(sorted(problems))
    for share in SHARES:
        values[:, AT[share]] *= values[:, AT["FRNAPH"]] / 100
    return SampleMatrix(samples, values, seasons)


def parse_cell(cell: str) -> float | None:
    """NaN for an empty cell, None for an invalid one."""
    text = cell.strip()
    if not text:
        return math.nan
    censored = text.startswith("<")
    text = text.removeprefix("<").strip()
    if not _NUMBER.fullmatch(text):
        return None
    value = float(text.replace(",", "."))
    if not math.isfinite(value) or value < 0:
        return None
    return value / _CENSORED if censored else value


def _seasons(
    cells: tuple[str, ...], samples: int, problems: list[DatasetProblem]
) -> tuple[Season, ...]:
    found = [Season.SUMMER] * samples
    for row, cell in enumerate(cells[:samples]):
        if cell.strip():
            known = season(cell)
            if known is None:
                problems.append(
                    DatasetProblem(row + 2, SEASON, f"{cell.strip()!r} is not a season")
                )
            else:
                found[row] = known
    return tuple(found)


def logarithm(values: Floats) -> Floats:
    """log10; 0 stays 0, missing stays missing."""
    logs = np.log10(values, where=values > 0, out=np.zeros_like(values))
    return np.where(np.isnan(values), np.nan, logs)


def features(values: Floats) -> Floats:
    """Logarithms, their sums, differences and a ratio: samples x features; NaN if a part is."""
    logs = logarithm(values)
    matrix = np.empty((len(values), len(FEATURES)))
    matrix[:, : len(AT)] = logs
    at = len(AT)
    for one, other in SUMS.values():
        matrix[:, at] = logs[:, AT[one]] + logs[:, AT[other]]
        at += 1
    for one, other in DIFFERENCES.values():
        matrix[:, at] = logs[:, AT[one]] - logs[:, AT[other]]
        at += 1
    assert FEATURES[at] == RATIO
    young, total = values[:, AT["HBSA.Y"]], values[:, AT["HBSA.T"]]
    both = (young > 0) & (total > 0)
    ratio = np.divide(young, total, where=both, out=np.ones_like(young))
    matrix[:, at] = np.where(both, np.log10(ratio), np.nan)
    return matrix
