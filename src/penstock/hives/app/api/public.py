"""What anonymous and free callers read: answered from the cache, by another part of the process.

Who is entitled to the figures of the minute has them from the database. Without that other part
(`Resources.public`), as in tests and small installations, everybody does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response

from penstock.hives.app.domain.callers import Caller


@dataclass(frozen=True, slots=True)
class PublicAnswer:
    status: int
    headers: Sequence[tuple[str, str]]
    body: bytes


class PublicAnswers(Protocol):
    async def answer(self, path: str, query: str) -> PublicAnswer | None:
        """From the cache only; nothing, if the path is none of its own."""


async def from_cache(
    answers: PublicAnswers | None, caller: Caller, request: Request
) -> Response | None:
    """The answer for those who are not to reach the database; nothing for the others."""
    if answers is None or caller.fresh:
        return None
    found = await answers.answer(request.url.path, request.url.query)
    if found is None:
        return None
    return Response(found.body, found.status, dict(found.headers))
