"""Who may come in: whoever signs in to the application. What they see there is a matter of role.

Roles of a person are `business` for members of an account and for those who reach into all, and
`operator` for the latter.
"""

from __future__ import annotations

from penstock.core.errors import AuthenticationFailed, PenstockError
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.errors import Invalid
from penstock.hives.app.domain.roles import EVERYWHERE, Permission
from penstock.hives.app.identity.local import SignIn
from penstock.hives.app.identity.opening import local
from penstock.web.hives.office import Office
from penstock.web.pages import OPERATOR, Person

BUSINESS = "business"


class HivesGate:
    """By the local issuer's logins; a session is a refresh token of its, never used to refresh.

    With Firebase, people sign in where Firebase is.
    """

    def __init__(self, office: Office) -> None:
        self._office = office

    async def admit(self, name: str, password: str) -> str | None:
        try:
            return (await self._desk().sign_in(name, password)).refresh_token
        except (AuthenticationFailed, Invalid):
            return None

    async def recall(self, key: str) -> Person | None:
        try:
            return await self._person(await self._desk().holder(key))
        except AuthenticationFailed:
            return None

    async def dismiss(self, key: str) -> None:
        await self._desk().sign_out(key)

    def _desk(self) -> SignIn:
        resources = self._office.resources
        return local(resources.identify).sign_in(resources.pool)

    async def _person(self, uid: str) -> Person:
        services = self._office.services
        caller = await services.users.caller(uid)
        try:
            name = (await services.users.profile(caller)).nickname
        except PenstockError:
            name = None
        return Person(uid, name or "You", _roles(caller))


def _roles(caller: Caller) -> frozenset[str]:
    roles = set()
    if caller.may(Permission.READ_ANALYTICS):
        roles.add(BUSINESS)
    if caller.role in EVERYWHERE:
        roles |= {BUSINESS, OPERATOR}
    return frozenset(roles)
