"""Sets of numbers are exact over the reals: held against all points where anything can change."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from functools import reduce

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.content.messages import COMPARISONS, NUMERIC, Number, Operator
from penstock.content.value_sets import (
    ANY_NUMBER,
    INTEGERS,
    WHOLE_NUMBERS,
    NumberSet,
    numbers_satisfying,
)
from tests.content.strategies import numbers as some_numbers

#: An operator and its operand; or whole numbers, or integers by type.
Wanted = tuple[tuple[Operator, Number] | str, ...]
conjunctions = st.lists(
    st.one_of(
        st.tuples(st.sampled_from((*NUMERIC, Operator.PRESENT)), some_numbers),
        st.sampled_from(("whole", "integer")),
    ),
    max_size=4,
).map(tuple)


def the_set(wanted: Wanted) -> NumberSet:
    words = {"whole": WHOLE_NUMBERS, "integer": INTEGERS}
    sets = (words[one] if isinstance(one, str) else numbers_satisfying(*one) for one in wanted)
    return reduce(NumberSet.__and__, sets, ANY_NUMBER)


#: A real number, and whether its type is the integers'.
Point = tuple[Fraction, bool]


def points(*conjunctions: Wanted) -> Iterable[Point]:
    """Every number where a predicate may change its mind, and some from each stretch between."""
    operands = {one[1] for wanted in conjunctions for one in wanted if not isinstance(one, str)}
    for operand in operands or {0}:
        near = Fraction(operand)
        for step in range(-6, 7):
            value = near + Fraction(step, 4)
            whole = value - value % 1
            yield from ((value, False), (whole, True), (whole, False))


def holds(point: Point, wanted: Wanted) -> bool:
    value, is_integer = point
    for one in wanted:
        if one == "integer":
            if not is_integer:
                return False
        elif isinstance(one, str):
            if value.denominator != 1:
                return False
        elif not COMPARISONS[one[0]](value, one[1]):
            return False
    return True


@given(conjunctions, some_numbers)
def test_a_number_is_in_the_set_when_every_predicate_holds(wanted: Wanted, value: Number) -> None:
    point = (Fraction(value), isinstance(value, int))

    assert (value in the_set(wanted)) is holds(point, wanted)


@settings(max_examples=300)
@given(conjunctions)
@example(((Operator.GREATER, 10), (Operator.LESS, 11)))
@example(((Operator.GREATER, 10), (Operator.LESS, 11), "whole"))
@example(("whole", (Operator.GREATER, 1), (Operator.LESS, 3), (Operator.UNEQUAL, 2)))
@example(((Operator.GREATER_EQUAL, 1), (Operator.LESS_EQUAL, 1), (Operator.UNEQUAL, 1.0)))
def test_emptiness_is_exact(wanted: Wanted) -> None:
    assert the_set(wanted).is_empty() is not any(holds(point, wanted) for point in points(wanted))


@settings(max_examples=500)
@given(conjunctions, conjunctions)
@example(((Operator.LESS, 5),), ((Operator.LESS_EQUAL, 5), (Operator.UNEQUAL, 5)))
@example(((Operator.LESS_EQUAL, 4),), ((Operator.LESS_EQUAL, 5), (Operator.UNEQUAL, 5), "whole"))
@example(("whole",), ((Operator.EQUAL, 2.0),))
@example(((Operator.UNEQUAL, -0.0),), ("integer",))
def test_inclusion_is_exact(wide: Wanted, narrow: Wanted) -> None:
    included = all(holds(point, wide) for point in points(wide, narrow) if holds(point, narrow))

    assert the_set(wide).includes(the_set(narrow)) is included


@pytest.mark.parametrize(
    ("operator", "operand", "holds_for", "fails_for"),
    [
        ("=", 5, [5, 5.0], [4, 5.5, "5"]),
        ("<>", 5, [4, 5.5], [5, 5.0, "x"]),
        (">", 60, [61, 60.5], [60, 60.0, "61"]),
        ("<=", 2**53, [float(2**53)], [2**53 + 1]),
    ],
)
def test_integers_and_floats_compare_by_value(
    operator: str, operand: Number, holds_for: list[Number], fails_for: list[Number]
) -> None:
    found = numbers_satisfying(Operator(operator), operand)

    assert all(value in found for value in holds_for)
    assert not any(value in found for value in fails_for)


def test_where_types_are_strict_an_integer_asks_for_integers() -> None:
    found = numbers_satisfying(Operator.GREATER, 60, strict=True)

    assert 61 in found
    assert 61.5 not in found
    assert 61.0 not in found
    assert 61 in numbers_satisfying(Operator.GREATER, 60.0, strict=True)
