"""Formulas that can be meant, and those that cannot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock_hives.analytics.formula import SERIES
from penstock_hives.analytics.service import check_formula
from penstock_hives.errors import InvalidRequest


@pytest.mark.parametrize(
    "formula", ["visits", "visits / peak", "-(visits + 2.5) * max(peak, 1)", "min(entries, exits)"]
)
def test_arithmetic_over_known_series_is_taken(formula: str) -> None:
    check_formula(formula)


@pytest.mark.parametrize(
    "formula",
    [
        *("", "visits +", "salary", "visits.real", "visits[0]", "'text'", "True", "lambda: 1"),
        *("__import__('os')", "max(*visits)", "max(peak, key=1)", "2 ** 99 ** 99", "x := 1"),
        *("(" * 200 + "1" + ")" * 200, "+".join(["1"] * 200), "visits if peak else 0"),
    ],
)
def test_anything_else_is_refused(formula: str) -> None:
    with pytest.raises(InvalidRequest):
        check_formula(formula)


@given(st.text(max_size=80) | st.text("visitspeak+-*/(). ", max_size=80))
def test_no_text_does_anything_but_pass_or_be_refused(text: str) -> None:
    try:
        check_formula(text)
    except InvalidRequest:
        return
    assert any(name in text for name in SERIES) or any(sign.isdigit() for sign in text)
