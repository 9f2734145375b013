"""Formulas: arithmetic over known series, and nothing else whatever."""

from __future__ import annotations

import math

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from penstock.hives.analytics.formula import SERIES, Formula, FormulaRefused
from penstock.hives.app.domain.errors import Invalid
from penstock.hives.app.services.formulas import check_formula


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "visits.__class__",
        "(lambda: visits)()",
        "[visits]",
        "visits if peak else 1",
        "visits ** 9999",
        "visits; peak",
        "'visits'",
        "True",
        "visits == 1",
        "open('/etc/passwd')",
        "max(visits, key=abs)",
        "max(visits)",
        "abs(visits, peak)",
        "money",
        "1e400",
        "9" * 40,
        "visits +",
        "",
        "(" * 200 + "1" + ")" * 200,
        "-" * 60 + "1",
        "x" * 400,
    ],
)
def test_what_is_no_formula_is_refused(text: str) -> None:
    with pytest.raises(FormulaRefused):
        Formula.parse(text)


def test_a_formula_names_its_series() -> None:
    assert Formula.parse("visits / max(deal_redemptions, 1)").series == {
        "visits",
        "deal_redemptions",
    }


def test_what_the_application_takes_the_nights_can_evaluate() -> None:
    check_formula(" + ".join(SERIES))
    with pytest.raises(Invalid):
        check_formula("money")


def test_formulas_are_evaluated_as_arithmetic_is(spark: SparkSession) -> None:
    figures = {"visits": 100.0, "peak": 8.0, "views": 0.0, "sentiment": -0.5}
    expected = {
        "visits": 100.0,
        "visits / peak": 12.5,
        "visits / peak / 5": 2.5,
        "100 - visits - 1": -1.0,
        "2 + 3 * peak": 26.0,
        "(2 + 3) * peak": 40.0,
        "-sentiment * 2": 1.0,
        "min(visits, peak, 50)": 8.0,
        "max(visits, peak) - abs(sentiment)": 99.5,
        "visits / views": None,
        "visits / (peak - 8)": None,
        "0.1 + 0.2": 0.30000000000000004,
    }
    columns = [f.lit(value).alias(name) for name, value in figures.items()]
    series = {name: f.col(name) for name in figures}
    made = [Formula.parse(text).column(series) for text in expected]
    (row,) = spark.range(1).select(*columns).select(*made).collect()
    for text, value, wanted in zip(expected, row, expected.values(), strict=True):
        assert value == wanted or math.isclose(value, wanted), text  # type: ignore[arg-type]
