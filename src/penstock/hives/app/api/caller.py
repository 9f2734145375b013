"""The one place a request's caller comes from.

A bearer token is checked by whoever vouches for people (`Identify`); an API key by its digest. Who
shows neither is anonymous, and one who shows something that does not hold is refused, never taken
for anonymous. What the caller may do is the domain's (`domain/roles.py`); `allowed` asks it before
an endpoint runs, and services ask again about the account that is meant.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection, Request

from penstock.core.errors import AuthenticationFailed
from penstock.hives.app.api.context import resources
from penstock.hives.app.domain.callers import ANONYMOUS, Caller
from penstock.hives.app.domain.identity import Identify, Identity
from penstock.hives.app.domain.roles import Permission

__all__ = ["Allowed", "Current", "Identify", "Identity", "Reader", "allowed", "current"]

KEY_HEADER = "x-api-key"


async def current(connection: HTTPConnection) -> Caller:
    """Who asks; found once for a request, and counted against their rate."""
    return await _found(connection, resources(connection).identified)


async def _found(
    connection: HTTPConnection, find: Callable[[str | None, str | None], Awaitable[Caller]]
) -> Caller:
    held = getattr(connection.state, "caller", None)
    if isinstance(held, Caller):
        return held
    found = resources(connection)
    headers = connection.headers
    address = connection.client.host if connection.client else "unknown"
    try:
        caller = await find(headers.get("authorization"), headers.get(KEY_HEADER))
    except AuthenticationFailed:
        found.limits.take(ANONYMOUS, address)  # guessing has its rate, too
        raise
    found.limits.take(caller, address)
    connection.state.caller = caller
    return caller


class Allowed:
    """A dependency: the caller, if they have the permission somewhere at least."""

    def __init__(self, permission: Permission) -> None:
        self.permission = permission

    async def __call__(self, request: Request) -> Caller:
        known = resources(request)
        public = self.permission is Permission.READ_PUBLIC and request.method in ("GET", "HEAD")
        caller = await _found(request, known.recalled if public else known.identified)
        caller.require(self.permission)
        return caller


def allowed(permission: Permission) -> Allowed:
    return Allowed(permission)


Current = Annotated[Caller, Depends(current)]
Reader = Annotated[Caller, Depends(allowed(Permission.READ_PUBLIC))]
