"""Cells of text become numbers, or are named with their row and column."""

from __future__ import annotations

import math

import numpy as np
import pytest

from penstock_jobs.errors import DatasetError
from penstock_jobs.science.indicators import (
    AT,
    Season,
    column_name,
    indicator,
    origin,
    season,
    source,
)
from penstock_jobs.science.matrix import SampleMatrix, prepare, read_csv


def value(cell: str, column: str = "FC") -> float:
    return float(prepare({"CLASS": ("P1-HM01",), column: (cell,)}).values[0, AT[column]])


@pytest.mark.parametrize(
    ("cell", "number"),
    [
        ("2,20E+07", 2.2e7),
        ("2.20e+07", 2.2e7),
        ("0", 0.0),
        ("17", 17.0),
        (" ,5 ", 0.5),
        ("<20", 0.2),
        ("< 2,5E3", 25.0),
    ],
)
def test_numbers_have_a_comma_and_what_is_below_detection_is_a_hundredth(
    cell: str, number: float
) -> None:
    assert value(cell) == pytest.approx(number)


def test_an_empty_cell_is_missing() -> None:
    assert math.isnan(value(""))


def test_phages_by_genotype_are_shares_of_all() -> None:
    columns = {"CLASS": ("a",), "FRNAPH": ("1000",), "FRNAPH I": ("25",), "FRNAPH-II": ("",)}
    found = prepare(columns).values[0]
    assert found[AT["FRNAPH.I"]] == 250
    assert math.isnan(found[AT["FRNAPH.II"]])


def test_a_share_of_what_was_not_counted_is_missing() -> None:
    assert math.isnan(value("25", "FRNAPH.III"))


def test_columns_that_are_not_used_are_not_looked_at() -> None:
    assert prepare({"CLASS": ("a",), "CHOL": ("much",), "FC": ("1",)}).values[0, 0] == 1


@pytest.mark.parametrize(
    "cell", ["x", "1.000,5", "1 000", "--", "nan", "inf", "-5", "<", "<<5", "1e999"]
)
def test_what_is_no_number_is_named_with_its_place(cell: str) -> None:
    with pytest.raises(DatasetError) as refused:
        prepare({"CLASS": ("a", "b"), "FC": ("1", cell)})
    assert str(refused.value) == f"row 3, column FC: {cell!r} is not a number"


def test_everything_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(DatasetError) as refused:
        prepare({"CLASS": ("a", ""), "FC": ("x", "y"), "season": ("summer", "spring")})
    assert [(each.row, each.column) for each in refused.value.problems] == [
        (2, "FC"),
        (3, "CLASS"),
        (3, "FC"),
        (3, "season"),
    ]


def test_seasons_by_name_and_position() -> None:
    matrix = prepare(
        {"CLASS": ("a", "b", "c", "d", "e"), "season": ("Estiu", "winter", "0,5", "0.0", "")}
    )
    assert matrix.seasons == (
        Season.SUMMER,
        Season.WINTER,
        Season.SUMMER,
        Season.WINTER,
        Season.SUMMER,
    )


def test_a_csv_of_the_laboratory() -> None:
    data = b'CLASS;FC;"FRNAPH I";HBSA-Y\r\nP1-HM01;2,20E+07;"12,5";<20\r\nP1-CW01;;;\r\n;;;\r\n'
    assert read_csv(data) == {
        "CLASS": ("P1-HM01", "P1-CW01"),
        "FC": ("2,20E+07", ""),
        "FRNAPH.I": ("12,5", ""),
        "HBSA.Y": ("<20", ""),
    }


def test_a_csv_in_latin_1_and_one_with_a_mark_at_its_start() -> None:
    assert read_csv("CLASS;FC\nLleó-HM;1\n".encode("latin-1"))["CLASS"] == ("Lleó-HM",)
    assert read_csv("\ufeffCLASS;FC\na;1\n".encode())["CLASS"] == ("a",)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "row 1: the file is empty"),
        (b"CLASS,FC,FE\na,1,2\n", "cells must be separated by ';'"),
        (b"CLASS\tFC\na\t1\n", "cells must be separated by ';'"),
        (b"CLASS;FC\na;1;2\nb\n", "row 2: 3 cells, but 2 columns; row 3: 1 cells"),
        (b"CLASS;FX\na;1\n", "row 1, column FX: unknown column"),
        (b"CLASS;\na;1\n", "a column without a name"),
        (b"CLASS;FC;FC\na;1;2\n", "row 1, column FC: two columns have this name"),
        (b"FC;FE\n1;2\n", "row 1, column CLASS: the column with the sample ids is missing"),
        ("CLASS;FC\na;1\n".encode("utf-16"), "no text"),
        (b"PK\x03\x04\0\0", "no text"),
    ],
)
def test_a_csv_that_cannot_be_read_is_told_why(data: bytes, told: str) -> None:
    with pytest.raises(DatasetError) as refused:
        read_csv(data)
    assert told in str(refused.value)


def test_many_problems_are_counted_and_not_all_said() -> None:
    with pytest.raises(DatasetError, match="and 3 more") as refused:
        prepare({"CLASS": ("a",) * 8, "FC": ("x",) * 8})
    assert len(refused.value.problems) == 8


def test_columns_of_a_request_may_be_shorter_but_not_longer() -> None:
    short = prepare({"CLASS": ("a", "b"), "FC": ("1",)})
    assert np.isnan(short.values[1, 0])
    with pytest.raises(DatasetError, match="row 3, column FC: a cell without a sample"):
        prepare({"CLASS": ("a",), "FC": ("1", "2")})


def test_names() -> None:
    assert column_name(" FRNAPH IV ") == "FRNAPH.IV"
    assert indicator("FRNAPHIV") == "FRNAPH.IV"
    assert indicator("hbsa-y") == "HBSA.Y"
    assert indicator("DiC") is None
    assert origin("P3-CW/HS14") == -1
    assert origin("P1-HM01") == 1
    assert source("P3-CW/HS14") == "cattle"
    assert source("x") is None
    assert season("spring") is None
    assert season("1.5") is None


def test_rows_can_be_taken(matrix: SampleMatrix) -> None:
    some = matrix.take(np.array([3, 5]))
    assert some.samples == (matrix.samples[3], matrix.samples[5])
    assert (some.values == matrix.values[[3, 5]]).all()


def test_a_csv_of_too_many_cells_is_not_taken_apart() -> None:
    with pytest.raises(DatasetError, match="more than 1,000,000 cells"):
        read_csv(b"CLASS" + b";" * 1_000_001)
