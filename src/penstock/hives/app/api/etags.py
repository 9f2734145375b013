"""Answers with an entity tag: not sent again to who has them, not overwritten unseen.

The tag is a digest of the body. `If-None-Match` makes an answer that has not changed a 304;
`If-Match` on a change is checked in the transaction that makes it (`Expected`).
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Header
from starlette.requests import Request
from starlette.responses import Response

from penstock.hives.app.api.encoding import encode
from penstock.hives.app.domain.tags import tag_of

PRIVATE: Final = "private, no-cache"
PUBLIC: Final = "public, max-age=15"

#: The tag a change is based on: refused with 412 if the resource is another meanwhile.
IfMatch = Annotated[
    str | None, Header(alias="If-Match", max_length=1000, description="The ETag you have seen.")
]


def tagged(request: Request, value: Any, cache: str = PRIVATE) -> Response:
    """The value as JSON, or 304 for who has it."""
    body = encode(value)
    tag = tag_of(body)
    headers = {"ETag": tag, "Cache-Control": cache}
    if _has(request.headers.get("if-none-match"), tag):
        return Response(None, 304, headers)
    return Response(body, 200, headers, "application/json")


def _has(given: str | None, tag: str) -> bool:
    if given is None:
        return False
    tags = [each.strip().removeprefix("W/") for each in given.split(",")]
    return tag in tags or "*" in tags
