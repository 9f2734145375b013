"""Fuzzes the filters that users write: SQL filters of AMQP 1.0, and patterns.

    PYTHONPATH=. python packages/penstock/tests/fuzz/fuzz_filters.py -runs=1000000

Coverage-guided, by atheris. An input is one choice of a parser and a text, of whose bytes some are
words of the language. A parser may refuse it by the error it promises; anything else is a finding.
What it accepts is evaluated.
"""

from __future__ import annotations

from contextlib import suppress

import atheris

with atheris.instrument_imports(
    include=["penstock.core.linear_regex", "penstock.protocols.amqp10.sql_filter"]
):
    from penstock.core.errors import PreconditionFailed
    from penstock.core.linear_regex import LinearRegex
    from penstock.protocols.amqp10.sql_filter import MessageFields, SqlFilter
    from tests.fuzz_input import compose_text, run_fuzzer

SQL_WORDS = (
    *(" AND ", " OR ", " NOT ", " LIKE ", " ESCAPE ", " IN (", " IS NULL", " IS NOT NULL", "="),
    *("<>", "<=", ">", "+", "-", "*", "/", "%", "(", ")", "'a%'", "'_'", "'!%'", "0xFF", "1.5e3"),
    *("UTC()", "properties.subject", "h.priority", "a.region", "[x y]", "TRUE", "region", "7", ","),
    *(" BETWEEN ", "1e999", "9" * 30, "''", "p.creation-time", "é"),
)
PATTERN_WORDS = (
    *("^", "$", "(", ")", "(?:", "(?P<a>", "|", "*", "+", "?", "{2,3}", "{255}", "{,}", "[a-z]"),
    *("[^", "]", "\\d", "\\w", "\\x41", "\\u0041", ".", "(?i)", "\\A", "\\Z", "\\.", "é"),
)
FIELDS = MessageFields(
    {"priority": 4, "durable": True},
    {"subject": "order.1", "creation_time": 5},
    {"region": "EU", "x y": 1.5, "blob": b"\xff"},
)


def fuzz_sql(data: bytes) -> None:
    with suppress(PreconditionFailed):
        SqlFilter(compose_text(data, SQL_WORDS))(FIELDS)


def fuzz_pattern(data: bytes) -> None:
    cut = data[0] if data else 0
    with suppress(ValueError):
        pattern = LinearRegex(compose_text(data[1 : 1 + cut], PATTERN_WORDS))
        pattern.search(compose_text(data[1 + cut :], PATTERN_WORDS))


TARGETS = (fuzz_sql, fuzz_pattern)


def fuzz(data: bytes) -> None:
    if data:
        TARGETS[data[0] % len(TARGETS)](data[1:])


if __name__ == "__main__":
    run_fuzzer(fuzz)
