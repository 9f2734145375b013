"""Responses with ETags, pages of lists, and the route class of public reads.

`If-None-Match` makes a response that has not changed a 304. `If-Match` is checked in the
transaction that makes the change (`encoding.check_if_match`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Annotated, Any, Final, Generic, TypeVar

from fastapi import Header, Query
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from penstock_hives.api.dependencies import get_resources, read_public
from penstock_hives.encoding import encode_json, etag_of
from penstock_hives.queries import PageQuery

PRIVATE: Final = "private, no-cache"
PUBLIC: Final = "public, max-age=15"

IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        max_length=1000,
        description="The ETag that the change is based on; 412 if the resource has changed.",
    ),
]
Limit = Annotated[int, Query(ge=1, le=100, description="The number of items on a page.")]
Cursor = Annotated[str | None, Query(max_length=400, description="The `next` of the page before.")]

#: For endpoints without other query parameters.
Paging = Annotated[PageQuery, Query()]

T = TypeVar("T")
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


class Page(BaseModel, Generic[T]):
    items: list[T]
    next: str | None = None
    """The cursor of the next page; null on the last."""


class PublicRoute(APIRoute):
    """A read that anonymous and free callers get from the cache, paying callers from the database.

    Without a cache (`Resources.public`) all callers read from the database.
    """

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()

        async def read(request: Request) -> Response:
            public = get_resources(request).public
            if public is not None and not (await read_public(request)).reads_live:
                page = public.find(request.url.path, request.url.query)
                if page is not None:
                    headers = {name.decode(): value.decode() for name, value in page.headers}
                    return Response(page.body, page.status, headers)
            return await handle(request)

        return read


def etag_response(request: Request, value: Any, cache: str = PRIVATE) -> Response:
    """The value as JSON, or 304 if the client has it."""
    body = encode_json(value)
    tag = etag_of(body)
    headers = {"ETag": tag, "Cache-Control": cache}
    if _contains(request.headers.get("if-none-match"), tag):
        return Response(None, 304, headers)
    return Response(body, 200, headers, "application/json")


def _contains(if_none_match: str | None, tag: str) -> bool:
    if if_none_match is None:
        return False
    tags = [each.strip().removeprefix("W/") for each in if_none_match.split(",")]
    return tag in tags or "*" in tags
