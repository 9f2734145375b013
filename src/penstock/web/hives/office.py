"""What all pages of the business share: the services, who asks, and figures as they come in.

An `Office` is opened with the dashboards and closed with them. Without a gate, on a machine of
one's own, whoever looks is taken for an administrator; with one, for who they are, asked anew for
every page.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from penstock import store
from penstock.core.errors import AccessRefused, NotFound
from penstock.core.units import parse_count
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.hives import HiveSettings
from penstock.hives.app.domain.people import Account
from penstock.hives.app.domain.roles import Role
from penstock.hives.app.identity.opening import open_identity
from penstock.hives.app.identity.settings import IdentitySettings
from penstock.hives.app.live.feed import Feed
from penstock.hives.app.resources import Resources, open_resources
from penstock.hives.app.services import Services
from penstock.hives.app.settings import Settings
from penstock.web.gate import ANYONE
from penstock.web.pages import Person, Surroundings, Visit

#: Who looks where nobody is asked who they are.
_OWNER: Final = Caller(None, None, Role.ADMIN, "business")
#: Hives of one account a page shows.
MOST_HIVES: Final = 100

Heard = Callable[[Mapping[str, Any]], None]


class LiveFigures:
    """Figures of all hives as they are heard, for the pages that show some."""

    def __init__(self) -> None:
        self._listeners: set[Heard] = set()

    def heard(self, document: Mapping[str, Any]) -> None:
        for listener in tuple(self._listeners):
            listener(document)

    def listen(self, heard: Heard) -> Callable[[], None]:
        """The result ends it."""
        self._listeners.add(heard)
        return lambda: self._listeners.discard(heard)


@dataclass(frozen=True, slots=True)
class Desk:
    """A visit to one account: who asks, which account, its hives, the others there are."""

    caller: Caller
    account: Account
    accounts: tuple[Account, ...]
    hives: tuple[HiveSettings, ...]

    @property
    def numbers(self) -> list[int]:
        return [hive.id for hive in self.hives]


class Office:
    """Open while the dashboards run."""

    def __init__(self, around: Surroundings, settings: Settings | None = None) -> None:
        self._around = around
        self._settings = settings
        self._resources: Resources | None = None
        self.live = LiveFigures()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            around = self._around
            opened = store.open(around.database, around.data, migrated=around.database is None)
            database = await asyncio.to_thread(stack.enter_context, opened)
            settings = self._settings or Settings(database=database.url)
            identity = IdentitySettings(folder=around.data / "hives" / "identity")
            identify = await stack.enter_async_context(
                open_identity(identity, production=settings.production, environment=os.environ)
            )
            self._resources = await stack.enter_async_context(open_resources(settings, identify))
            feed = Feed([around.broker], self.live.heard)
            listening = asyncio.create_task(feed.run())
            try:
                yield
            finally:
                listening.cancel()
                await asyncio.wait({listening})
                self._resources = None

    @property
    def resources(self) -> Resources:
        assert self._resources is not None, "not open"
        return self._resources

    @property
    def services(self) -> Services:
        return self.resources.services

    async def caller(self, person: Person) -> Caller:
        if person == ANYONE:
            return _OWNER
        return await self.services.users.caller(person.id)

    async def desk(self, visit: Visit) -> Desk:
        """The account that is asked for, or the first the visitor has."""
        caller = await self.caller(visit.person)
        accounts = (await self.services.accounts.mine(caller, None, 100)).items
        if not accounts:
            raise AccessRefused("you belong to no business; open an account, or ask its admin")
        wanted = visit.query.get("account")
        account = next((each for each in accounts if str(each.id) == wanted), accounts[0])
        hives = await self.services.hives.of_account(caller, account.id, None, MOST_HIVES)
        shown = tuple(hive for hive in hives.items if hive.status == "active")
        return Desk(caller, account, tuple(accounts), shown)

    async def hive(self, visit: Visit) -> tuple[Caller, HiveSettings]:
        """The hive a page is about, if it is the visitor's."""
        caller = await self.caller(visit.person)
        number = parse_count(visit.parameters["id"])
        if number is None:
            raise NotFound(f"there is no hive {visit.parameters['id']}")
        return caller, await self.services.hives.settings(caller, number)
