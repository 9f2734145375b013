"""Fuzzes the content language, and filters of messages.

    PYTHONPATH=. python packages/penstock/tests/fuzz/fuzz_content.py -runs=1000000

Coverage-guided, by atheris. An input is one choice of a parser and a text, of whose bytes some are
words of the language. A parser may refuse it by the error it promises; anything else is a finding.
What it accepts is evaluated, and must survive being written and read again.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime

import atheris

with atheris.instrument_imports(
    include=["penstock.content", "penstock.server.management.message_filter"]
):
    from penstock.broker.contract import Message
    from penstock.content import (
        format_message,
        parse_advertisement,
        parse_composite,
        parse_publication,
        parse_subscription,
    )
    from penstock.content.matching import Matcher
    from penstock.content.parser import parse_publication_by_grammar
    from penstock.content.relations import covers, covers_advertisement, intersects, satisfies
    from penstock.core.basic_properties import BasicProperties, encode_header, encode_route
    from penstock.core.errors import PenstockError
    from penstock.server.management.message_filter import FILTER_FIELDS, MessageFilter
    from tests.fuzz_input import Choices, compose_text, run_fuzzer

CONTENT_WORDS = (
    *("[class,eq,stock]", "[price,", "]", ",[", "eq,", "neq,", "<,", "<=,", ">,", ">=,"),
    *("isPresent,", "str-contains,", "str-prefix,", "str-postfix,", "str-le,", "'any'", "$S$X"),
    *("$I$X", "$F$Y", "{", "}", "&", "|", "{{[class,eq,a]}&{[class,eq,b]}}", "1", "-2.5", "1e300"),
    *("'a''b'", '"', ";", "[symbol,eq,'IBM']", "[class,stock],[price,45]", "é", "\U0001f600"),
    *("[class,eq,a]{1}", "[ 2026-05-31 12:00:00 ]", "Sun May 31 12:00:00 UTC 2026", "\n"),
)
STOCK = parse_publication("[class,stock],[symbol,IBM],[price,45]")
NOON = datetime(2026, 5, 31, 12, tzinfo=UTC)
SUBSCRIPTION = parse_subscription("[class,eq,stock],[price,<,50]")
ADVERTISEMENT = parse_advertisement("[class,eq,stock],[price,>,0]")
MESSAGE = Message(
    encode_route("", "a.b"),
    encode_header(BasicProperties(headers={"class": "stock", "price": 45}), 15),
    b'{"a": {"b": 1}}',
    0,
)


def fuzz_subscription(data: bytes) -> None:
    several = bool(data[:1] and data[0] & 1)
    read = parse_subscription(compose_text(data[1:], CONTENT_WORDS), several=several)
    assert parse_subscription(format_message(read), several=several) == read
    assert covers(read, read)
    covers(read, SUBSCRIPTION)
    covers(SUBSCRIPTION, read)
    intersects(read, ADVERTISEMENT)
    matcher: Matcher[str] = Matcher()
    matcher.insert("read", read)
    assert bool(matcher.match(STOCK)) == satisfies(STOCK, read)


def fuzz_advertisement(data: bytes) -> None:
    read = parse_advertisement(compose_text(data, CONTENT_WORDS))
    assert parse_advertisement(format_message(read)) == read
    assert covers_advertisement(read, read)
    intersects(SUBSCRIPTION, read)


def fuzz_composite(data: bytes) -> None:
    read = parse_composite(compose_text(data, CONTENT_WORDS))
    assert parse_composite(format_message(read)) == read


def fuzz_publication(data: bytes) -> None:
    """The scanner reads what the grammar reads."""
    text = compose_text(data, CONTENT_WORDS)
    try:
        by_grammar = parse_publication_by_grammar(text, lambda: NOON)
    except PenstockError:
        by_grammar = None
    try:
        read = parse_publication(text, lambda: NOON)
    except PenstockError:
        assert by_grammar is None
        raise
    assert read == by_grammar
    satisfies(read, SUBSCRIPTION)
    assert parse_publication(format_message(read)) == read


def fuzz_message_filter(data: bytes) -> None:
    words = (*CONTENT_WORDS, "a.#", "*", "#", "2026-05-31T12:00:00Z", "0001-01-01", '{"a": 1}', "[")
    MessageFilter(Choices(data).object(FILTER_FIELDS, words)).matches(MESSAGE)


TARGETS = (
    *(fuzz_subscription, fuzz_advertisement, fuzz_composite, fuzz_publication),
    fuzz_message_filter,
)


def fuzz(data: bytes) -> None:
    if data:
        with suppress(PenstockError):
            TARGETS[data[0] % len(TARGETS)](data[1:])


if __name__ == "__main__":
    run_fuzzer(fuzz)
