"""A page of a list of rows: selected by a text, sorted by a field, with the counts.

The parameters and members are those of RabbitMQ's API. A field is a path: `lag.messages`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from penstock.core.errors import PreconditionFailed
from penstock.core.linear_regex import LinearRegex
from penstock.core.units import parse_count

Row = dict[str, Any]

PAGE_SIZE: Final = 100
MAX_PAGE_SIZE: Final = 500


def page_of(rows: Iterable[Row], query: Mapping[str, Any]) -> Row:
    """The text `name` is looked for in all texts of a row. Without `sort` the order stays, and only
    the page is kept. Instead of a page that is not there any more, the last one."""
    page, size = page_numbers(query)
    if query.get("sort"):
        order = str(query["sort"]).split(".")
        reverse = query.get("sort_reverse") == "true"
        rows = sorted(rows, key=lambda row: rank(value_at(row, order)), reverse=reverse)
    is_found = _search(query)
    shown: list[Row] = []
    total = filtered = 0
    for row in rows:
        total += 1
        if not is_found(row):
            continue
        if len(shown) == size and filtered < page * size:
            shown.clear()
        filtered += 1
        if filtered <= page * size:
            shown.append(row)
    return {**page_frame(page, size, filtered, total), "item_count": len(shown), "items": shown}


def page_numbers(query: Mapping[str, Any]) -> tuple[int, int]:
    """The page and its size."""
    page = parse_count(str(query.get("page", 1))) or 1
    size = parse_count(str(query.get("page_size", PAGE_SIZE))) or PAGE_SIZE
    return page, min(size, MAX_PAGE_SIZE)


def page_frame(page: int, size: int, filtered: int, total: int) -> Row:
    """A page without its items."""
    count = max(-(-filtered // size), 1)
    return {
        "filtered_count": filtered,
        "page": min(page, count),
        "page_count": count,
        "page_size": size,
        "total_count": total,
    }


def _search(query: Mapping[str, Any]) -> Callable[[Row], bool]:
    name = str(query.get("name") or "")
    if query.get("use_regex") != "true":
        return lambda row: not name or any(name in text for text in _texts(row))
    try:
        pattern = LinearRegex(name)
    except (ValueError, re.error) as error:
        raise PreconditionFailed(f"{name!r} is not a regular expression: {error}") from None
    return lambda row: any(pattern.search(text) for text in _texts(row))


def _texts(row: Row) -> Iterator[str]:
    return (value for value in row.values() if isinstance(value, str))


def value_at(row: Any, path: list[str]) -> Any:
    for key in path:
        row = row.get(key) if isinstance(row, dict) else None
    return row


def rank(value: Any) -> tuple[int, Any]:
    """Orders null before numbers before strings."""
    if value is None:
        return 0, 0
    if isinstance(value, bool | int | float):
        return 1, value
    return 2, str(value)
