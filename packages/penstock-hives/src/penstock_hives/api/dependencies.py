"""What endpoints depend on: the caller with a permission, the services, the resources.

A bearer token is verified by the installation's `IdentityVerifier`, an API key by its digest. A
request with neither is anonymous; one with an invalid token or key is refused, never treated as
anonymous. `people/permissions.py` decides what a caller may do. `PermissionRequired` checks that
before an endpoint runs; services check it again for the account in question.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends
from starlette.requests import HTTPConnection, Request

from penstock.core.errors import AuthenticationFailed
from penstock_hives.people.permissions import ANONYMOUS, AppPermission, Caller
from penstock_hives.resources import Resources, Services

KEY_HEADER = "x-api-key"


def client_address(connection: HTTPConnection) -> str:
    return connection.client.host if connection.client else "unknown"


async def current_caller(connection: HTTPConnection) -> Caller:
    """The caller, identified once for a request and counted against their rate limit."""
    return await _identify(connection, get_resources(connection).identify_caller)


async def _identify(
    connection: HTTPConnection, identify: Callable[[str | None, str | None], Awaitable[Caller]]
) -> Caller:
    known = getattr(connection.state, "caller", None)
    if isinstance(known, Caller):
        return known
    limits = get_resources(connection).limits
    headers = connection.headers
    address = client_address(connection)
    try:
        caller = await identify(headers.get("authorization"), headers.get(KEY_HEADER))
    except AuthenticationFailed:
        limits.take(ANONYMOUS, address)  # guesses are rate-limited, too
        raise
    limits.take(caller, address)
    connection.state.caller = caller
    return caller


class PermissionRequired:
    """A dependency: the caller, if they have the permission in any account at all."""

    def __init__(self, permission: AppPermission) -> None:
        self.permission = permission

    async def __call__(self, request: Request) -> Caller:
        resources = get_resources(request)
        public = self.permission is AppPermission.READ_PUBLIC and request.method in ("GET", "HEAD")
        identify = resources.identify_reader if public else resources.identify_caller
        caller = await _identify(request, identify)
        caller.require(self.permission)
        return caller


def require_permission(permission: AppPermission) -> PermissionRequired:
    return PermissionRequired(permission)


def get_resources(connection: HTTPConnection) -> Resources:
    found = connection.app.state.resources
    assert isinstance(found, Resources)
    return found


def get_services(connection: HTTPConnection) -> Services:
    return get_resources(connection).services


read_public = PermissionRequired(AppPermission.READ_PUBLIC)

ResourcesDep = Annotated[Resources, Depends(get_resources)]
ServicesDep = Annotated[Services, Depends(get_services)]
CurrentCaller = Annotated[Caller, Depends(current_caller)]
Reader = Annotated[Caller, Depends(read_public)]
SignedIn = Annotated[Caller, Depends(PermissionRequired(AppPermission.OWN_PROFILE))]
PlaceOwner = Annotated[Caller, Depends(PermissionRequired(AppPermission.OWN_PLACES))]
AccountReader = Annotated[Caller, Depends(PermissionRequired(AppPermission.READ_ACCOUNT))]
Operator = Annotated[Caller, Depends(PermissionRequired(AppPermission.READ_USERS))]
