"""Rows of a matrix: each cell is checked by the kind of its column."""

from __future__ import annotations

import pytest

from penstock.core.errors import ConfigurationError
from penstock_jobs.datasets.matrices import (
    BUILT_IN,
    DataMatrix,
    cell_kind,
    check_rows,
    dataset_of,
    rows_of,
)
from penstock_jobs.errors import DatasetError
from penstock_jobs.science.indicators import INDICATORS
from penstock_jobs.science.matrix import prepare

RIVER = DataMatrix("river", "", ("CLASS", "season", "FRNAPH", "FRNAPH I", "GA17", "pH"))


def test_the_name_of_a_column_tells_what_its_cells_are() -> None:
    names = ["CLASS", "season", "FRNAPH I", "HBSA-Y", "DiE", "pH"]
    assert [cell_kind(name) for name in names] == [
        *("id", "season", "percentage", "number", "number", "text")
    ]


def test_every_wrong_cell_is_told_by_row_and_column() -> None:
    rows = [
        ["P1-X01", "summer", "1,5E+3", "101", "<20", "7.1"],
        ["", "august", "many", "-1", "< x", "not measured"],
        ["P1-X03", "0.5", "", "100", "", "", "and more"],
    ]
    assert [str(each) for each in check_rows(RIVER, rows)] == [
        "row 2, column FRNAPH.I: '101' is more than 100 %",
        "row 3, column CLASS: a sample without an id",
        "row 3, column season: 'august' is not a season",
        "row 3, column FRNAPH: 'many' is not a number",
        "row 3, column FRNAPH.I: '-1' is not a number",
        "row 3, column GA17: '< x' is not a number",
        "row 4: 7 cells, but 6 columns",
    ]
    with pytest.raises(DatasetError, match="and 2 more"):
        dataset_of(RIVER, rows)
    with pytest.raises(DatasetError, match="no samples"):
        dataset_of(RIVER, [["", " "]])


def test_rows_become_columns_that_models_understand_and_rows_again() -> None:
    rows = [["P1-X01", "winter", "200", "50", "<20", "7.1"], ["", ""], ["P1-X02"]]
    columns = dataset_of(RIVER, rows)

    matrix = prepare(columns)
    assert matrix.samples == ("P1-X01", "P1-X02")
    assert matrix.values[0, INDICATORS.index("FRNAPH.I")] == 100.0
    assert columns["pH"] == ("7.1", "")
    assert rows_of(RIVER, columns) == [rows[0], ["P1-X02", "", "", "", "", ""]]


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        (("CLASS",), "2 to 200"),
        (("FC", "GA17"), "CLASS"),
        (("CLASS", "HBSA-Y", "HBSA.Y"), "2 columns are named 'HBSA.Y'"),
        (("CLASS", " "), "no name"),
    ],
)
def test_a_matrix_that_is_none_is_refused(columns: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        DataMatrix("river", "", columns)
    with pytest.raises(ConfigurationError, match="name"):
        DataMatrix("../river", "", ("CLASS", "FC"))


def test_the_built_in_matrices_have_an_example_of_each_row() -> None:
    for matrix in BUILT_IN.values():
        row = ["P1-HM01", *("" for _ in matrix.columns[1:])]
        assert prepare(dataset_of(matrix, [row])).samples == ("P1-HM01",)
