"""Calls an application for a fuzzer: thousands of times a second, so without sockets, threads and
searches for the route."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import anyio.to_thread
from fastapi import FastAPI
from starlette.routing import BaseRoute, Match


class FuzzedApplication:
    """An application of FastAPI that is called without sockets and without threads."""

    def __init__(self, loop: asyncio.AbstractEventLoop, app: FastAPI) -> None:
        self._loop = loop
        self._app = app
        self._routes = list(app.router.routes)
        #: By method and path. Trying all routes takes longer than most calls.
        self._found: dict[tuple[str, str], list[BaseRoute]] = {}
        # A thread for each call costs more than the call.
        vars(loop)["run_in_executor"] = self._run_in_executor
        vars(anyio.to_thread)["run_sync"] = _run_inline

    def call(self, method: str, path: str, query: str, headers: dict[str, str], body: bytes) -> int:
        """The status of the answer; what the application raises is raised."""
        scope = _scope(method, path, query, headers, body)
        found = self._found.get((method, path))
        if found is None:
            full = [each for each in self._routes if each.matches(dict(scope))[0] is Match.FULL]
            found = self._found[method, path] = full[:1] or self._routes
        self._app.router.routes[:] = found
        return self._loop.run_until_complete(_call_asgi(self._app, scope, body))

    def _run_in_executor(
        self, _: object, function: Callable[..., Any], *arguments: Any
    ) -> asyncio.Future[Any]:
        done = self._loop.create_future()
        try:
            done.set_result(function(*arguments))
        except Exception as error:
            done.set_exception(error)
        return done


async def _run_inline(function: Callable[..., Any], *arguments: Any, **_: Any) -> Any:
    return function(*arguments)


def _scope(
    method: str, path: str, query: str, headers: dict[str, str], body: bytes
) -> dict[str, Any]:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "path": path,
        "raw_path": path.encode("utf-8", "replace"),
        "query_string": query.encode(),
        "root_path": "",
        "scheme": "http",
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 80),
        "headers": [
            *((name.encode(), text.encode("latin-1", "replace")) for name, text in headers.items()),
            (b"content-length", str(len(body)).encode()),
        ],
        "state": {},
    }


async def _call_asgi(app: Any, scope: dict[str, Any], body: bytes) -> int:
    status = 0
    sent = False

    async def receive() -> dict[str, Any]:
        nonlocal sent
        if sent:  # nobody reads the rest of a stream
            return {"type": "http.disconnect"}
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]

    await app(scope, receive, send)
    return status
