"""What a session's subscriptions, taken together, grant to a topic."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.contract import EffectiveSubscription, TopicSubscription
from penstock.core.basic_properties import encode_route
from penstock.destinations.session.subscriptions import (
    SUBSCRIPTION_CACHE_SIZE,
    TopicSubscriptionSet,
)


def route(key: str) -> bytes:
    return encode_route("amq.topic", key)


def grants(*subscriptions: TopicSubscription) -> TopicSubscriptionSet:
    made = TopicSubscriptionSet()
    for subscription in subscriptions:
        made.add(subscription)
    return made


def facts(grant: EffectiveSubscription) -> tuple[int, tuple[int, ...], bool]:
    return grant.qos, grant.identifiers, grant.as_published


def test_overlapping_subscriptions_grant_the_best_and_tell_all_identifiers() -> None:
    made = grants(
        TopicSubscription("a.*", 1, 7),
        TopicSubscription("a.b", 2, 3),
        TopicSubscription("#", 0, as_published=True),
    )
    assert facts(made.of(route("a.b"))) == (2, (3, 7), True)
    assert facts(made.of(route("a.c"))) == (1, (7,), True)
    assert facts(made.of(route("x"))) == (0, (), True)


def test_what_nothing_matches_is_granted_nothing() -> None:
    assert grants(TopicSubscription("a", 1), TopicSubscription("b", 1)).of(route("c")).qos == -1


@pytest.mark.parametrize("pattern", ["#", "*.broker", "*.#"])
def test_a_wildcard_in_front_does_not_see_what_begins_with_a_dollar(pattern: str) -> None:
    made = grants(TopicSubscription(pattern, 1))
    assert made.only is None
    assert made.of(route("$SYS.broker")).qos == -1


def test_a_filter_that_names_it_does() -> None:
    assert (
        grants(TopicSubscription("$SYS.#", 1), TopicSubscription("#", 2)).of(route("$SYS.x")).qos
        == 1
    )


def test_ones_own_is_granted_only_what_does_not_mind() -> None:
    made = grants(TopicSubscription("a.#", 2, 1, no_local=True), TopicSubscription("a.b", 1, 2))
    assert made.no_local
    assert facts(made.of_own(route("a.b"))) == (1, (2,), False)
    assert made.of_own(route("a.c")).qos == -1
    assert facts(made.of(route("a.b"))) == (2, (1, 2), False)


def test_the_only_subscription_answers_for_all() -> None:
    made = grants(TopicSubscription("a.b", 1, 4))
    assert made.only is not None
    assert facts(made.only) == (1, (4,), False)
    made.add(TopicSubscription("c", 2))
    assert made.only is None


def test_a_filter_asked_for_again_replaces_what_it_was() -> None:
    made = grants(TopicSubscription("a", 1), TopicSubscription("b", 0))
    assert made.of(route("a")).qos == 1
    made.remove(TopicSubscription("a", 1))
    made.add(TopicSubscription("a", 2))
    assert made.of(route("a")).qos == 2


def test_answers_are_remembered_up_to_a_number() -> None:
    made = grants(TopicSubscription("a.#", 1), TopicSubscription("b", 0))
    for n in range(SUBSCRIPTION_CACHE_SIZE + 10):
        assert made.of(route(f"a.{n}")).qos == 1
    assert len(made._cache) <= SUBSCRIPTION_CACHE_SIZE


# Against the obvious way.

words = st.sampled_from(["a", "b", "", "$x"])
keys = st.lists(words, min_size=1, max_size=4).map(".".join).filter(bool)
filters = st.tuples(st.lists(words | st.just("*"), max_size=3), st.sampled_from([[], ["#"]])).map(
    lambda parts: ".".join(parts[0] + parts[1])
)


def matches(pattern: str, key: str) -> bool:
    if key.startswith("$") and pattern[:1] in ("*", "#"):
        return False
    if pattern == "#":
        return True
    spelled = re.escape(pattern).replace(r"\*", "[^.]*")
    if spelled.endswith(r"\.\#"):
        spelled = spelled.removesuffix(r"\.\#") + r"(\..*)?"
    return re.fullmatch(spelled, key) is not None


@given(
    st.dictionaries(filters.filter(bool), st.tuples(st.integers(0, 2), st.integers(0, 9))),
    st.lists(filters.filter(bool)),
    st.lists(keys, max_size=5),
)
def test_it_grants_what_looking_at_every_subscription_would(
    asked: dict[str, tuple[int, int]], removed: list[str], topics: list[str]
) -> None:
    made = TopicSubscriptionSet()
    for pattern, (qos, identifier) in asked.items():
        made.add(TopicSubscription(pattern, qos, identifier))
        made.of(route("a"))  # whatever is remembered must not be in the way
    for pattern in removed:
        if pattern in asked:
            made.remove(TopicSubscription(pattern, *asked.pop(pattern)))
    for key in topics:
        found = [wanted for pattern, wanted in asked.items() if matches(pattern, key)]
        expected = (
            max((qos for qos, _ in found), default=-1),
            tuple(sorted(identifier for _, identifier in found if identifier)),
            False,
        )
        assert facts(made.of(route(key))) == expected
