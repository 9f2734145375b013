"""Predicates on numbers as ranges: exact, for floats and integers of 64 bits alike."""

from __future__ import annotations

from math import inf

from hypothesis import example, given
from hypothesis import strategies as st

from penstock.content.bindings import is_true
from penstock.content.matching.entries import RANGES, Entry, beyond
from penstock.content.messages import Predicate, Subscription
from penstock.content.operators import NUMERIC, Operator
from penstock.content.values import INT_MAX, INT_MIN, Number

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
    assert (other > number) is (other >= beyond(number))


@given(numbers, st.sampled_from((*NUMERIC, Operator.PRESENT)), numbers)
def test_a_range_has_the_numbers_a_predicate_is_true_of(
    value: Number, operator: Operator, operand: Number
) -> None:
    if operator is Operator.UNEQUAL:
        assert operator not in RANGES
    else:
        low, high = RANGES[operator](operand)
        assert (low <= value < high) is is_true(value, operator, operand)


def test_what_a_float_cannot_express_stays_a_predicate() -> None:
    plain = Predicate("a", Operator.GREATER, 5)
    fine = Predicate("a", Operator.GREATER, 2**53 + 2)
    entry = Entry("key", Subscription("k", (plain, fine)), strict=False)

    assert entry.ranges == (("a", beyond(5), inf),)
    assert entry.rest == (fine,)
