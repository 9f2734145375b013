"""Formulas: arithmetic over known series, and nothing else whatever."""

from __future__ import annotations

import pytest

from penstock_hives.analytics.formula import SERIES, Formula, InvalidFormula
from penstock_hives.analytics.service import check_formula
from penstock_hives.errors import InvalidRequest


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
    with pytest.raises(InvalidFormula):
        Formula.parse(text)


def test_a_formula_names_its_series() -> None:
    assert Formula.parse("visits / max(deal_redemptions, 1)").series == {
        "visits",
        "deal_redemptions",
    }


def test_what_the_application_takes_the_nights_can_evaluate() -> None:
    check_formula(" + ".join(SERIES))
    with pytest.raises(InvalidRequest):
        check_formula("money")
