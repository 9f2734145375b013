"""Who may come in: whoever signs in to the application. What they see there is a matter of role.

Roles of a person are `business` for members of an account and for those who reach into all, and
`operator` for the latter.
"""

from __future__ import annotations

from penstock.core.errors import AuthenticationFailed, PenstockError
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.roles import EVERYWHERE, Permission
from penstock.hives.app.identity.opening import local
from penstock.web.hives.office import Office
from penstock.web.pages import Person

BUSINESS = "business"
OPERATOR = "operator"


class HivesGate:
    """By the local issuer's logins. With Firebase, people sign in where Firebase is."""

    def __init__(self, office: Office) -> None:
        self._office = office

    async def admit(self, name: str, password: str) -> Person | None:
        resources = self._office.resources
        try:
            session = (
                await local(resources.identify).sign_in(resources.pool).sign_in(name, password)
            )
        except AuthenticationFailed:
            return None
        return await self._person(session.uid)

    async def recall(self, id: str) -> Person | None:  # noqa: A002 - as the gate has it
        try:
            return await self._person(id)
        except AuthenticationFailed:
            return None

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
