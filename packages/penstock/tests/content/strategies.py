"""Messages of the language for property tests: a small world, in which things meet."""

from __future__ import annotations

from hypothesis import strategies as st

from penstock.content.messages import (
    INT_MAX,
    INT_MIN,
    NUMERIC,
    TEXTUAL,
    Advertisement,
    CompositeSubscription,
    Expression,
    Join,
    JoinOperator,
    Operand,
    Operator,
    Predicate,
    Publication,
    Subscription,
    Value,
    Variable,
    VariableType,
)

NAMES = st.sampled_from(("a", "b", "c"))
CLASSES = st.sampled_from(("k", "m"))
#: Letters of which texts in the small world are made: neighbours, and both ends of all there are.
LETTERS = ("\0", "a", "b", "\U0010ffff")

texts = st.text(st.sampled_from(LETTERS), max_size=3)
numbers = st.one_of(
    st.integers(-2, 3),
    st.sampled_from((-1.5, -0.0, 0.5, 1.0, 1.5, 2.0)),
    # Neighbours that a float cannot tell apart.
    st.sampled_from((2**53, 2**53 + 1, float(2**53), 2**53 + 2, INT_MAX, INT_MIN)),
)
values: st.SearchStrategy[Value] = st.one_of(texts, numbers)


def variables(kinds: tuple[VariableType, ...]) -> st.SearchStrategy[Variable]:
    return st.builds(Variable, st.sampled_from(kinds), st.sampled_from(("x", "y")))


text_variables = variables((VariableType.STRING,))
number_variables = variables((VariableType.INTEGER, VariableType.FLOAT))


def predicates(with_variables: bool) -> st.SearchStrategy[Predicate]:
    text: st.SearchStrategy[Operand] = texts
    number: st.SearchStrategy[Operand] = numbers
    if with_variables:
        text = st.one_of(texts, texts, text_variables)
        number = st.one_of(numbers, numbers, number_variables)
    return st.one_of(
        st.builds(Predicate, NAMES, st.sampled_from(TEXTUAL), text),
        st.builds(Predicate, NAMES, st.sampled_from(NUMERIC), number),
        st.builds(Predicate, NAMES, st.just(Operator.PRESENT), st.one_of(text, number)),
    )


def conjunctions(with_variables: bool, several: bool) -> st.SearchStrategy[tuple[Predicate, ...]]:
    unique_by = None if several else (lambda predicate: predicate.attribute)
    return st.lists(predicates(with_variables), max_size=4, unique_by=unique_by).map(tuple)


def subscriptions(
    with_variables: bool = True, several: bool = True
) -> st.SearchStrategy[Subscription]:
    return st.builds(Subscription, CLASSES, conjunctions(with_variables, several))


def advertisements(
    with_variables: bool = True, several: bool = True
) -> st.SearchStrategy[Advertisement]:
    return st.builds(Advertisement, CLASSES, conjunctions(with_variables, several))


def publications(
    held: st.SearchStrategy[Value] = values,
) -> st.SearchStrategy[Publication]:
    return st.builds(Publication, CLASSES, st.dictionaries(NAMES, held, max_size=3))


def expressions(
    parts: st.SearchStrategy[Subscription], most: int = 6
) -> st.SearchStrategy[Expression]:
    leaves: st.SearchStrategy[Expression] = parts
    return st.recursive(
        leaves,
        lambda inside: st.builds(Join, st.sampled_from(JoinOperator), inside, inside),
        max_leaves=most,
    )


composites = st.builds(CompositeSubscription, expressions(subscriptions()))
