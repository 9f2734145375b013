"""What all pages of the business share: the services, who asks, and figures as they come in.

An `DashboardContext` is opened with the dashboards and closed with them. Without a gate, on a
machine of one's own, whoever looks is taken for an administrator; with one, for who they are, asked
anew for every page.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import penstock_store
from penstock.core.errors import AccessRefused, NotFound
from penstock.core.units import parse_count
from penstock_hives.identity.service import open_identity
from penstock_hives.identity.settings import IdentitySettings
from penstock_hives.live.subscriber import OccupancySubscriber
from penstock_hives.people.models import BusinessAccount
from penstock_hives.people.permissions import Caller, UserRole
from penstock_hives.places.models import HiveSettings
from penstock_hives.resources import Resources, Services, open_resources
from penstock_hives.settings import HivesSettings
from penstock_store.dashboard.pages import ANONYMOUS, DashboardUser, PageRequest, SectionContext

#: Who looks where nobody is asked who they are.
_OWNER: Final = Caller(None, None, UserRole.ADMIN, "business")
#: Hives of one account a page shows.
MAX_DASHBOARD_HIVES: Final = 100

LiveListener = Callable[[Mapping[str, Any]], None]


class LiveOccupancy:
    """Figures of all hives as they are heard, for the pages that show some."""

    def __init__(self) -> None:
        self._listeners: set[LiveListener] = set()

    def heard(self, document: Mapping[str, Any]) -> None:
        for listener in tuple(self._listeners):
            listener(document)

    def listen(self, heard: LiveListener) -> Callable[[], None]:
        """The result ends it."""
        self._listeners.add(heard)
        return lambda: self._listeners.discard(heard)


@dataclass(frozen=True, slots=True)
class AccountView:
    """A visit to one account: who asks, which account, its hives, the others there are."""

    caller: Caller
    account: BusinessAccount
    accounts: tuple[BusinessAccount, ...]
    hives: tuple[HiveSettings, ...]

    @property
    def numbers(self) -> list[int]:
        return [hive.id for hive in self.hives]


class DashboardContext:
    """Open while the dashboards run."""

    def __init__(self, around: SectionContext, settings: HivesSettings | None = None) -> None:
        self._around = around
        self._settings = settings
        self._resources: Resources | None = None
        self.live = LiveOccupancy()

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            around = self._around
            opened = penstock_store.open(
                around.database, around.data, migrated=around.database is None
            )
            database = await asyncio.to_thread(stack.enter_context, opened)
            settings = self._settings or HivesSettings(database=database.url)
            identity = IdentitySettings(folder=around.data / "hives" / "identity")
            identify = await stack.enter_async_context(
                open_identity(identity, production=settings.production, environment=os.environ)
            )
            self._resources = await stack.enter_async_context(open_resources(settings, identify))
            feed = OccupancySubscriber([around.broker], self.live.heard)
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

    async def caller(self, person: DashboardUser) -> Caller:
        if person == ANONYMOUS:
            return _OWNER
        return await self.services.users.caller(person.id)

    async def desk(self, visit: PageRequest) -> AccountView:
        """The account that is asked for, or the first the visitor has."""
        caller = await self.caller(visit.person)
        accounts = (await self.services.accounts.mine(caller, None, 100)).items
        if not accounts:
            raise AccessRefused("you belong to no business; open an account, or ask its admin")
        wanted = visit.query.get("account")
        account = next((each for each in accounts if str(each.id) == wanted), accounts[0])
        hives = await self.services.hives.of_account(caller, account.id, None, MAX_DASHBOARD_HIVES)
        shown = tuple(hive for hive in hives.items if hive.status == "active")
        return AccountView(caller, account, tuple(accounts), shown)

    async def hive(self, visit: PageRequest) -> tuple[Caller, HiveSettings]:
        """The hive a page is about, if it is the visitor's."""
        caller = await self.caller(visit.person)
        number = parse_count(visit.parameters["id"])
        if number is None:
            raise NotFound(f"there is no hive {visit.parameters['id']}")
        return caller, await self.services.hives.settings(caller, number)
