"""Lists as in RabbitMQ's API: sorting, filtering by name, pagination, selection of columns.

Without `page` the response is a list, with it an object with the page and the counts. Rows are
encoded in slices, so that a list of ten thousand queues does not block other clients.
"""

from __future__ import annotations

import asyncio
import heapq
import re
from collections.abc import Callable, Iterable, Mapping
from operator import itemgetter
from typing import Any, Final, Protocol, TypeVar

from penstock.core.linear_regex import LinearRegex
from penstock.core.list_page import MAX_PAGE_SIZE, PAGE_SIZE, page_frame, rank, value_at
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

#: Rows that are sorted at once.
RUN_LENGTH: Final = 2000


async def list_response(
    call: ApiCall, rows: Iterable[Row], searched: tuple[str, ...] = ("name",)
) -> HttpResponse:
    """The parameter `name` is looked for in the fields `searched`."""
    query = call.request.query
    every = [row async for row in iterate_in_slices(rows)]
    order = query.get("sort", "").split(".")
    paths = [field.split(".") for field in searched]

    def texts(row: Row) -> list[str]:
        return [str(value_at(row, path) or "") for path in paths]

    found = await _named(every, query, texts) if "page" in query else every
    ordered = await _sorted(found, query, lambda row: rank(value_at(row, order)))
    if "page" in query:
        return await _page_response(call, ordered, len(every), lambda row: row)
    columns = _columns(query.get("columns"))
    return HttpResponse(200, await _encoded(ordered, columns), JSON_HEADERS)


async def named_list_response(
    call: ApiCall, items: list[Named], describe: Callable[[Named], Row]
) -> HttpResponse:
    """As `list_response`; of a page that is sorted by name, only its rows are described."""
    query = call.request.query
    if "page" not in query or query.get("sort", "name") != "name":
        return await list_response(call, map(describe, items))
    found = await _named(items, query, lambda item: (item.name,))
    ordered = await _sorted(found, query, lambda item: item.name)
    return await _page_response(call, ordered, len(items), describe)


async def _sorted(
    items: list[Item], query: Mapping[str, str], place: Callable[[Item], Any]
) -> list[Item]:
    """In slices: short runs are sorted, then merged. As of `sorted`, the order is stable."""
    if "sort" not in query:
        return items
    reverse = query.get("sort_reverse") == "true"
    placed = [(place(item), item) async for item in iterate_in_slices(items)]
    runs = []
    for start in range(0, len(placed), RUN_LENGTH):
        run = placed[start : start + RUN_LENGTH]
        runs.append(sorted(run, key=itemgetter(0), reverse=reverse))
        await asyncio.sleep(0)
    merged = heapq.merge(*runs, key=itemgetter(0), reverse=reverse)
    return [item async for _, item in iterate_in_slices(merged)]


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
    frame = {**page_frame(page, size, len(found), total), "item_count": len(shown)}
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
    if query.get("use_regex") == "true":
        try:
            is_found: Callable[[str], object] = LinearRegex(name).search
        except (ValueError, re.error) as error:
            raise bad_request(f"{name!r} is not a regular expression for a list: {error}") from None
    else:

        def is_found(text: str) -> object:
            return name in text

    return [
        item
        async for item in iterate_in_slices(items, 1)
        if any(is_found(each) for each in names_of(item))
    ]


def _columns(text: str | None) -> list[list[str]]:
    return [column.split(".") for column in text.split(",")] if text else []


def _select(row: Row, columns: list[list[str]]) -> Row:
    chosen: Row = {}
    for column in columns:
        value = value_at(row, column)
        if value is None and column[-1] not in row:
            continue
        target = chosen
        for key in column[:-1]:
            target = target.setdefault(key, {})
        target[column[-1]] = value
    return chosen
