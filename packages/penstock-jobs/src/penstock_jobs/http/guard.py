"""Checks before a request is read: host, origin, token, size.

A page of another site can make a browser send a form to this API, even on loopback;
`penstock.core.host_policy` decides which hosts and origins are accepted.
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
from penstock_jobs.http.schemas import PROBLEMS
from penstock_jobs.users.repository import JobRole, JobUser

#: Available without a token: they reveal nothing about jobs.
_PUBLIC_PATHS: Final = ("/health", "/openapi.json")


#: In the scope of a request: the user of its token.
USER: Final = "penstock.job_user"
#: Beside users the server's own token is an operator's. No user can have this name.
SERVER_USER: Final = JobUser("server token", JobRole.OPERATOR)


@dataclass(frozen=True, slots=True)
class ApiLimits:
    body_bytes: int = 64 * MiB
    token: str | None = None  #: expected as `Authorization: Bearer …`
    #: The user of a token, where users have their own; raises no error for a wrong one.
    find_user: Callable[[str], Awaitable[JobUser | None]] | None = None
    origins: frozenset[str] = frozenset()  #: origins of pages that may use the API: `https://host`
    hosts: frozenset[str] = frozenset()  #: accepted names beside addresses and localhost
    #: Accepted types; by default none that runs code of the sender's choice.
    kinds: frozenset[str] = field(
        default_factory=lambda: frozenset(("fake", "build_models", "predict_models"))
    )


class RequestGuard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, limits: ApiLimits) -> None:
        self._app = app
        self._limits = limits
        self._policy = HostPolicy(limits.hosts, limits.origins, setting="--allow-host or --origin")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            await self._check(scope, Headers(scope=scope))
        except PenstockError as error:
            await PROBLEMS.from_error(error, scope["path"])(scope, receive, send)
            return
        await self._app(scope, _bounded(receive, self._limits.body_bytes), send)

    async def _check(self, scope: Scope, headers: Headers) -> None:
        check_scope(self._policy, scope)
        secured = self._limits.token is not None or self._limits.find_user is not None
        if secured and scope["path"] not in _PUBLIC_PATHS and scope["method"] != "OPTIONS":
            await self._authenticate(scope, headers)
        length = headers.get("content-length", "0")
        if parse_count(length, self._limits.body_bytes) is None:
            raise _too_large(self._limits.body_bytes)

    async def _authenticate(self, scope: Scope, headers: Headers) -> None:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        given = given.strip() if scheme.lower() == "bearer" else ""
        token, find_user = self._limits.token, self._limits.find_user
        if token is not None and hmac.compare_digest(given.encode(), token.encode()):
            if find_user is not None:
                scope[USER] = SERVER_USER
            return
        if find_user is not None and given and (user := await find_user(given)) is not None:
            scope[USER] = user
            return
        raise AuthenticationFailed("the token is missing or wrong: Authorization: Bearer …")


def _bounded(receive: Receive, most: int) -> Callable[[], Awaitable[Message]]:
    """Counts the body, because the content length may be wrong or missing."""
    size = 0

    async def counted() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > most:
            raise _too_large(most)
        return message

    return counted


def _too_large(most: int) -> ContentTooLarge:
    return ContentTooLarge(f"the request is larger than {most:,} bytes")
