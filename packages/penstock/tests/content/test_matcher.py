"""The matcher finds what going through all subscriptions finds, whatever came and went before."""

from __future__ import annotations

from math import inf, nextafter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.content.errors import DuplicateId, UnknownId
from penstock.content.matching import Matcher, cell_index, cluster
from penstock.content.matching import cluster as block
from penstock.content.messages import Operator, Predicate, Publication, Subscription
from penstock.content.parser import parse_subscription
from penstock.content.relations import satisfies
from tests.content.strategies import publications, subscriptions
from tests.content.worlds import filters, happenings, narrow, ranges, seeds


def by_going_through(
    wanted: dict[int, Subscription], publication: Publication, strict: bool
) -> set[int]:
    return {key for key, one in wanted.items() if satisfies(publication, one, strict)}


@settings(max_examples=60)
@given(seeds, st.integers(1, 700), st.booleans())
def test_it_finds_what_going_through_all_finds(random: Random, count: int, strict: bool) -> None:
    matcher: Matcher[int] = Matcher(strict)
    wanted: dict[int, Subscription] = {}

    def insert(first: int, more: int) -> None:
        for key, one in enumerate(filters(random, more), first):
            wanted[key] = Subscription("k", one)
            matcher.insert(key, wanted[key])

    def check() -> None:
        for publication in happenings(random, 4):
            found = matcher.match(publication)
            assert len(set(found)) == len(found)
            assert set(found) == by_going_through(wanted, publication, strict)

    insert(0, count)
    check()
    for key in random.sample(sorted(wanted), count * 3 // 4):
        matcher.remove(key)
        del wanted[key]
    check()
    insert(10_000, 40)
    check()
    for key in list(wanted):
        matcher.remove(key)
    assert len(matcher) == 0
    assert matcher.match(Publication("k", {})) == []


@pytest.mark.parametrize("largest", [64, 256, 4096])
@pytest.mark.parametrize("small", [0, 4096])
@pytest.mark.parametrize("shape", ["anything", "ranges"])
def test_it_does_not_matter_how_blocks_are_made(
    monkeypatch: pytest.MonkeyPatch, largest: int, small: int, shape: str
) -> None:
    monkeypatch.setattr(cluster, "_LARGEST", largest)
    monkeypatch.setattr(block, "_SMALL", small)
    random = Random(largest + small)
    world = filters(random, 1500) if shape == "anything" else ranges(random, 1500)
    matcher: Matcher[int] = Matcher()
    wanted = {key: Subscription("k", one) for key, one in enumerate(world)}
    for key, one in wanted.items():
        matcher.insert(key, one)
    for key in random.sample(sorted(wanted), 700):
        matcher.remove(key)
        del wanted[key]

    for publication in happenings(random, 25):
        found = by_going_through(wanted, publication, False)
        assert sorted(matcher.match(publication)) == sorted(found)


@settings(max_examples=40)
@given(seeds, st.integers(1, 400), st.sampled_from((3, 40, 1024)))
def test_narrow_ranges_are_found_at_their_ends_and_between(
    random: Random, count: int, room: int
) -> None:
    matcher: Matcher[int] = Matcher()
    wanted = {key: Subscription("k", one) for key, one in enumerate(narrow(random, count))}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            cell_index, "MAX_CELL_FILTERS", room
        )  # what finds a cell full lies elsewhere
        for key, one in wanted.items():
            matcher.insert(key, one)
    for key in random.sample(sorted(wanted), count // 2):
        matcher.remove(key)
        del wanted[key]

    for one in random.sample(list(wanted.values()), min(10, len(wanted))):
        low, high = (predicate.operand for predicate in one.predicates[:2])
        assert isinstance(low, float)
        assert isinstance(high, float)
        for value in (low, high, (low + high) / 2, nextafter(low, -inf), nextafter(high, inf)):
            publication = Publication("k", {"a": value, "b": 1, "c": "ab"})
            found = by_going_through(wanted, publication, False)
            assert sorted(matcher.match(publication)) == sorted(found)


@pytest.mark.parametrize("room", [5, 60])
def test_more_may_ask_for_a_value_than_a_cell_has_room_for(
    monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr(cell_index, "MAX_CELL_FILTERS", room)
    monkeypatch.setattr(cell_index, "MAX_RESIDUAL_FILTERS", 2)
    random = Random(room)
    equal = Predicate("d", Operator.EQ, "a")
    matcher: Matcher[int] = Matcher()
    wanted = {key: Subscription("k", (equal, *one)) for key, one in enumerate(filters(random, 300))}
    for key, one in wanted.items():
        matcher.insert(key, one)

    for publication in happenings(random, 30):
        publication = Publication("k", {**publication.attributes, "d": "a"})
        found = by_going_through(wanted, publication, False)
        assert sorted(matcher.match(publication)) == sorted(found)
    for key in wanted:
        matcher.remove(key)
    assert len(matcher) == 0
    assert matcher.match(Publication("k", {"d": "a"})) == []


def test_attributes_that_come_later_are_asked_for_as_well() -> None:
    matcher: Matcher[str] = Matcher()
    for number in range(40):  # more than columns have lines for
        for low in range(10):
            text = f"[class,eq,k],[d,eq,a],[n{number},>,{low}]"
            matcher.insert(f"{number}>{low}", parse_subscription(text))

    for number in range(40):
        found = matcher.match(Publication("k", {"d": "a", f"n{number}": 3}))
        assert sorted(found) == [f"{number}>{low}" for low in range(3)]


@given(st.lists(subscriptions(), max_size=20), publications())
def test_classes_are_apart(world: list[Subscription], publication: Publication) -> None:
    matcher: Matcher[int] = Matcher()
    for key, one in enumerate(world):
        matcher.insert(key, one)

    found = by_going_through(dict(enumerate(world)), publication, False)
    assert set(matcher.match(publication)) == found


def test_a_key_is_used_once() -> None:
    matcher: Matcher[str] = Matcher()
    matcher.insert("a", parse_subscription("[class,eq,k]"))

    with pytest.raises(DuplicateId, match="duplicate subscription id a"):
        matcher.insert("a", parse_subscription("[class,eq,k]"))
    assert matcher["a"] == parse_subscription("[class,eq,k]")


def test_what_is_not_there_cannot_be_removed() -> None:
    with pytest.raises(UnknownId):
        Matcher[str]().remove("a")


def test_more_attributes_than_there_can_be_lanes() -> None:
    random = Random(1)
    matcher: Matcher[int] = Matcher()
    names = [f"n{number}" for number in range(700)]
    wanted = {}
    for key in range(800):
        chosen = random.sample(names, 2)
        predicates = (
            Predicate(chosen[0], Operator.GREATER, random.randint(0, 9)),
            Predicate(chosen[1], random.choice((Operator.PREFIX, Operator.CONTAINS)), "a"),
        )
        wanted[key] = Subscription("k", predicates)
        matcher.insert(key, wanted[key])

    for _ in range(20):
        held = {name: random.choice((3, 8, "ab", "ba", "c")) for name in random.sample(names, 300)}
        publication = Publication("k", held)
        found = by_going_through(wanted, publication, False)
        assert sorted(matcher.match(publication)) == sorted(found)
