"""The one place a request's caller comes from.

A bearer token is checked by whoever vouches for people (`IdentityVerifier`); an API key by its
digest. Who shows neither is anonymous, and one who shows something that does not hold is refused,
never taken for anonymous. What the caller may do is the domain's (`people/permissions.py`);
`require_permission` asks it before an endpoint runs, and services ask again about the account that
is meant.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection, Request

from penstock.core.errors import AuthenticationFailed
from penstock_hives.identity.tokens import Identity, IdentityVerifier
from penstock_hives.people.permissions import ANONYMOUS, AppPermission, Caller
from penstock_hives.resources import Resources, Services

__all__ = [
    "CurrentCaller",
    "Identity",
    "IdentityVerifier",
    "PermissionRequired",
    "Reader",
    "current_caller",
    "require_permission",
]


KEY_HEADER = "x-api-key"


async def current_caller(connection: HTTPConnection) -> Caller:
    """Who asks; found once for a request, and counted against their rate."""
    return await _found(connection, get_resources(connection).identified)


async def _found(
    connection: HTTPConnection, find: Callable[[str | None, str | None], Awaitable[Caller]]
) -> Caller:
    held = getattr(connection.state, "caller", None)
    if isinstance(held, Caller):
        return held
    found = get_resources(connection)
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


class PermissionRequired:
    """A dependency: the caller, if they have the permission somewhere at least."""

    def __init__(self, permission: AppPermission) -> None:
        self.permission = permission

    async def __call__(self, request: Request) -> Caller:
        known = get_resources(request)
        public = self.permission is AppPermission.READ_PUBLIC and request.method in ("GET", "HEAD")
        caller = await _found(request, known.recalled if public else known.identified)
        caller.require(self.permission)
        return caller


def require_permission(permission: AppPermission) -> PermissionRequired:
    return PermissionRequired(permission)


CurrentCaller = Annotated[Caller, Depends(current_caller)]
Reader = Annotated[Caller, Depends(require_permission(AppPermission.READ_PUBLIC))]


# What an endpoint finds the rest of the application by.


def get_resources(connection: HTTPConnection) -> Resources:
    found = connection.app.state.resources
    assert isinstance(found, Resources)
    return found


def get_services(connection: HTTPConnection) -> Services:
    return get_resources(connection).services


ResourcesDep = Annotated[Resources, Depends(get_resources)]
ServicesDep = Annotated[Services, Depends(get_services)]
