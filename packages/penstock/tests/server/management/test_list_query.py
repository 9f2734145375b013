from __future__ import annotations

import asyncio
from unittest import mock

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as some

from penstock.server.management import list_query
from penstock.server.management.list_query import _named, _select, _sorted
from tests.server.management.given import publish, queue


@pytest.fixture
async def listed(api: httpx.AsyncClient) -> httpx.AsyncClient:
    """The API of a broker with the queues a0 to a4 and b; a3 holds two messages, a1 one."""
    for name in ("a0", "a1", "a2", "a3", "a4", "b"):
        await queue(api, name)
    for name in ("a3", "a1", "a3"):
        await publish(api, name)
    return api


async def test_a_page_says_how_many_there_are(listed: httpx.AsyncClient) -> None:
    page = (await listed.get("/queues?page=2&page_size=2&name=a&columns=name")).json()

    assert page == {
        "filtered_count": 5,
        "item_count": 2,
        "items": [{"name": "a2"}, {"name": "a3"}],
        "page": 2,
        "page_count": 3,
        "page_size": 2,
        "total_count": 6,
    }


async def test_names_are_found_by_a_pattern(listed: httpx.AsyncClient) -> None:
    page = (await listed.get("/queues?page=1&name=^[a][34]&use_regex=true&columns=name")).json()

    assert [row["name"] for row in page["items"]] == ["a3", "a4"]


async def test_a_pattern_that_would_backtrack_for_years_is_answered(
    listed: httpx.AsyncClient,
) -> None:
    await queue(listed, "a" * 40 + "!")

    page = await listed.get("/queues", params={"page": 1, "name": "(a+)+$", "use_regex": "true"})

    assert page.json()["filtered_count"] == 0


async def test_lists_are_sorted_by_any_column(listed: httpx.AsyncClient) -> None:
    rows = (await listed.get("/queues?sort=messages&sort_reverse=true&columns=name")).json()

    assert [row["name"] for row in rows][:2] == ["a3", "a1"]


async def test_a_column_that_is_nowhere_changes_no_order(listed: httpx.AsyncClient) -> None:
    assert (await listed.get("/queues?sort=none.such")).status_code == 200


@pytest.mark.parametrize(
    ("query", "word"),
    [
        ("page=0", "invalid_pagination_parameters"),
        ("page=x", "invalid_pagination_parameters"),
        ("page=²", "invalid_pagination_parameters"),
        ("page=" + "1" * 5000, "invalid_pagination_parameters"),
        ("page=1&page_size=²", "invalid_pagination_parameters"),
        ("page=1&page_size=501", "invalid_pagination_parameters"),
        ("page=9", "page_out_of_range"),
        ("page=1&name=(&use_regex=true", "bad_request"),
        (r"page=1&name=(a)\1&use_regex=true", "bad_request"),
    ],
)
async def test_a_page_that_is_none_is_refused(
    listed: httpx.AsyncClient, query: str, word: str
) -> None:
    answer = await listed.get(f"/queues?{query}")

    assert (answer.status_code, answer.json()["error"]) == (400, word)


async def test_columns_reach_into_what_they_hold(listed: httpx.AsyncClient) -> None:
    answer = await listed.get("/overview?columns=node,object_totals.queues,none,message_stats.none")

    assert answer.json().keys() == {"node", "object_totals"}
    assert answer.json()["object_totals"] == {"queues": 6}


ROWS = some.lists(some.fixed_dictionaries({"name": some.text(max_size=4)}))


@given(rows=ROWS, name=some.text(max_size=2))
def test_the_filter_keeps_what_holds_the_name(rows: list[dict[str, str]], name: str) -> None:
    found = asyncio.run(_named(list(rows), {"name": name}, lambda row: [row["name"]]))

    assert found == [row for row in rows if name in row["name"]]


@given(
    rows=some.lists(some.tuples(some.integers(0, 5), some.integers())),
    reverse=some.booleans(),
    run_length=some.integers(1, 9),
)
def test_sorting_in_runs_is_sorting(
    rows: list[tuple[int, int]], reverse: bool, run_length: int
) -> None:
    query = {"sort": "first", "sort_reverse": str(reverse).lower()}

    with mock.patch.object(list_query, "RUN_LENGTH", run_length):
        found = asyncio.run(_sorted(rows, query, lambda row: row[0]))

    assert found == sorted(rows, key=lambda row: row[0], reverse=reverse)


@given(row=some.dictionaries(some.sampled_from("abc"), some.integers()))
def test_selecting_every_column_selects_the_row(row: dict[str, int]) -> None:
    assert _select(row, [[key] for key in row]) == row
