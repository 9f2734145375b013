"""Pages of rows, as the sections of the console show them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock.core.errors import PreconditionFailed
from penstock.core.list_page import page_of

FLOWS = [
    {"flow": "roads", "state": "running", "lag": {"messages": 7}},
    {"flow": "hives", "state": "failed", "lag": {"messages": None}},
    {"flow": "rivers", "state": "running", "lag": {"messages": 12}},
]


def names(**query: str) -> list[str]:
    return [row["flow"] for row in page_of(FLOWS, query)["items"]]


def test_a_page_is_a_part_with_the_counts() -> None:
    page = page_of(FLOWS, {"page": "2", "page_size": "2"})
    assert page == {
        "filtered_count": 3,
        "item_count": 1,
        "items": FLOWS[2:],
        "page": 2,
        "page_count": 2,
        "page_size": 2,
        "total_count": 3,
    }


def test_rows_are_sorted_by_what_a_field_holds() -> None:
    assert names(sort="lag.messages", sort_reverse="true") == ["rivers", "roads", "hives"]
    assert names(sort="flow") == ["hives", "rivers", "roads"]
    assert names() == ["roads", "hives", "rivers"]


def test_a_text_is_looked_for_in_all_texts_of_a_row() -> None:
    assert names(name="running") == ["roads", "rivers"]
    assert names(name="^ri", use_regex="true") == ["rivers"]
    assert page_of(FLOWS, {"name": "hives"})["total_count"] == 3


def test_what_is_not_a_regular_expression_is_refused() -> None:
    with pytest.raises(PreconditionFailed, match="is not a regular expression"):
        names(name="(", use_regex="true")


@given(count=some.integers(0, 40), page=some.integers(1, 12), size=some.integers(1, 9))
def test_instead_of_a_page_that_is_not_there_the_last_one_is_given(
    count: int, page: int, size: int
) -> None:
    rows: list[dict[str, Any]] = [{"n": n} for n in range(count)]
    found = page_of(iter(rows), {"page": page, "page_size": size})
    last = min(page, found["page_count"])
    assert found["page"] == last
    assert found["items"] == rows[(last - 1) * size : last * size]
