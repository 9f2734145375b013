"""The web console: `/`, its static files, and `/api/watch`, which repeats calls for live pages.

The pages are JavaScript modules without a build step. They use the API as the user who signed in,
so the API's permissions are theirs. Names chosen by clients are rendered as text, and the content
security policy allows no inline script.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from penstock.core.errors import NotFound
from penstock.core.units import parse_count
from penstock.server.management.api_call import AccessLevel, ApiCall, ApiRoute
from penstock.server.management.http import (
    HttpRequest,
    HttpResponse,
    RequestHandler,
    bad_request,
    encode_json,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_CONTENT_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_SAFETY: Final = {
    "cache-control": "no-cache",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}
#: Seconds between two calls of `/api/watch`.
MIN_SECONDS: Final = 1
MAX_SECONDS: Final = 60
#: Calls of one `/api/watch`.
MAX_WATCHED: Final = 20
EVENT_STREAM: Final = {"content-type": "text/event-stream", "cache-control": "no-store"}


def static_response(package: str, name: str, request: HttpRequest) -> HttpResponse:
    """A file in the folder `static` of a package; 304 if the browser has it."""
    found = _static_file(package, name)
    if found is None:
        raise NotFound("Not Found")
    content, headers = found
    if request.headers.get("if-none-match") == headers["etag"]:
        return HttpResponse(304, b"", headers)
    return HttpResponse(200, content, headers)


@cache
def _static_file(package: str, name: str) -> tuple[bytes, Mapping[str, str]] | None:
    from importlib.resources import files

    kind = _CONTENT_TYPES.get(name.rpartition(".")[2])
    for entry in files(package).joinpath("static").iterdir():
        if entry.name == name and kind is not None:
            content = entry.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
            return content, {**_SAFETY, "content-type": kind, "etag": etag}
    return None


async def console_page(call: ApiCall) -> HttpResponse:
    return static_response(__package__, "index.html", call.request)


async def static_file(call: ApiCall) -> HttpResponse:
    return static_response(__package__, call.names["file"], call.request)


@dataclass(frozen=True, slots=True)
class WatchedCall:
    request: HttpRequest
    seconds: int


async def watch_call(call: ApiCall) -> HttpResponse:
    """Repeat GET calls of this API and send each changed answer as a server-sent event."""
    paths = call.request.query.get("path", "").split("\n")
    intervals = call.request.query.get("every", "2").split(",")
    if len(paths) > MAX_WATCHED:
        raise bad_request(f"path: at most {MAX_WATCHED} calls")
    if len(intervals) not in (1, len(paths)):
        raise bad_request("every: one interval, or one for each call, separated by commas")
    every = intervals * len(paths) if len(intervals) == 1 else intervals
    watched = [_watched(call.request, *each) for each in zip(paths, every, strict=True)]
    return HttpResponse(200, _events(call.answer, watched, call.closing), EVENT_STREAM)


def _watched(request: HttpRequest, target: str, every: str) -> WatchedCall:
    path, _, parameters = target.partition("?")
    if not path.startswith("/api/") or path == "/api/watch":
        raise bad_request("path: a path of this API is expected, such as /api/overview")
    seconds = parse_count(every)
    if seconds is None or not MIN_SECONDS <= seconds <= MAX_SECONDS:
        raise bad_request(f"every: {MIN_SECONDS} to {MAX_SECONDS} seconds")
    query = dict(parse_qsl(parameters, keep_blank_values=True))
    return WatchedCall(replace(request, method="GET", path=path, query=query), seconds)


async def _events(
    answer: RequestHandler, watched: list[WatchedCall], closing: asyncio.Event
) -> AsyncIterator[bytes]:
    """The calls wait for the reader, not for each other. Ends when none is repeated any more, or
    with the error of one that fails, which the server logs: the browser then asks for all again."""
    events: asyncio.Queue[bytes | Exception] = asyncio.Queue(1)

    async def follow(number: int, one: WatchedCall) -> None:
        head = b"id: %d\n" % number if len(watched) > 1 else b""
        ended: bytes | Exception = b""
        try:
            async for event in _answers(answer, one, closing):
                await events.put(head + event if event else b": unchanged\n\n")
        except ConnectionError:
            pass
        except Exception as error:
            ended = error
        await events.put(ended)

    tasks = [asyncio.create_task(follow(*each)) for each in enumerate(watched)]
    try:
        ended = 0
        while ended < len(tasks):
            event = await events.get()
            if isinstance(event, Exception):
                raise event
            if event:
                yield event
            else:
                ended += 1
    finally:
        for task in tasks:
            task.cancel()


async def _answers(
    answer: RequestHandler, watched: WatchedCall, closing: asyncio.Event
) -> AsyncIterator[bytes]:
    """Each call is authenticated again, so a deleted user sees nothing more. Empty: unchanged."""
    before, request = b"", watched.request
    while not closing.is_set():
        response = await answer(request)
        if not isinstance(response.body, bytes):
            response = HttpResponse(400, encode_json({"reason": f"{request.path} is a stream"}))
        failed = response.status >= 400
        data = bytes(response.body if isinstance(response.body, bytes) else b"")
        if failed:
            data = data[:-1] + f',"status":{response.status}}}'.encode()
        event = (b"event: error\n" if failed else b"") + b"data: " + data + b"\n\n"
        yield event if event != before else b""
        before = event
        if response.status == 401:
            return
        try:
            await asyncio.wait_for(closing.wait(), watched.seconds)
        except TimeoutError:
            continue


routes: Final = (
    ApiRoute("GET", "/", console_page, AccessLevel.ANYONE),
    ApiRoute("GET", "/static/{file}", static_file, AccessLevel.ANYONE),
    ApiRoute("GET", "/api/watch", watch_call),
)
