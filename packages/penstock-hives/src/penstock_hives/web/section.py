"""The section of hives: its pages over an office that is open while the dashboards run."""

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

Draw = Callable[[DashboardContext, PageRequest], Awaitable[None]]


def section(around: SectionContext) -> DashboardSection:
    return section_over(DashboardContext(around))


def gated(around: SectionContext) -> tuple[DashboardSection, Authenticator]:
    """The section, and the gate that asks who comes in; one office serves both."""
    office = DashboardContext(around)
    return section_over(office), HivesAuthenticator(office)


def section_over(office: DashboardContext) -> DashboardSection:
    def page(
        path: str, title: str, icon: str, draw: Draw, about: str, listed: bool = True
    ) -> DashboardPage:
        return DashboardPage(path, title, icon, partial(draw, office), about, BUSINESS, listed)

    return DashboardSection(
        "Hives",
        (
            page(
                "/hives",
                "Places",
                "hive",
                overview.draw_overview,
                "How full they are, and how it goes.",
            ),
            page(
                "/hives/deals", "Deals", "local_offer", deals.draw_deals, "And what came of them."
            ),
            page(
                "/hives/feedback", "Feedback", "forum", feedback.draw_feedback, "What people say."
            ),
            page(
                "/hives/sensors",
                "Sensors",
                "sensors",
                sensors.draw_sensors,
                "Whether doors are heard.",
            ),
            DashboardPage(
                invitations.INVITATIONS_PATH,
                "Invitations",
                "mail",
                partial(invitations.draw_invitations, office),
                "Businesses that ask you to join.",
            ),
            page("/hives/place/{id}", "Place", "hive", place.draw_place, "", listed=False),
        ),
        (DashboardDownload("/hives/export/{id}", export_csv(office), BUSINESS),),
        Path(__file__).with_name("static"),
        office.open,
    )


# Who may come in: whoever signs in to the application. What they see there is a matter of role.
#
# Roles of a person are `business` for members of an account and for those who reach into all, and
# `operator` for the latter.

BUSINESS = "business"


class HivesAuthenticator:
    """By the local issuer's logins; a session is a refresh token of its, never used to refresh.

    With Firebase, people sign in where Firebase is.
    """

    def __init__(self, office: DashboardContext) -> None:
        self._office = office

    async def admit(self, name: str, password: str) -> str | None:
        try:
            return (await self._desk().sign_in(name, password)).refresh_token
        except (AuthenticationFailed, InvalidRequest):
            return None

    async def recall(self, key: str) -> DashboardUser | None:
        try:
            return await self._person(await self._desk().holder(key))
        except AuthenticationFailed:
            return None

    async def dismiss(self, key: str) -> None:
        await self._desk().sign_out(key)

    def _desk(self) -> SignInService:
        resources = self._office.resources
        return require_local_identity(resources.identify).sign_in(resources.pool)

    async def _person(self, uid: str) -> DashboardUser:
        services = self._office.services
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
