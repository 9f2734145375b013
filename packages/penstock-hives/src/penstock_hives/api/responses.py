"""Answers with an entity tag: not sent again to who has them, not overwritten unseen.

The tag is a digest of the body. `If-None-Match` makes an answer that has not changed a 304;
`If-Match` on a change is checked in the transaction that makes it (`Expected`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, Protocol, TypeVar

from fastapi import Header, Query
from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response

from penstock_hives.encoding import encode_json, etag_of
from penstock_hives.people.permissions import Caller

PRIVATE: Final = "private, no-cache"
PUBLIC: Final = "public, max-age=15"

#: The tag a change is based on: refused with 412 if the resource is another meanwhile.
IfMatch = Annotated[
    str | None, Header(alias="If-Match", max_length=1000, description="The ETag you have seen.")
]


def etag_response(request: Request, value: Any, cache: str = PRIVATE) -> Response:
    """The value as JSON, or 304 for who has it."""
    body = encode_json(value)
    tag = etag_of(body)
    headers = {"ETag": tag, "Cache-Control": cache}
    if _has(request.headers.get("if-none-match"), tag):
        return Response(None, 304, headers)
    return Response(body, 200, headers, "application/json")


def _has(given: str | None, tag: str) -> bool:
    if given is None:
        return False
    tags = [each.strip().removeprefix("W/") for each in given.split(",")]
    return tag in tags or "*" in tags


# Lists a page at a time: `items`, and a cursor for the rest.
#
# A cursor is what the last item was sorted by, made opaque: pages neither skip nor repeat what is
# added or removed between them.

T = TypeVar("T")

Limit = Annotated[int, Query(ge=1, le=100, description="How many at most.")]
Cursor = Annotated[
    str | None, Query(max_length=400, description="Where the page before has ended: its `next`.")
]


class Page(BaseModel, Generic[T]):
    items: list[T]
    next: str | None = None
    """The cursor of the next page; null on the last."""


# What anonymous and free callers read: answered from the cache, by another part of the process.
#
# Who is entitled to the figures of the minute has them from the database. Without that other part
# (`Resources.public`), as in tests and small installations, everybody does.


@dataclass(frozen=True, slots=True)
class PublicResponse:
    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes


class PublicReads(Protocol):
    async def answer(self, path: str, query: str) -> PublicResponse | None:
        """From the cache only; nothing, if the path is none of its own."""


async def read_from_cache(
    answers: PublicReads | None, caller: Caller, request: Request
) -> Response | None:
    """The answer for those who are not to reach the database; nothing for the others."""
    if answers is None or caller.fresh:
        return None
    found = await answers.answer(request.url.path, request.url.query)
    if found is None:
        return None
    return Response(found.body, found.status, dict(found.headers))
