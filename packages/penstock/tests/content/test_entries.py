"""Predicates on numbers as ranges: exact, for floats and integers of 64 bits alike."""

from __future__ import annotations

from math import inf

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.content.bindings import comparison_holds
from penstock.content.matching.entries import RANGES, FilterEntry, next_float
from penstock.content.messages import (
    INT_MAX,
    INT_MIN,
    NUMERIC,
    Number,
    Operator,
    Predicate,
    Subscription,
)

numbers: st.SearchStrategy[Number] = st.one_of(
    st.integers(INT_MIN, INT_MAX),
    st.integers(2**53 - 3, 2**53 + 3),
    st.integers(-5, 5),
    st.floats(allow_nan=False, allow_infinity=False),
)


@given(numbers, numbers)
@example(2**53, 2**53 + 1)
@example(float(2**53), 2**53 + 1)
@example(-(2**53), -(2**53) + 1)
@example(0, 5e-324)
def test_nothing_lies_between_a_number_and_the_next(number: Number, other: Number) -> None:
    assert (other > number) is (other >= next_float(number))


@given(numbers, st.sampled_from((*NUMERIC, Operator.PRESENT)), numbers)
def test_a_range_has_the_numbers_a_predicate_is_true_of(
    value: Number, operator: Operator, operand: Number
) -> None:
    if operator is Operator.UNEQUAL:
        assert operator not in RANGES
    else:
        low, high = RANGES[operator](operand)
        assert (low <= value < high) is comparison_holds(value, operator, operand)


def test_what_a_float_cannot_express_stays_a_predicate() -> None:
    plain = Predicate("a", Operator.GREATER, 5)
    fine = Predicate("a", Operator.GREATER, 2**53 + 2)
    entry = FilterEntry("key", Subscription("k", (plain, fine)), strict=False)

    assert entry.ranges == (("a", next_float(5), inf),)
    assert entry.rest == (fine,)
