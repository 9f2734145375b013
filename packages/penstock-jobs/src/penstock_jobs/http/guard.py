"""What is refused before anything is read: too much, from elsewhere, or without the token.

A page of another site can make a browser send a form here, even to loopback; which names and sites
are answered is for `core/host_policy.py` to say.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock.core.errors import AuthenticationFailed, ContentTooLarge, PenstockError
from penstock.core.host_policy import HostPolicy, check_scope
from penstock.core.units import MiB, parse_count
from penstock_jobs.http.problems import problem_response

#: Without a token these can be asked for: they tell nothing of jobs.
_PUBLIC_PATHS: Final = ("/health", "/openapi.json")


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """What the API accepts, and from whom."""

    body_bytes: int = 64 * MiB
    token: str | None = None  #: to be sent as `Authorization: Bearer …`
    origins: frozenset[str] = frozenset()  #: sites whose pages may use the API, `https://host`
    hosts: frozenset[str] = frozenset()  #: names it is reached by beside addresses and localhost
    #: Types of requests. Those that run commands of the sender's choice are not among them unless
    #: somebody wants that.
    kinds: frozenset[str] = field(
        default_factory=lambda: frozenset(("fake", "build_models", "predict_models"))
    )


class RequestGuard:
    """ASGI, around the application."""

    def __init__(self, app: ASGIApp, limits: ApiLimits) -> None:
        self._app = app
        self._limits = limits
        self._policy = HostPolicy(limits.hosts, limits.origins, setting="--allow-host or --origin")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            self._look(scope, Headers(scope=scope))
        except PenstockError as error:
            await problem_response(error, scope["path"])(scope, receive, send)
            return
        await self._app(scope, _bounded(receive, self._limits.body_bytes), send)

    def _look(self, scope: Scope, headers: Headers) -> None:
        check_scope(self._policy, scope)
        token = self._limits.token
        if (
            token is not None
            and scope["path"] not in _PUBLIC_PATHS
            and scope["method"] != "OPTIONS"
        ):
            scheme, _, given = headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(
                given.strip().encode(), token.encode()
            ):
                raise AuthenticationFailed("the token is missing or wrong: Authorization: Bearer …")
        length = headers.get("content-length", "0")
        if parse_count(length, self._limits.body_bytes) is None:
            raise _too_large(self._limits.body_bytes)


def _bounded(receive: Receive, most: int) -> Callable[[], Awaitable[Message]]:
    """The length a sender tells is not all there may be: what comes is counted."""
    got = 0

    async def counted() -> Message:
        nonlocal got
        message = await receive()
        got += len(message.get("body", b""))
        if got > most:
            raise _too_large(most)
        return message

    return counted


def _too_large(most: int) -> ContentTooLarge:
    return ContentTooLarge(f"a request may have {most:,} bytes here")
