"""What all pages share: services, the caller, live occupancy.

Without an authenticator every visitor is an administrator; with one, the caller is read from the
database for each page.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from nicegui import ui

import penstock_store
from penstock.core.errors import AccessRefused, NotFound
from penstock.core.units import parse_count
from penstock_hives.billing.checkout import CheckoutService
from penstock_hives.billing.models import SubscriptionOwner
from penstock_hives.billing.settings import PaymentProviders, PaymentSettings, open_providers
from penstock_hives.identity.firebase import FirebaseSessions
from penstock_hives.identity.mail import MailSender, open_mail_sender
from penstock_hives.identity.service import open_identity
from penstock_hives.identity.settings import IdentitySettings
from penstock_hives.identity.tokens import TokenVerifier
from penstock_hives.live.subscriber import OccupancySubscriber
from penstock_hives.people.mail_invitations import MailInvitationService
from penstock_hives.people.models import BusinessAccount
from penstock_hives.people.permissions import AppPermission, Caller, UserRole
from penstock_hives.places.models import HiveSettings
from penstock_hives.resources import Resources, Services, open_resources
from penstock_hives.settings import HivesSettings, read_settings
from penstock_store.dashboard.pages import ANONYMOUS, DashboardUser, PageRequest, SectionContext

#: The caller without an authenticator.
_OWNER: Final = Caller(None, None, UserRole.ADMIN, "business")
#: Of one account, on a page.
MAX_DASHBOARD_HIVES: Final = 100

LiveListener = Callable[[Mapping[str, Any]], None]


def _settings(around: SectionContext, database: str) -> HivesSettings:
    """As `penstock hives serve` has them over the same data directory."""
    given: dict[str, Any] = {
        "database": database,
        "broker": around.mqtt or around.broker,
        "images": around.data / "hives" / "images",
        "lake": str(around.data / "lake"),
    }
    if around.management is not None:
        given["management"] = around.management
    if around.mqtt is not None:
        given["sensor_address"] = around.mqtt
    return read_settings(HivesSettings, given)


class LiveOccupancy:
    """Distributes occupancy messages to open pages."""

    def __init__(self) -> None:
        self._listeners: set[LiveListener] = set()

    def publish(self, document: Mapping[str, Any]) -> None:
        for listener in tuple(self._listeners):
            listener(document)

    def listen(self, listener: LiveListener) -> Callable[[], None]:
        """Returns the function that removes the listener."""
        self._listeners.add(listener)
        return lambda: self._listeners.discard(listener)


@dataclass(frozen=True, slots=True)
class AccountView:
    """The account that a page shows, and all accounts of the caller."""

    caller: Caller
    account: BusinessAccount
    accounts: tuple[BusinessAccount, ...]
    hives: tuple[HiveSettings, ...]

    @property
    def hive_ids(self) -> list[int]:
        return [hive.id for hive in self.hives]


class DashboardContext:
    def __init__(self, around: SectionContext, settings: HivesSettings | None = None) -> None:
        self._around = around
        self._settings = settings
        self._resources: Resources | None = None
        self._mail: tuple[MailSender, str] | None = None
        self._providers: PaymentProviders | None = None
        self.live = LiveOccupancy()
        self.firebase: FirebaseSessions | None = None  #: if Firebase is the issuer

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            around = self._around
            opened = penstock_store.open(
                around.database, around.data, migrated=around.database is None
            )
            database = await asyncio.to_thread(stack.enter_context, opened)
            settings = self._settings or _settings(around, database.url)
            folder = around.data / "hives" / "identity"
            identity = read_settings(IdentitySettings, {"folder": folder})
            self._mail = (open_mail_sender(identity), identity.sender)
            identify = await stack.enter_async_context(
                open_identity(identity, production=settings.production, environment=os.environ)
            )
            if isinstance(identify, TokenVerifier):
                self.firebase = FirebaseSessions(identity, identify)
            self._resources = await stack.enter_async_context(open_resources(settings, identify))
            subscriber = OccupancySubscriber([around.broker], self.live.publish)
            listening = asyncio.create_task(subscriber.run())
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

    @property
    def mail_invitations(self) -> MailInvitationService:
        assert self._mail is not None, "not open"
        resources = self.resources
        link = self._own_url("/hives/invitations?code=")
        return MailInvitationService(resources.pool, resources.clock, *self._mail, link)

    @property
    def sells_plans(self) -> bool:
        return self._checkout.is_configured

    async def open_checkout(self, caller: Caller, account: int, plan: str, back: str) -> None:
        """Send the browser to the page on which the plan is bought."""
        caller.require(AppPermission.READ_BILLING, account)
        owner = SubscriptionOwner(account_id=account)
        await self._checkout.record(caller, "begin", "checkout", account)
        url = await self._checkout.begin(owner, plan, self._own_url(back))
        ui.navigate.to(back if url == self._own_url(back) else url)

    async def open_portal(self, caller: Caller, account: int, back: str) -> None:
        caller.require(AppPermission.READ_BILLING, account)
        owner = SubscriptionOwner(account_id=account)
        await self._checkout.record(caller, "open", "billing_portal", account)
        ui.navigate.to(await self._checkout.portal(owner, self._own_url(back)))

    @property
    def _checkout(self) -> CheckoutService:
        resources = self.resources
        if self._providers is None:
            production = resources.settings.production
            self._providers = open_providers(read_settings(PaymentSettings), production=production)
        return CheckoutService(resources.pool, self._providers, resources.clock)

    def _own_url(self, path: str) -> str:
        return self.resources.settings.dashboards.rstrip("/") + path

    async def caller(self, user: DashboardUser) -> Caller:
        if user == ANONYMOUS:
            return _OWNER
        return await self.services.users.caller(user.id)

    async def account_view(self, visit: PageRequest) -> AccountView:
        """The account in the query, or the first one of the caller."""
        caller = await self.caller(visit.user)
        accounts = (await self.services.accounts.mine(caller, None, 100)).items
        if not accounts:
            raise AccessRefused(
                "you are not a member of a business: open an account or ask for an invitation"
            )
        wanted = visit.query.get("account")
        account = next((each for each in accounts if str(each.id) == wanted), accounts[0])
        hives = await self.services.hives.of_account(caller, account.id, None, MAX_DASHBOARD_HIVES)
        shown = tuple(hive for hive in hives.items if hive.status == "active")
        return AccountView(caller, account, tuple(accounts), shown)

    async def hive(self, visit: PageRequest) -> tuple[Caller, HiveSettings]:
        """The hive in the path, if it belongs to the caller."""
        caller = await self.caller(visit.user)
        number = parse_count(visit.parameters["id"])
        if number is None:
            raise NotFound(f"hive {visit.parameters['id']} not found")
        return caller, await self.services.hives.settings(caller, number)
