"""The dashboard section of hives: pages and authenticator over one `DashboardContext`.

Users have the role `business` if they are members of an account, operators also `operator`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from penstock.core.errors import AuthenticationFailed, PenstockError
from penstock_hives.analytics import page as overview
from penstock_hives.deals import page as deals
from penstock_hives.errors import InvalidRequest
from penstock_hives.identity.service import SignInService, require_local_identity
from penstock_hives.messages import page as feedback
from penstock_hives.people import page as invitations
from penstock_hives.people.permissions import EVERYWHERE, AppPermission, Caller
from penstock_hives.places import page as place
from penstock_hives.places.page import export_csv
from penstock_hives.sensors import page as sensors
from penstock_hives.web.context import DashboardContext
from penstock_store.dashboard.pages import (
    OPERATOR_ROLE,
    Authenticator,
    DashboardDownload,
    DashboardPage,
    DashboardSection,
    DashboardUser,
    PageRequest,
    SectionContext,
)

BUSINESS = "business"

Draw = Callable[[DashboardContext, PageRequest], Awaitable[None]]


def section(around: SectionContext) -> DashboardSection:
    return section_over(DashboardContext(around))


def gated(around: SectionContext) -> tuple[DashboardSection, Authenticator]:
    """The section, and an authenticator over the same context."""
    context = DashboardContext(around)
    return section_over(context), HivesAuthenticator(context)


def section_over(context: DashboardContext) -> DashboardSection:
    def page(
        path: str, title: str, icon: str, draw: Draw, about: str, in_menu: bool = True
    ) -> DashboardPage:
        return DashboardPage(path, title, icon, partial(draw, context), about, BUSINESS, in_menu)

    return DashboardSection(
        "Hives",
        (
            page(
                "/hives",
                "Places",
                "hive",
                overview.draw_overview,
                "Occupancy and development of your places.",
            ),
            page(
                "/hives/deals", "Deals", "local_offer", deals.draw_deals, "Deals and their effects."
            ),
            page(
                "/hives/feedback",
                "Feedback",
                "forum",
                feedback.draw_feedback,
                "Messages and ratings of visitors.",
            ),
            page(
                "/hives/sensors",
                "Sensors",
                "sensors",
                sensors.draw_sensors,
                "Sensor status.",
            ),
            DashboardPage(
                invitations.INVITATIONS_PATH,
                "Invitations",
                "mail",
                partial(invitations.draw_invitations, context),
                "Invitations to join a business.",
            ),
            page("/hives/place/{id}", "Place", "hive", place.draw_place, "", in_menu=False),
        ),
        (DashboardDownload("/hives/export/{id}", export_csv(context), BUSINESS),),
        Path(__file__).with_name("static"),
        context.open,
    )


class HivesAuthenticator:
    """Logins of the local issuer; a session is a refresh token that is never used to refresh."""

    def __init__(self, context: DashboardContext) -> None:
        self._context = context

    async def sign_in(self, name: str, password: str, address: str) -> str | None:
        try:
            return (await self._service().sign_in(name, password, address)).refresh_token
        except (AuthenticationFailed, InvalidRequest):
            return None

    async def find_user(self, key: str) -> DashboardUser | None:
        try:
            return await self._user(await self._service().user_of_session(key))
        except AuthenticationFailed:
            return None

    async def sign_out(self, key: str) -> None:
        await self._service().sign_out(key)

    def _service(self) -> SignInService:
        resources = self._context.resources
        return require_local_identity(resources.identify).sign_in(resources.pool)

    async def _user(self, uid: str) -> DashboardUser:
        services = self._context.services
        caller = await services.users.caller(uid)
        try:
            name = (await services.users.profile(caller)).nickname
        except PenstockError:
            name = None
        return DashboardUser(uid, name or "You", _roles(caller))


def _roles(caller: Caller) -> frozenset[str]:
    roles = set()
    if caller.may(AppPermission.READ_ANALYTICS):
        roles.add(BUSINESS)
    if caller.role in EVERYWHERE:
        roles |= {BUSINESS, OPERATOR_ROLE}
    return frozenset(roles)
