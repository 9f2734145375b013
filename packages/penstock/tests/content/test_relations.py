"""The relations between messages, held against every publication of a small world."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.content.messages import (
    NUMERIC,
    Advertisement,
    Operator,
    Predicate,
    Publication,
    Subscription,
    Value,
    Variable,
    VariableType,
)
from penstock.content.parser import parse_advertisement, parse_publication, parse_subscription
from penstock.content.relations import (
    conforms,
    covers,
    covers_advertisement,
    intersects,
    satisfies,
)

# The small world: two attributes, and for each every value that predicates over 0, 1, "x" can tell
# from others.
HELD: tuple[Value | None, ...] = (None, -1, 0, 0.25, 0.5, 1, 1.5, 2, "x", "y", "z")
WORLD = [
    Publication(
        "k", {name: value for name, value in zip("ab", held, strict=True) if value is not None}
    )
    for held in product(HELD, repeat=2)
]

predicates = st.one_of(
    st.builds(
        Predicate,
        st.sampled_from("ab"),
        st.sampled_from(NUMERIC),
        st.sampled_from(
            (0, 1, 1, Variable(VariableType.FLOAT, "v"), Variable(VariableType.INTEGER, "v"))
        ),
    ).filter(lambda p: not isinstance(p.operand, Variable) or p.operator is Operator.EQUAL),
    st.builds(
        Predicate,
        st.sampled_from("ab"),
        st.sampled_from((Operator.EQ, Operator.NEQ)),
        st.just("x"),
    ),
    st.builds(
        Predicate,
        st.sampled_from("ab"),
        st.just(Operator.EQ),
        st.just(Variable(VariableType.STRING, "w")),
    ),
)
conjunctions = st.lists(predicates, max_size=4).map(tuple)
subscriptions = st.builds(Subscription, st.just("k"), conjunctions)
advertisements = st.builds(Advertisement, st.just("k"), conjunctions)


@settings(max_examples=200)
@given(subscriptions, advertisements)
def test_intersection_is_exact(subscription: Subscription, advertisement: Advertisement) -> None:
    wanted = {predicate.attribute for predicate in subscription.predicates}
    common = any(
        satisfies(publication, subscription) and conforms(publication, advertisement)
        for publication in WORLD
        if publication.attributes.keys() == wanted
    )

    assert intersects(subscription, advertisement) is common


@settings(max_examples=200)
@given(subscriptions, subscriptions)
def test_covering_is_exact(wide: Subscription, narrow: Subscription) -> None:
    covered = all(satisfies(one, wide) for one in WORLD if satisfies(one, narrow))

    assert covers(wide, narrow) is covered


@settings(max_examples=200)
@given(advertisements, advertisements)
def test_covering_of_advertisements_is_exact(wide: Advertisement, narrow: Advertisement) -> None:
    covered = all(conforms(one, wide) for one in WORLD if conforms(one, narrow))

    assert covers_advertisement(wide, narrow) is covered


@given(subscriptions, advertisements)
def test_a_publication_that_passes_both_means_that_they_intersect(
    subscription: Subscription, advertisement: Advertisement
) -> None:
    if any(satisfies(one, subscription) and conforms(one, advertisement) for one in WORLD):
        assert intersects(subscription, advertisement)


def wants(subscription: str, publication: str, strict: bool = False) -> bool:
    return satisfies(
        parse_publication(publication), parse_subscription(subscription, several=True), strict
    )


@pytest.mark.parametrize(
    ("predicate", "pair", "holds"),
    [
        ("[a,<>,5]", "[b,1]", False),
        ("[a,neq,x]", "[b,1]", False),
        ("[a,neq,x]", "[a,1]", False),
        ("[a,isPresent,'']", "[a,x]", True),
        ("[a,isPresent,'']", "[a,1]", False),
        ("[a,isPresent,1]", "[a,1.5]", True),
        ("[a,>,60]", "[a,61.5]", True),
        ("[a,=,$I$v]", "[a,61]", True),
        ("[a,=,$I$v]", "[a,61.5]", False),
        ("[a,=,$F$v]", "[a,61.5]", True),
        ("[a,=,$F$v]", "[a,61]", True),
        ("[a,eq,$S$v]", "[a,61]", False),
        ("[a,str-lt,b]", "[a,B]", True),
        ("[a,str-prefix,IB]", "[a,'IBM']", True),
        ("[a,str-postfix,BM]", "[a,'IBM']", True),
        ("[a,str-contains,b]", "[a,'IBM']", False),
        ("[a,eq,$S$v],[b,eq,$S$v]", "[a,x],[b,x]", True),
        ("[a,eq,$S$v],[b,eq,$S$v]", "[a,x],[b,y]", False),
        ("[a,=,$F$v],[b,=,$F$v]", "[a,5],[b,5.0]", True),
        ("[a,=,$F$v],[b,>,$F$v]", "[a,5],[b,6]", True),
        ("[b,>,$F$v],[a,=,$F$v]", "[a,5],[b,5]", False),
        ("[a,>,$F$v]", "[a,5]", True),
        ("[a,=,5]", "[a,$I$x]", False),
    ],
)
def test_satisfying(predicate: str, pair: str, holds: bool) -> None:
    assert wants(f"[class,eq,k],{predicate}", f"[class,k],{pair};") is holds


def test_other_attributes_do_not_matter_to_satisfying() -> None:
    assert wants("[class,eq,k]", "[class,k],[a,1],[b,x];")
    assert not wants("[class,eq,k]", "[class,m],[a,1],[b,x];")


@pytest.mark.parametrize(
    ("predicate", "value", "holds"),
    [
        *(("[a,>,60]", "61.5", False), ("[a,>,60]", "61", True), ("[a,>,60.0]", "61", True)),
        *(("[a,isPresent,1]", "1.5", False), ("[a,=,$I$v]", "1.0", False)),
    ],
)
def test_satisfying_where_types_are_strict(predicate: str, value: str, holds: bool) -> None:
    text = f"[class,eq,k],{predicate}"

    assert wants(text, f"[class,k],[a,{value}];", strict=True) is holds


@pytest.mark.parametrize(
    ("pairs", "holds"),
    [
        *(("", True), (",[a,5]", True), (",[a,5],[b,x]", True), (",[a,50]", False)),
        *((",[a,5],[c,1]", False), (",[a,x]", False)),
    ],
)
def test_conforming(pairs: str, holds: bool) -> None:
    advertisement = parse_advertisement("[class,eq,k],[a,<,10],[b,isPresent,x]")

    assert conforms(parse_publication(f"[class,k]{pairs};"), advertisement) is holds


@pytest.mark.parametrize(
    ("subscribed", "advertised", "meet"),
    [
        ("[a,>,10]", "[a,<,11]", True),
        ("[a,>,10]", "[a,<,10]", False),
        ("[a,>=,10]", "[a,<=,10]", True),
        ("[a,>,10],[b,>,1]", "[a,<,11]", False),
        ("", "[a,<,11]", True),
        ("[a,<>,5]", "[a,=,5]", False),
        ("[a,isPresent,5]", "[a,eq,x]", False),
        ("[a,eq,$S$x]", "[a,eq,x]", True),
        ("[a,=,$I$x]", "[a,>,10],[a,<,11]", False),
        ("[a,eq,$S$x],[b,eq,$S$x]", "[a,eq,p],[b,eq,q]", False),
        ("[a,eq,$S$x],[b,eq,$S$x]", "[a,eq,p],[b,str-prefix,p]", True),
    ],
)
def test_intersecting(subscribed: str, advertised: str, meet: bool) -> None:
    left = parse_subscription(",".join(filter(None, ("[class,eq,k]", subscribed))))
    right = parse_advertisement(f"[class,eq,k],{advertised}", several=True)

    assert intersects(left, right) is meet


@pytest.mark.parametrize(
    ("wide", "narrow", "covered"),
    [
        ("[a,>,10]", "[a,>=,11]", True),
        ("[a,>=,11]", "[a,>,10]", False),
        ("[a,>,0.2]", "[a,<,0.9]", False),
        ("[a,<>,5]", "[a,>,5]", True),
        ("[a,isPresent,1]", "[a,=,5]", True),
        ("[a,>,1]", "[a,>,1],[b,>,1]", True),
        ("[a,>,1],[b,>,1]", "[a,>,1]", False),
        ("[a,str-ge,a]", "[a,str-prefix,ab]", True),
        ("[a,str-contains,b]", "[a,str-prefix,abc]", True),
        ("[a,str-contains,b]", "[a,str-postfix,abc]", True),
        ("[a,neq,x]", "[a,str-prefix,y]", True),
        ("[a,eq,$S$x],[b,eq,$S$x]", "[a,eq,p],[b,eq,p]", True),
        ("[a,eq,$S$x]", "[a,eq,$S$y]", True),
        ("[a,=,$F$x],[b,>,$F$x]", "[a,=,$F$x],[b,>,$F$x]", True),
        ("[a,=,$F$x],[b,>,$F$x]", "[a,=,1],[b,>,2]", False),
    ],
)
def test_covering(wide: str, narrow: str, covered: bool) -> None:
    left = parse_subscription(f"[class,eq,k],{wide}")
    right = parse_subscription(f"[class,eq,k],{narrow}")

    assert covers(left, right) is covered


@pytest.mark.parametrize(
    ("wide", "narrow", "covered"),
    [
        *(("[a,>,1],[b,>,1]", "[a,>,1]", True), ("[a,>,1]", "[a,>,1],[b,>,1]", False)),
        *(("[a,>,1]", "[a,>,2]", True), ("[a,>,2]", "[a,>,1]", False)),
    ],
)
def test_an_advertisement_with_more_attributes_is_wider(
    wide: str, narrow: str, covered: bool
) -> None:
    left = parse_advertisement(f"[class,eq,k],{wide}")
    right = parse_advertisement(f"[class,eq,k],{narrow}")

    assert covers_advertisement(left, right) is covered
