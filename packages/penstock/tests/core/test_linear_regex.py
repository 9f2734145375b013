"""Patterns of filters: what `re` finds, in time that grows with the name only."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock.core.linear_regex import MAX_PATTERN_STEPS, LinearRegex

#: Patterns of all that is supported, over an alphabet small enough to match often.
ATOMS = some.sampled_from(["a", "b", "ab", ".", "[ab]", "[^a]", r"\w", r"\.", "^", "$", "[]a]"])
PATTERNS = some.recursive(
    ATOMS,
    lambda inner: some.one_of(
        some.builds("({})".format, inner),
        some.builds("(?:{}){}".format, inner, some.sampled_from(["*", "+", "?", "{2}", "{1,3}"])),
        some.builds("(?:{}){}".format, inner, some.sampled_from(["*?", "{0,}", "{0}", "{,2}?"])),
        some.builds("{}|{}".format, inner, inner),
        some.builds("{}{}".format, inner, inner),
        some.builds("{}|".format, inner),
    ),
    max_leaves=6,
)


@given(
    pattern=PATTERNS, name=some.text("ab.]x", max_size=8), prefix=some.sampled_from(["", "(?i)"])
)
def test_it_finds_what_re_finds(pattern: str, name: str, prefix: str) -> None:
    found = LinearRegex(prefix + pattern).search(name)

    assert found is (re.search(prefix + pattern, name) is not None)


@pytest.mark.parametrize("text", ["a{", "a{,", "a{b}", "{", "}", "]", "a{2", "{}", "x{}"])
def test_braces_that_count_nothing_are_characters(text: str) -> None:
    assert LinearRegex(text).search(f"-{text}-")


@pytest.mark.parametrize(
    "text",
    [
        *("(", ")", "a)", "(a", "[", "[a", "*", "a**", "a*{2}", "a*+", "(*)", "\\", "a{3,2}"),
        *(r"(a)\1", "(?=a)", "(?!a)", "(?<=a)b", r"\ba", "(?P=x)", "(?>a)", "a(?i)"),
        *("a" * 257, "(a{99}){99}", "(((a{99}){99}){99}){99}", "(" * 40 + ")" * 40, "[z-a]"),
    ],
)
def test_what_is_no_pattern_or_not_supported_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        LinearRegex(text)


@pytest.mark.parametrize("text", ["(a+)+$", "(a|aa)+$", "(a*)*b", "(.*)*x", "(.*a){12}x"])
def test_no_pattern_takes_more_steps_than_the_name_has_characters(text: str) -> None:
    pattern = LinearRegex(text)
    name = "a" * 200 + "!"

    assert not pattern.search(name)
    assert len(pattern._steps) <= len(name)


def test_steps_that_are_remembered_are_bounded() -> None:
    pattern = LinearRegex("x")
    for number in range(MAX_PATTERN_STEPS + 10):
        pattern.search(chr(0x4E00 + number))

    assert len(pattern._steps) <= MAX_PATTERN_STEPS
