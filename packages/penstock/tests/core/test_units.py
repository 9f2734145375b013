"""Sizes and durations as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock.core.units import (
    format_bytes,
    format_seconds,
    parse_bytes,
    parse_count,
    parse_seconds,
)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("65536", 65536),
        ("64KiB", 65536),
        ("64 kib", 65536),
        ("1.5 GB", 1_500_000_000),
        ("16GiB", 16 << 30),
        ("2TB", 2 * 10**12),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10", 10), ("10s", 10), ("500ms", 0.5), ("5m", 300), ("2h", 7200), ("1d", 86400)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "10 parsecs", "1e3", "1..5s", "9" * 400 + "d", "9" * 400 + ".5"]
)
def test_what_is_neither_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="a size such as"):
        parse_bytes(text)
    with pytest.raises(ValueError, match="a duration such as"):
        parse_seconds(text)


@given(some.integers(0, 1 << 60))
def test_a_size_that_is_printed_reads_as_the_same_size(size: int) -> None:
    assert parse_bytes(format_bytes(size)) == size


@given(some.integers(0, 10_000_000))
def test_a_duration_that_is_printed_reads_as_the_same_duration(milliseconds: int) -> None:
    seconds = milliseconds / 1000
    assert parse_seconds(format_seconds(seconds)) == pytest.approx(seconds, rel=1e-5)


@pytest.mark.parametrize(
    "text", ["", "²", "٣", "-1", "+1", "1_0", " 1", "1.0", "9" * 5000, "65536"]
)
def test_a_text_that_is_no_count_is_none(text: str) -> None:
    assert parse_count(text, 65535) is None


@given(some.integers(0, 65535))
def test_a_count_is_read_in_digits(number: int) -> None:
    assert parse_count(str(number), 65535) == number
