"""Posets by covering, and what a neighbour is told because of them."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.content.covering import (
    ADVERTISEMENTS,
    SUBSCRIPTIONS,
    CoveringMode,
    FilterForwarding,
    ForwardFilter,
    Poset,
    PosetNode,
    Relation,
    WithdrawFilter,
)
from penstock.content.errors import DuplicateId, UnknownId
from penstock.content.messages import Subscription
from penstock.content.parser import parse_advertisement, parse_subscription
from penstock.content.relations import FilterExtent
from tests.content.worlds import filters, seeds


def above(node: PosetNode[int]) -> set[PosetNode[int]]:
    found: set[PosetNode[int]] = set()
    waiting = list(node.parents)
    while waiting:
        one = waiting.pop()
        if one not in found:
            found.add(one)
            waiting += one.parents
    return found


def check(poset: Poset[int], extents: dict[int, FilterExtent], covers: Relation) -> None:
    """The poset says what the relation says, with no line more than it needs."""
    for key, extent in extents.items():
        node = poset[key]
        over = {other for one in above(node) for other in one.keys} | set(node.keys)
        assert over == {other for other, wide in extents.items() if covers(wide, extent)}
        for parent in node.parents:
            others = [one for one in node.parents if one is not parent]
            assert not any(parent in above(other) for other in others)
            assert node in parent.children
    roots = {key for root in poset.roots() for key in root.keys}
    assert roots == {key for key in extents if not poset[key].parents}


@settings(max_examples=40)
@given(
    seeds,
    st.integers(1, 20),
    st.sampled_from((SUBSCRIPTIONS, ADVERTISEMENTS)),
)
def test_a_poset_has_the_order_of_covering(random: Random, count: int, covers: Relation) -> None:
    poset: Poset[int] = Poset(covers)
    extents = {
        key: FilterExtent.of(Subscription("k", one))
        for key, one in enumerate(filters(random, count))
    }
    for key, extent in extents.items():
        poset.insert(key, extent)
    check(poset, extents, covers)

    for key in random.sample(sorted(extents), count // 2):
        poset.remove(key)
        del extents[key]
    check(poset, extents, covers)


@settings(max_examples=30)
@given(seeds, st.integers(1, 16), st.sampled_from(list(CoveringMode)))
def test_what_the_neighbour_has_covers_all_there_is(
    random: Random, count: int, covering: CoveringMode
) -> None:
    forwarding: FilterForwarding[int] = FilterForwarding.of_subscriptions(covering)
    held: dict[int, FilterExtent] = {}
    told: set[int] = set()
    known: dict[int, FilterExtent] = {}
    wanted = [Subscription("k", one) for one in filters(random, count)]

    def take(steps: list[ForwardFilter[int] | WithdrawFilter[int]]) -> None:
        for step in steps:
            if isinstance(step, ForwardFilter):
                assert step.key not in told
                told.add(step.key)
            else:
                told.remove(step.key)
            for extent in held.values():
                assert any(SUBSCRIPTIONS(known[key], extent) for key in told)

    for key, one in enumerate(wanted):
        held[key] = known[key] = FilterExtent.of(one)
        take(forwarding.insert(key, one))
    for key in random.sample(range(count), count):
        del held[key]
        take(forwarding.remove(key))
        assert told <= held.keys()
        assert forwarding.sent() == told
    assert not told


WIDE = parse_subscription("[class,eq,k],[a,>,10]")
NARROW = parse_subscription("[class,eq,k],[a,>,20]")
APART = parse_subscription("[class,eq,k],[b,eq,x]")


def lazy() -> FilterForwarding[str]:
    return FilterForwarding.of_subscriptions(CoveringMode.LAZY)


def active() -> FilterForwarding[str]:
    return FilterForwarding.of_subscriptions(CoveringMode.ACTIVE)


def test_without_covering_everything_is_sent() -> None:
    forwarding: FilterForwarding[str] = FilterForwarding.of_subscriptions(CoveringMode.OFF)

    assert forwarding.insert("wide", WIDE) == [ForwardFilter("wide")]
    assert forwarding.insert("narrow", NARROW) == [ForwardFilter("narrow")]
    assert forwarding.remove("wide") == [WithdrawFilter("wide")]


@pytest.mark.parametrize("forwarding", [lazy(), active()])
def test_what_is_covered_is_not_sent(forwarding: FilterForwarding[str]) -> None:
    assert forwarding.insert("wide", WIDE) == [ForwardFilter("wide")]
    assert forwarding.insert("narrow", NARROW) == []
    assert forwarding.insert("equal", WIDE) == []
    assert forwarding.insert("apart", APART) == [ForwardFilter("apart")]


def test_lazily_what_was_sent_stays() -> None:
    forwarding = lazy()
    forwarding.insert("narrow", NARROW)

    assert forwarding.insert("wide", WIDE) == [ForwardFilter("wide")]


def test_actively_what_is_covered_now_is_withdrawn() -> None:
    forwarding = active()
    forwarding.insert("narrow", NARROW)

    assert forwarding.insert("wide", WIDE) == [ForwardFilter("wide"), WithdrawFilter("narrow")]


@pytest.mark.parametrize("forwarding", [lazy(), active()])
def test_what_is_no_longer_covered_is_sent(forwarding: FilterForwarding[str]) -> None:
    forwarding.insert("wide", WIDE)
    forwarding.insert("narrow", NARROW)

    assert forwarding.remove("wide") == [ForwardFilter("narrow"), WithdrawFilter("wide")]


def test_what_was_not_sent_goes_without_a_word() -> None:
    forwarding = lazy()
    forwarding.insert("wide", WIDE)
    forwarding.insert("narrow", NARROW)

    assert forwarding.remove("narrow") == []


def test_an_equal_takes_the_place_of_the_one_that_was_sent() -> None:
    forwarding = lazy()
    forwarding.insert("one", WIDE)
    forwarding.insert("two", WIDE)

    assert forwarding.remove("one") == [ForwardFilter("two"), WithdrawFilter("one")]


def test_advertisements_that_are_uncovered_are_advertised_again() -> None:
    forwarding: FilterForwarding[str] = FilterForwarding.of_advertisements(CoveringMode.LAZY)
    more = parse_advertisement("[class,eq,k],[a,>,10],[b,>,1]")
    fewer = parse_advertisement("[class,eq,k],[a,>,10]")

    assert forwarding.insert("fewer", fewer) == [ForwardFilter("fewer")]
    assert forwarding.insert("more", more) == [ForwardFilter("more")]
    assert forwarding.remove("fewer") == [WithdrawFilter("fewer")]
    assert forwarding.insert("fewer again", fewer) == []
    assert forwarding.remove("more") == [ForwardFilter("fewer again"), WithdrawFilter("more")]


def test_advertisements_are_not_withdrawn_for_others() -> None:
    with pytest.raises(ValueError, match="LAZY or OFF"):
        FilterForwarding.of_advertisements(CoveringMode.ACTIVE)


def test_keys_are_used_once_and_known() -> None:
    forwarding = lazy()
    forwarding.insert("wide", WIDE)

    with pytest.raises(DuplicateId):
        forwarding.insert("wide", NARROW)
    with pytest.raises(UnknownId):
        forwarding.remove("narrow")
