"""The tables of matrices and data sets. Blocking; call it in a thread.

Each save of a data set is a version, which never changes. A save of what the last version has is
that version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from penstock.core.errors import NotFound, PreconditionFailed
from penstock.core.units import parse_count
from penstock_jobs.datasets.matrices import BUILT_IN, DataMatrix, check_name, dataset_of
from penstock_jobs.formats.csv import write_csv
from penstock_jobs.model import Dataset
from penstock_jobs.science.matrix import read_csv
from penstock_store import Database

_COLUMNS: Final = "name, version, matrix, samples, saved_by, saved_at"


@dataclass(frozen=True, slots=True)
class SavedDataset:
    name: str
    version: int
    matrix: str
    samples: int
    saved_by: str
    saved_at: datetime

    @property
    def reference(self) -> str:
        return f"{self.name}@{self.version}"


class DatasetRepository:
    def __init__(self, database: Database) -> None:
        self._database = database

    def matrices(self) -> list[DataMatrix]:
        rows = self._database.rows("SELECT name, title, columns FROM job_matrix ORDER BY name")
        own = [DataMatrix(row["name"], row["title"], tuple(row["columns"])) for row in rows]
        return [*BUILT_IN.values(), *own]

    def matrix(self, name: str) -> DataMatrix:
        for each in self.matrices():
            if each.name == name:
                return each
        raise NotFound(f"there is no matrix {name!r}")

    def add_matrix(self, matrix: DataMatrix) -> None:
        """Add or replace it; data sets that were entered with it stay as they are."""
        if matrix.name in BUILT_IN:
            raise PreconditionFailed(f"the matrix {matrix.name!r} is built in")
        self._database.execute(
            "INSERT INTO job_matrix (name, title, columns) VALUES (%s, %s, %s) ON CONFLICT (name) "
            "DO UPDATE SET title = excluded.title, columns = excluded.columns",
            (matrix.name, matrix.title, list(matrix.columns)),
        )

    def remove_matrix(self, name: str) -> None:
        if name in BUILT_IN:
            raise PreconditionFailed(f"the matrix {name!r} is built in")
        with self._database.transaction() as connection:
            if not connection.execute("DELETE FROM job_matrix WHERE name = %s", (name,)).rowcount:
                raise NotFound(f"there is no matrix {name!r}")

    def save(
        self, name: str, matrix: DataMatrix, rows: Sequence[Sequence[str]], who: str = ""
    ) -> SavedDataset:
        """Raises `DatasetError` with the problems of all cells."""
        check_name(name)
        columns = dataset_of(matrix, rows)
        text = write_csv(columns)
        samples = len(next(iter(columns.values())))
        with self._database.transaction() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (f"data set {name}",))
            last = connection.execute(
                f"SELECT {_COLUMNS}, csv FROM job_dataset WHERE name = %s "
                "ORDER BY version DESC LIMIT 1",
                (name,),
            ).fetchone()
            if last is not None and (last["csv"], last["matrix"]) == (text, matrix.name):
                return _saved(last)
            row = connection.execute(
                "INSERT INTO job_dataset (name, version, matrix, samples, csv, saved_by) "
                f"VALUES (%s, %s, %s, %s, %s, %s) RETURNING {_COLUMNS}",
                (name, last["version"] + 1 if last else 1, matrix.name, samples, text, who),
            ).fetchone()
        assert row is not None
        return _saved(row)

    def datasets(self) -> list[SavedDataset]:
        """The last version of each, the newest first."""
        rows = self._database.rows(
            f"SELECT * FROM (SELECT DISTINCT ON (name) {_COLUMNS} FROM job_dataset "
            "ORDER BY name, version DESC) AS last ORDER BY saved_at DESC, name"
        )
        return [_saved(row) for row in rows]

    def versions(self, name: str) -> list[SavedDataset]:
        """The newest first."""
        rows = self._database.rows(
            f"SELECT {_COLUMNS} FROM job_dataset WHERE name = %s ORDER BY version DESC", (name,)
        )
        if not rows:
            raise NotFound(f"there is no data set {name!r}")
        return [_saved(row) for row in rows]

    def text(self, reference: str) -> str:
        """The CSV of `NAME@VERSION`, or of the last version of `NAME`."""
        name, at, number = reference.partition("@")
        version = parse_count(number, 2**31 - 1) if at else None
        rows = []
        if version is not None or not at:
            rows = self._database.rows(
                "SELECT csv FROM job_dataset WHERE name = %s AND (%s::int IS NULL OR version = %s) "
                "ORDER BY version DESC LIMIT 1",
                (name, version, version),
            )
        if not rows:
            raise NotFound(f"there is no data set {reference!r}")
        return str(rows[0]["csv"])

    def columns(self, reference: str) -> Dataset:
        return read_csv(self.text(reference).encode(), foreign=True)

    def remove(self, name: str) -> None:
        """All versions."""
        with self._database.transaction() as connection:
            if not connection.execute("DELETE FROM job_dataset WHERE name = %s", (name,)).rowcount:
                raise NotFound(f"there is no data set {name!r}")


def _saved(row: Any) -> SavedDataset:
    names = ("name", "version", "matrix", "samples", "saved_by", "saved_at")
    return SavedDataset(*(row[name] for name in names))
