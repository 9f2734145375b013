"""Files that somebody hands in: checked at once, cell by cell, and made parts of a request.

Everything that is wrong with a data set is found in one go, each problem with its row and column,
so that a person mends the file once.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from penstock.core.units import MiB
from penstock.jobs import archive
from penstock.jobs.errors import DataError, FormError, Problem
from penstock.jobs.model import Aging, Agings, Dataset
from penstock.jobs.science.ageing import file_means, read_trials
from penstock.jobs.science.indicators import ANIMAL, HUMAN, INDICATORS
from penstock.jobs.science.matrix import Matrix, prepare, read_csv
from penstock.jobs.science.signatures import FOLDS

#: What a zip begins with.
_ZIP: Final = b"PK"
#: Of all trials, unpacked: a line of four bytes becomes objects of more than a hundred.
TRIALS_BYTES: Final = 4 * MiB
#: A data set of more cells is not looked at by eye.
PREVIEW_ROWS: Final = 200


class Purpose(Enum):
    """What a data set is for: a reference needs samples of both origins, and enough of them."""

    BUILD = "build_models"
    PREDICT = "predict_models"


@dataclass(frozen=True, slots=True)
class Checked:
    """A data set that was looked through; it can be used if there are no problems."""

    columns: Dataset
    rows: tuple[tuple[str, ...], ...]  #: as they came, the names first, for a person to look at
    problems: tuple[Problem, ...]
    samples: int = 0
    humans: int = 0
    indicators: tuple[str, ...] = ()

    @property
    def animals(self) -> int:
        return self.samples - self.humans


def check(data: bytes, purpose: Purpose) -> Checked:
    rows = _rows(data)
    try:
        columns = read_csv(data)
        matrix = prepare(columns)
    except DataError as error:
        return Checked({}, rows, error.problems)
    problems = () if purpose is Purpose.PREDICT else _lacking(matrix)
    names = tuple(name for name in INDICATORS if name in columns)
    humans = int((matrix.origins == HUMAN).sum())
    if not names:
        text = f"no indicator is in it; there are {', '.join(INDICATORS)}"
        problems = (Problem(1, "", text), *problems)
    if not len(matrix):
        problems = (Problem(2, "", "no samples are in it"), *problems)
    return Checked(columns, rows, tuple(problems), len(matrix), humans, names)


def dataset(data: bytes, purpose: Purpose) -> Dataset:
    """The columns; refused with everything that is wrong."""
    checked = check(data, purpose)
    if checked.problems:
        raise DataError(checked.problems)
    return checked.columns


def agings(files: Mapping[str, bytes]) -> Agings:
    """Trials from `env<NAME>-<SEASON>.txt`, one by one or in zips; others are left aside."""
    found: dict[str, tuple[Aging, ...]] = {}
    for name, content in _unzipped(files).items():
        meant = file_means(name.rpartition("/")[2])
        if meant is not None:
            column, season = meant
            aging = Aging(read_trials(content, name), season.position)
            found[column] = (*found.get(column, ()), aging)
    if not found:
        text = "no trials: files are named env<NAME>-<SEASON>.txt, as envFC-Summer.txt"
        raise DataError([Problem(0, "", text)])
    return found


def _unzipped(files: Mapping[str, bytes]) -> dict[str, bytes]:
    plain: dict[str, bytes] = {}
    left = TRIALS_BYTES
    for name, content in files.items():
        zipped = content.startswith(_ZIP)
        found = archive.contents(content, most_bytes=left) if zipped else {name: content}
        left -= sum(map(len, found.values()))
        if left < 0:
            raise FormError(f"the trials have more than {TRIALS_BYTES:,} bytes")
        plain |= found
    return plain


def _lacking(matrix: Matrix) -> tuple[Problem, ...]:
    counted = {
        name: int((matrix.origins == label).sum())
        for label, name in ((HUMAN, "human"), (ANIMAL, "animal"))
    }
    return tuple(
        Problem(0, "CLASS", f"{count} {name} samples; at least {FOLDS} of each origin are needed")
        for name, count in counted.items()
        if count < FOLDS
    )


def _rows(data: bytes) -> tuple[tuple[str, ...], ...]:
    """As a person wrote them, whatever is wrong with them."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    lines = csv.reader(io.StringIO(text.replace("\0", ""), newline=""), delimiter=";")
    return tuple(tuple(row) for row, _ in zip(lines, range(PREVIEW_ROWS + 1), strict=False))
