"""Lists as in RabbitMQ's API: sorting, filtering by name, pagination, selection of columns.

Without `page` the response is a list, with it an object with the page and the counts. Rows are
encoded in slices, so that a list of ten thousand queues does not block other clients.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeVar

from penstock.core.linear_regex import LinearRegex
from penstock.core.units import parse_count
from penstock.server.management.api_call import ApiCall, iterate_in_slices
from penstock.server.management.http import (
    JSON_HEADERS,
    ApiError,
    HttpResponse,
    bad_request,
    encode_json,
)

Row = dict[str, Any]


class HasName(Protocol):
    @property
    def name(self) -> str: ...


Item = TypeVar("Item")
Named = TypeVar("Named", bound=HasName)

PAGE_SIZE: Final = 100
MAX_PAGE_SIZE: Final = 500
#: How long names are matched before the event loop continues.
SLICE_SECONDS: Final = 0.01


async def list_response(
    call: ApiCall, rows: Iterable[Row], searched: tuple[str, ...] = ("name",)
) -> HttpResponse:
    """The parameter `name` is looked for in the fields `searched`."""
    query = call.request.query
    every = [row async for row in iterate_in_slices(rows)]
    if "sort" in query:
        order = query["sort"].split(".")
        reverse = query.get("sort_reverse") == "true"
        every.sort(key=lambda row: _rank(_at(row, order)), reverse=reverse)
    if "page" not in query:
        columns = _columns(query.get("columns"))
        return HttpResponse(200, await _encoded(every, columns), JSON_HEADERS)
    paths = [field.split(".") for field in searched]
    found = await _named(every, query, lambda row: [str(_at(row, path) or "") for path in paths])
    return await _page_response(call, found, len(every), lambda row: row)


async def named_list_response(
    call: ApiCall, items: list[Named], describe: Callable[[Named], Row]
) -> HttpResponse:
    """As `list_response`; of a page that is sorted by name, only its rows are described."""
    query = call.request.query
    if "page" not in query or query.get("sort", "name") != "name":
        return await list_response(call, map(describe, items))
    found = await _named(items, query, lambda item: (item.name,))
    if "sort" in query:
        reverse = query.get("sort_reverse") == "true"
        found = sorted(found, key=lambda item: item.name, reverse=reverse)
    return await _page_response(call, found, len(items), describe)


async def _page_response(
    call: ApiCall, found: list[Item], total: int, describe: Callable[[Item], Row]
) -> HttpResponse:
    query = call.request.query
    page, size = _page(query.get("page", ""), query.get("page_size", str(PAGE_SIZE)))
    count = max(-(-len(found) // size), 1)
    if page > count:
        raise ApiError(
            400,
            "page_out_of_range",
            f"Page out of range, page: {page} page size: {size}, len: {len(found)}",
        )
    shown = [describe(item) for item in found[(page - 1) * size : page * size]]
    frame = {
        "filtered_count": len(found),
        "item_count": len(shown),
        "page": page,
        "page_count": count,
        "page_size": size,
        "total_count": total,
    }
    columns = _columns(query.get("columns"))
    body = encode_json(frame)[:-1] + b',"items":' + await _encoded(shown, columns) + b"}"
    return HttpResponse(200, body, JSON_HEADERS)


def is_wanted(call: ApiCall, field: str) -> bool:
    """Whether the parameter `columns` includes the field: some are expensive."""
    columns = _columns(call.request.query.get("columns"))
    return not columns or any(column[0] == field for column in columns)


def item_response(call: ApiCall, row: Row) -> HttpResponse:
    columns = _columns(call.request.query.get("columns"))
    return HttpResponse(200, encode_json(_select(row, columns) if columns else row), JSON_HEADERS)


async def _encoded(rows: list[Row], columns: list[list[str]]) -> bytes:
    pieces = [
        encode_json(_select(row, columns) if columns else row)
        async for row in iterate_in_slices(rows)
    ]
    return b"[" + b",".join(pieces) + b"]"


def _page(page: str, size: str) -> tuple[int, int]:
    number, rows = parse_count(page), parse_count(size, MAX_PAGE_SIZE)
    if not number or not rows:
        raise ApiError(
            400,
            "invalid_pagination_parameters",
            f"Invalid pagination parameters: page number {page}, page size {size}",
        )
    return number, rows


async def _named(
    items: list[Item], query: Mapping[str, str], names_of: Callable[[Item], Iterable[str]]
) -> list[Item]:
    """Those with a name that contains, or matches, the parameter `name`."""
    name = query.get("name", "")
    if not name:
        return items
    if query.get("use_regex") != "true":
        return [item for item in items if any(name in each for each in names_of(item))]
    try:
        pattern = LinearRegex(name)
    except (ValueError, re.error) as error:
        raise bad_request(f"{name!r} is not a regular expression for a list: {error}") from None
    found, began = [], time.monotonic()
    for item in items:
        if any(pattern.search(each) for each in names_of(item)):
            found.append(item)
        if time.monotonic() - began > SLICE_SECONDS:
            await asyncio.sleep(0)
            began = time.monotonic()
    return found


def _columns(text: str | None) -> list[list[str]]:
    return [column.split(".") for column in text.split(",")] if text else []


def _select(row: Row, columns: list[list[str]]) -> Row:
    chosen: Row = {}
    for column in columns:
        value = _at(row, column)
        if value is None and column[-1] not in row:
            continue
        target = chosen
        for key in column[:-1]:
            target = target.setdefault(key, {})
        target[column[-1]] = value
    return chosen


def _at(row: Any, path: list[str]) -> Any:
    for key in path:
        row = row.get(key) if isinstance(row, dict) else None
    return row


def _rank(value: Any) -> tuple[int, Any]:
    """Orders null before numbers before strings."""
    if value is None:
        return 0, 0
    if isinstance(value, bool | int | float):
        return 1, value
    return 2, str(value)
