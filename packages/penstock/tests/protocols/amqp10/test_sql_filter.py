"""SQL filter expressions: what they select, what is refused, and what they may cost."""

from __future__ import annotations

import re
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import PreconditionFailed
from penstock.protocols.amqp10.sql_filter import LikePattern, MessageFields, SqlFilter
from penstock.wire.amqp10.values import Symbol, Timestamp, UByte

MESSAGE = MessageFields(
    {"durable": True, "priority": 7, "ttl": None, "first_acquirer": False, "delivery_count": 0},
    {"subject": "order.new", "message_id": "m-1", "creation_time": 1000, "user_id": b"\x01\xff"},
    {
        "region": "EU",
        "weight": 5,
        "price": 2.5,
        "ripe": True,
        "odd name": 1,
        "a]b": 2,
        "it": "it's",
        "AND": 1,
        "percent": "100%",
    },
)

TRUE = [
    "region = 'EU'",
    "a.region = 'EU'",
    "application_properties.region = 'EU'",
    "region <> 'US' and REGION is null",
    "it = 'it''s'",
    "[odd name] = 1",
    "a.[odd name] = 1",
    "[a]]b] = 2",
    "[AND] = 1",
    "weight > 4 AND weight >= 5 AND weight < 6 AND weight <= 5 AND weight != 6",
    "weight + 1 * 2 = 7",
    "(weight + 1) * 2 = 12",
    "weight - 2 - 1 = 2",
    "-weight = -5 AND +weight = 5 AND - -weight = 5",
    "weight / 2 = 2 AND -weight / 2 = -2 AND weight % 3 = 2 AND -weight % 3 = -2",
    "price * 2 = 5 AND price / 2 = 1.25 AND price > 2",
    "weight = 5.0 AND weight = 5e0 AND price = .25e1",
    "ripe",
    "ripe = TRUE AND NOT ripe = FALSE",
    "NOT NOT ripe",
    "header.priority = 7 AND h.durable",
    "h.delivery-count = 0 AND h.delivery_count = 0 AND NOT h.first_acquirer",
    "properties.subject LIKE 'order.%' AND p.subject NOT LIKE 'order.old'",
    "p.creation-time < UTC() AND p.message-id = 'm-1' AND p.message_id = 'm-1'",
    "p.user_id = 0x01FF",
    "region IN ('US', 'EU') AND weight IN (1, 2 + 3) AND region NOT IN ('US')",
    "missing IS NULL AND region IS NOT NULL AND p.to IS NULL",
    "missing = 1 OR ripe",
    "ripe OR missing",
    "NOT (missing = 1 AND NOT ripe)",
    "percent LIKE '100!%' ESCAPE '!'",
    "region LIKE '__' AND region LIKE '%' AND region LIKE 'E%' AND region LIKE '%U'",
    "region < 'F' AND 'A' < region",
    "region <> 5 AND NOT region = 5 AND region NOT IN (5) AND NOT region > 5",
]
NOT_TRUE = [
    "FALSE",
    "missing",
    "missing = 1",
    "missing <> 1",
    "NOT missing = 1",
    "missing = missing",
    "missing IN (1)",
    "missing NOT IN (1)",
    "missing LIKE '%'",
    "missing NOT LIKE '%'",
    "missing + 1 = 1",
    "region = 5",
    "missing NOT IN (1, 2)",
    "region NOT IN ('US', missing)",
    "ripe > FALSE AND region > 5",
    "region + 1 = 1",
    "weight / 0 = 1",
    "weight % 0 = 1 OR price / 0 = 1",
    "weight",
    "region",
    "region = 'eu'",
    "weight LIKE '5'",
    "region LIKE 'E'",
    "region LIKE '_'",
    "h.ttl > 0",
    "ripe AND missing",
]


@pytest.mark.parametrize("text", TRUE)
def test_selected(text: str) -> None:
    assert SqlFilter(text)(MESSAGE)


@pytest.mark.parametrize("text", NOT_TRUE)
def test_not_selected(text: str) -> None:
    assert not SqlFilter(text)(MESSAGE)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "unexpected the end at position 0"),
        ("a =", "unexpected the end at position 3"),
        ("a = 1 1", "at position 6"),
        ("a = 'x", "unexpected text at position 3"),
        ("a == 1", "at position 3"),
        ("(a = 1", "unexpected the end"),
        ("a NOT = 1", "at position 6"),
        ("a LIKE b", "a text in quotes is expected at position 7"),
        ("a LIKE 'x' ESCAPE 'ab'", "one character"),
        ("a LIKE 'x!' ESCAPE '!'", "ESCAPE"),
        ("a LIKE 'x!y' ESCAPE '!'", "ESCAPE"),
        ("a IN ()", "at position 6"),
        ("a IS 1", "at position 5"),
        ("h.subject = 1", "unknown field 'h.subject'"),
        ("x.subject = 1", "unknown field 'x.subject'"),
        ("p.colour = 1", "unknown field"),
        ("1a = 1", "position 0"),
        ("UTC = 1", "at position 4"),
        ("a BETWEEN 1 AND 2", "BETWEEN"),
        ("a; b", "position 1"),
        ("a = 'x'" * 1000, "longer than 4096"),
        ("+".join(["1"] * 300), "more than 400"),
        ("(" * 60 + "a" + ")" * 60, "deeper than 50"),
        ("NOT " * 60 + "a", "deeper than 50"),
        ("-" * 60 + "1 = 1", "deeper than 50"),
        (f"a LIKE '{'x' * 300}'", "longer than 256"),
    ],
)
def test_refused(text: str, reason: str) -> None:
    with pytest.raises(PreconditionFailed, match=re.escape(reason)):
        SqlFilter(text)


PATTERNS = st.text("ab%_", max_size=8)


@given(PATTERNS, st.text("ab", max_size=12))
def test_like_is_the_regular_expression(pattern: str, text: str) -> None:
    regex = "".join({"%": ".*", "_": "."}.get(char, char) for char in pattern)
    assert LikePattern(pattern, "")(text) is (re.fullmatch(regex, text, re.DOTALL) is not None)


@given(st.text(max_size=40))
@settings(max_examples=300)
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    with suppress(PreconditionFailed):
        SqlFilter(text)(MESSAGE)


@pytest.mark.parametrize("pattern", ["%_" * 128, "%a" * 128, "%" + "a" * 254 + "b", "%a_" * 85])
def test_no_pattern_is_expensive(pattern: str) -> None:
    """Backtracking over these would take longer than the universe has been there."""
    assert isinstance(LikePattern(pattern, "")("a" * 60_000 + "c"), bool)


def test_a_number_of_the_wire_is_a_number() -> None:
    fields: dict[str, Any] = {"n": UByte(3), "t": Timestamp(5), "s": Symbol("x")}
    assert SqlFilter("n = 3 AND t > 4 AND s = 'x'")(MessageFields({}, {}, fields))
