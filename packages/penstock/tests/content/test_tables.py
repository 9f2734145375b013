"""Asked with filters, the tables of a router answer as going through all of them does."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.content.errors import DuplicateId, UnknownId
from penstock.content.matching.matcher import AdvertisementMatcher, Matcher
from penstock.content.messages import Advertisement, Operator, Predicate, Publication, Subscription
from penstock.content.parser import parse_advertisement
from penstock.content.relations import conforms, intersects
from tests.content.strategies import advertisements, publications, subscriptions
from tests.content.worlds import filters, narrow, seeds


@settings(max_examples=25)
@given(seeds, st.integers(1, 300), st.lists(advertisements(), max_size=5))
def test_subscriptions_that_an_advertisement_intersects(
    random: Random, count: int, asked: list[Advertisement]
) -> None:
    table: Matcher[int] = Matcher()
    wanted = {key: Subscription("k", one) for key, one in enumerate(filters(random, count))}
    for key, one in wanted.items():
        table.insert(key, one)

    for offered in asked:
        expected = {key for key, one in wanted.items() if intersects(one, offered)}
        assert sorted(table.intersecting(offered)) == sorted(expected)


@settings(max_examples=25)
@given(seeds, st.integers(1, 300), st.lists(advertisements(), max_size=5))
def test_subscriptions_to_narrow_ranges_that_an_advertisement_intersects(
    random: Random, count: int, asked: list[Advertisement]
) -> None:
    table: Matcher[int] = Matcher()
    wanted = {key: Subscription("k", one) for key, one in enumerate(narrow(random, count))}
    for key, one in wanted.items():
        table.insert(key, one)

    for offered in asked:
        expected = {key for key, one in wanted.items() if intersects(one, offered)}
        assert sorted(table.intersecting(offered)) == sorted(expected)


@settings(max_examples=25)
@given(
    seeds,
    st.integers(1, 300),
    st.lists(subscriptions(), max_size=5),
    st.lists(publications(), max_size=5),
)
def test_advertisements_that_others_meet(
    random: Random, count: int, asked: list[Subscription], sent: list[Publication]
) -> None:
    table: AdvertisementMatcher[int] = AdvertisementMatcher()
    offered = {key: Advertisement("k", one) for key, one in enumerate(filters(random, count))}
    for key, one in offered.items():
        table.insert(key, one)
    for key in random.sample(sorted(offered), count // 3):
        table.remove(key)
        del offered[key]

    for wanted in asked:
        expected = {key for key, one in offered.items() if intersects(wanted, one)}
        assert sorted(table.intersecting(wanted)) == sorted(expected)
    for publication in sent:
        expected = {key for key, one in offered.items() if conforms(publication, one)}
        assert sorted(table.conforming(publication)) == sorted(expected)


def test_a_key_is_used_once_and_known() -> None:
    table: AdvertisementMatcher[str] = AdvertisementMatcher()
    table.insert("a", parse_advertisement("[class,eq,k]"))

    with pytest.raises(DuplicateId):
        table.insert("a", parse_advertisement("[class,eq,k]"))
    with pytest.raises(UnknownId):
        table.remove("b")
    assert "a" in table
    assert len(table) == 1
    assert table["a"] == parse_advertisement("[class,eq,k]")


def test_more_attributes_than_there_can_be_lanes() -> None:
    random = Random(1)
    table: AdvertisementMatcher[int] = AdvertisementMatcher()
    names = [f"n{number}" for number in range(700)]
    offered = {}
    for key in range(400):
        chosen = random.sample(names, 3)
        predicates = tuple(
            Predicate(name, Operator.GREATER, random.randint(0, 9)) for name in chosen
        )
        offered[key] = Advertisement("k", predicates)
        table.insert(key, offered[key])

    for name in names[:20]:
        wanted = Subscription("k", (Predicate(name, Operator.LESS, 5),))
        expected = {key for key, one in offered.items() if intersects(wanted, one)}
        assert sorted(table.intersecting(wanted)) == sorted(expected)
