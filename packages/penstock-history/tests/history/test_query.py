"""Questions about the past: what they have to say, and what answers look like."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from penstock.content import (
    LanguageError,
    Publication,
    parse_advertisement,
    parse_subscription,
    satisfies,
)
from penstock.content.relations import conforms, intersects
from penstock.core.errors import PreconditionFailed
from penstock_history.query import answer_publication, parse_query, sample_publication

ASKED = (
    "[class,eq,'historic'],[subclass,eq,'stock'],[_query_id,eq,'q1'],[symbol,eq,'IBM'],"
    "[price,<,50],[_start_time,eq,'Thu Jun 19 17:14:58 GMT 2008']"
)


def test_a_question_is_a_subscription_to_the_past() -> None:
    query = parse_query(parse_subscription(ASKED))

    assert query is not None
    assert query.wanted == parse_subscription("[class,eq,stock],[symbol,eq,'IBM'],[price,<,50]")
    assert query.after == datetime(2008, 6, 19, 17, 14, 58, tzinfo=UTC)
    assert query.before is None


def test_a_subscription_to_the_present_is_none() -> None:
    assert parse_query(parse_subscription("[class,eq,stock],[price,<,50]")) is None


def test_answers_satisfy_the_question_and_nothing_of_the_present() -> None:
    subscription = parse_subscription(ASKED)
    query = parse_query(subscription)
    assert query is not None
    found = Publication("stock", {"symbol": "IBM", "price": 45.5, "volume": 3})

    answer = answer_publication(query, found)

    assert satisfies(answer, subscription)
    assert not satisfies(answer, query.wanted)
    assert answer.attributes["volume"] == 3


def test_an_advertisement_of_the_past_meets_the_question() -> None:
    spec = parse_subscription("[class,eq,stock],[symbol,isPresent,''],[price,>,0],[who,eq,$S$x]")
    sample = sample_publication(spec)
    words = ["" if isinstance(value, str) else 0 for value in sample.attributes.values()]
    predicates = ",".join(
        f"[{name},isPresent,{word!r}]" for name, word in zip(sample.attributes, words, strict=True)
    )
    advertisement = parse_advertisement(f"[class,eq,historic],{predicates}")
    query = parse_query(parse_subscription(ASKED))
    assert query is not None

    assert intersects(parse_subscription(ASKED), advertisement)
    assert conforms(answer_publication(query, Publication("stock", {"price": 1})), advertisement)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[class,eq,historic],[_query_id,eq,'q']", "subclass"),
        ("[class,eq,historic],[subclass,eq,'stock']", "_query_id"),
        ("[class,eq,historic],[subclass,eq,'s'],[_query_id,isPresent,'']", "_query_id"),
        ("[class,eq,historic],[subclass,str-prefix,'s'],[_query_id,eq,'q']", "subclass"),
    ],
)
def test_a_question_without_name_or_class_is_refused(text: str, problem: str) -> None:
    with pytest.raises(PreconditionFailed, match=problem):
        parse_query(parse_subscription(text))


def test_a_time_that_cannot_be_read_is_said() -> None:
    text = "[class,eq,historic],[subclass,eq,'s'],[_query_id,eq,'q'],[_end_time,eq,'yesterday']"
    with pytest.raises(LanguageError, match="a time such as"):
        parse_query(parse_subscription(text))
