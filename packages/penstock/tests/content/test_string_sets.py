"""Sets of texts are exact: held against automata, and against all short texts."""

from __future__ import annotations

from functools import reduce
from itertools import product

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.content.messages import COMPARISONS, TEXTUAL, Operator
from penstock.content.value_sets import ANY_STRING, StringSet, strings_satisfying
from tests.content.automata import Constraint, witness
from tests.content.strategies import LETTERS, texts

OPERATORS = (*TEXTUAL, Operator.PRESENT)
SHORT = ["".join(letters) for size in range(4) for letters in product(LETTERS, repeat=size)]

Wanted = tuple[tuple[Operator, str], ...]
conjunctions = st.lists(st.tuples(st.sampled_from(OPERATORS), texts), max_size=4).map(tuple)


def the_set(wanted: Wanted) -> StringSet:
    return reduce(StringSet.__and__, (strings_satisfying(*one) for one in wanted), ANY_STRING)


def holds(text: str, wanted: Wanted) -> bool:
    return all(COMPARISONS[operator](text, operand) for operator, operand in wanted)


@given(conjunctions, texts)
def test_a_text_is_in_the_set_when_every_predicate_holds(wanted: Wanted, text: str) -> None:
    assert (text in the_set(wanted)) is holds(text, wanted)


@settings(max_examples=300)
@given(conjunctions)
@example(((Operator.STR_GT, "a"), (Operator.STR_LT, "a\0")))
@example(((Operator.STR_GT, "a"), (Operator.STR_LT, "a\0\0"), (Operator.NEQ, "a\0")))
@example(((Operator.STR_GT, "\U0010ffff"), (Operator.PREFIX, "\U0010ffff")))
def test_emptiness_is_exact(wanted: Wanted) -> None:
    found = witness(tuple(Constraint(*one) for one in wanted))

    assert the_set(wanted).is_empty() is (found is None)
    if found is None:
        assert not any(holds(text, wanted) for text in SHORT)
    else:
        assert holds(found, wanted)


@settings(max_examples=400)
@given(conjunctions, conjunctions)
@example(((Operator.CONTAINS, "b"),), ((Operator.STR_GE, "ab"), (Operator.STR_LT, "ac")))
@example(((Operator.CONTAINS, "a"),), ((Operator.STR_GT, "a"), (Operator.STR_LE, "b")))
@example(((Operator.POSTFIX, ""),), ((Operator.NEQ, "a"),))
def test_inclusion_is_exact(wide: Wanted, narrow: Wanted) -> None:
    inside = tuple(Constraint(*one) for one in narrow)
    outside = [witness((*inside, Constraint(*one, wanted=False))) for one in wide]

    assert the_set(wide).includes(the_set(narrow)) is all(text is None for text in outside)
    for text in outside:
        assert text is None or (holds(text, narrow) and not holds(text, wide))


@given(conjunctions)
def test_the_only_member_is_known(wanted: Wanted) -> None:
    only = the_set(wanted).only()
    first = witness(tuple(Constraint(*one) for one in wanted))
    alone = first is not None and (
        witness((*(Constraint(*one) for one in wanted), Constraint(Operator.NEQ, first))) is None
    )

    assert only == (first if alone else None)


@pytest.mark.parametrize(
    ("left", "right", "meet"),
    [
        (("str-prefix", "ab"), ("str-prefix", "abc"), True),
        (("str-prefix", "ab"), ("str-prefix", "ac"), False),
        (("str-postfix", "bc"), ("str-postfix", "abc"), True),
        (("str-postfix", "bc"), ("str-postfix", "ac"), False),
        (("str-prefix", "ab"), ("str-postfix", "xy"), True),
        (("str-contains", "x"), ("str-prefix", "y"), True),
        (("str-contains", "x"), ("eq", "y"), False),
        (("neq", "x"), ("eq", "x"), False),
        (("str-lt", "b"), ("str-prefix", "b"), False),
        (("str-lt", "bb"), ("str-prefix", "b"), True),
        (("str-lt", ""), ("isPresent", ""), False),
        (("str-gt", "b"), ("str-lt", "b\0"), False),
    ],
)
def test_pairs(left: tuple[str, str], right: tuple[str, str], meet: bool) -> None:
    both = strings_satisfying(Operator(left[0]), left[1]) & strings_satisfying(
        Operator(right[0]), right[1]
    )

    assert both.is_empty() is not meet
