"""What is printed reads back as what it was."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.content.formatter import format_message
from penstock.content.messages import (
    Advertisement,
    CompositeSubscription,
    Operator,
    Predicate,
    Publication,
    Subscription,
)
from penstock.content.parser import (
    format_time,
    parse_advertisement,
    parse_composite,
    parse_publication,
    parse_subscription,
    parse_time,
)
from tests.content.strategies import advertisements, composites, publications, subscriptions


def test_the_form() -> None:
    time = datetime(2008, 6, 19, 17, 14, 58, tzinfo=UTC)
    message = Publication("stock", {"name": "IBM", "price": 45, "high": 46.5}, time)

    assert format_message(message) == (
        '[class,stock],[name,"IBM"],[price,45],[high,46.5];Thu Jun 19 17:14:58 GMT 2008;'
    )


@given(subscriptions())
def test_subscriptions(message: Subscription) -> None:
    assert parse_subscription(format_message(message), several=True) == message


@given(advertisements())
def test_advertisements(message: Advertisement) -> None:
    assert parse_advertisement(format_message(message), several=True) == message


@given(composites)
def test_composite_subscriptions(message: CompositeSubscription) -> None:
    assert parse_composite(format_message(message), several=True) == message


@given(publications(st.one_of(st.text(), st.floats(allow_nan=False, allow_infinity=False))))
def test_publications(message: Publication) -> None:
    assert parse_publication(format_message(message)) == message


@given(st.text())
def test_any_text(text: str) -> None:
    message = Subscription(text, (Predicate("a", Operator.EQ, text),))

    assert parse_subscription(format_message(message)) == message


@given(st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC)))  # noqa: DTZ001
def test_times(time: datetime) -> None:
    assert parse_time(format_time(time)) == time.replace(microsecond=0)


def test_order_does_not_matter_to_equality() -> None:
    left = parse_subscription("[class,eq,k],[a,>,1],[b,eq,x]")
    right = parse_subscription("[class,eq,k],[b,eq,'x'],[a,>,1]")

    assert left == right
    assert hash(left) == hash(right)


def test_time_and_payload_do_not_matter_to_equality() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    assert Publication("k", {"a": 1}, now, b"payload") == Publication("k", {"a": 1})


def test_an_attribute_that_cannot_be_written_is_not() -> None:
    with pytest.raises(ValueError, match="two words"):
        format_message(Publication("k", {"two words": 1}))
