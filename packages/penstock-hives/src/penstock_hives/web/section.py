"""The dashboard section of hives: pages and authenticator over one `DashboardContext`.

Users have the role `business` if they are members of an account, operators also `operator`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from penstock.core.errors import AuthenticationFailed, PenstockError
from penstock_hives.analytics import explorer
from penstock_hives.analytics import metrics_page as metrics
from penstock_hives.analytics import page as overview
from penstock_hives.analytics import report_page as report
from penstock_hives.billing import page as plan
from penstock_hives.deals import editor as deal_editor
from penstock_hives.deals import page as deals
from penstock_hives.errors import InvalidRequest, NotConfigured, RequestConflict
from penstock_hives.identity.firebase import FirebaseSessions
from penstock_hives.identity.service import SignInService, require_local_identity
from penstock_hives.messages import followers_page as followers
from penstock_hives.messages import page as feedback
from penstock_hives.people import members_page as members
from penstock_hives.people import page as invitations
from penstock_hives.people.permissions import EVERYWHERE, AppPermission, Caller, UserRole
from penstock_hives.people.repository import PeopleRepository
from penstock_hives.places import editor as place_editor
from penstock_hives.places import page as place
from penstock_hives.places.page import export_csv
from penstock_hives.sensors import editor as sensor_editor
from penstock_hives.sensors import page as sensors
from penstock_hives.web import operator_pages as operator
from penstock_hives.web import start_page as start
from penstock_hives.web.context import DashboardContext
from penstock_hives.webhooks import page as webhooks
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


#: In the menu of a business: path, title, icon, function, description.
_MENU: Final[tuple[tuple[str, str, str, Draw, str], ...]] = (
    (
        "/hives",
        "Places",
        "hive",
        overview.draw_overview,
        "Occupancy and development of your places.",
    ),
    (
        explorer.PATH,
        "Analytics",
        "insights",
        explorer.draw_analytics,
        "Any period, several places, what users do and say.",
    ),
    ("/hives/metrics", "Metrics", "functions", metrics.draw_metrics, "Figures that you define."),
    ("/hives/deals", "Deals", "local_offer", deals.draw_deals, "Deals and their effects."),
    (
        "/hives/feedback",
        "Feedback",
        "forum",
        feedback.draw_feedback,
        "Messages and ratings of visitors.",
    ),
    (
        "/hives/followers",
        "Followers",
        "campaign",
        followers.draw_followers,
        "Messages to the users who follow your places.",
    ),
    (
        report.PATH,
        "Weekly report",
        "summarize",
        report.draw_report,
        "The week of your places, also by mail.",
    ),
    ("/hives/sensors", "Sensors", "sensors", sensors.draw_sensors, "Sensor status."),
    (
        members.MEMBERS_PATH,
        "Members",
        "group",
        members.draw_members,
        "Who works on your places, and as what.",
    ),
    (
        "/hives/webhooks",
        "Webhooks",
        "webhook",
        webhooks.draw_webhooks,
        "Events for your own programs.",
    ),
    ("/hives/plan", "Plan", "receipt_long", plan.draw_plan, "Plan and invoices."),
)
#: Reached from other pages.
_OTHERS: Final[tuple[tuple[str, str, str, Draw], ...]] = (
    ("/hives/new", "New place", "hive", place_editor.draw_new_place),
    ("/hives/place/{id}", "Place", "hive", place.draw_place),
    ("/hives/place/{id}/edit", "Edit", "hive", place_editor.draw_edit_place),
    ("/hives/deals/new", "New deal", "local_offer", deal_editor.draw_new_deal),
    ("/hives/deals/{id}", "Deal", "local_offer", deal_editor.draw_deal),
    ("/hives/sensors/new", "New sensor", "sensors", sensor_editor.draw_new_sensor),
    ("/hives/sensors/{id}", "Sensor", "sensors", sensor_editor.draw_sensor),
)


def section_over(context: DashboardContext) -> DashboardSection:
    def page(path: str, title: str, icon: str, draw: Draw, about: str) -> DashboardPage:
        return DashboardPage(path, title, icon, partial(draw, context), about, BUSINESS)

    def other(path: str, title: str, icon: str, draw: Draw) -> DashboardPage:
        return replace(page(path, title, icon, draw, ""), in_menu=False)

    return DashboardSection(
        "Hives",
        (
            *(page(*each) for each in _MENU),
            DashboardPage(
                invitations.INVITATIONS_PATH,
                "Invitations",
                "mail",
                partial(invitations.draw_invitations, context),
                "Invitations to join a business.",
            ),
            *operator_section(context),
            replace(other(start.PATH, "Getting started", "flag", start.draw_start), role=None),
            *(other(*each) for each in _OTHERS),
        ),
        (
            DashboardDownload("/hives/export/{id}", export_csv(context), BUSINESS),
            DashboardDownload("/hives/picture/{id}", place_editor.picture_file(context), BUSINESS),
        ),
        Path(__file__).with_name("static"),
        context.open,
    )


def operator_section(context: DashboardContext) -> tuple[DashboardPage, ...]:
    pages: tuple[tuple[str, str, str, Draw, str], ...] = (
        ("users", "Users", "person", operator.draw_users, "Users and their roles."),
        ("businesses", "Businesses", "business", operator.draw_businesses, "Businesses and plans."),
        ("usage", "Usage", "query_stats", operator.draw_usage, "What users view and look for."),
        ("audit", "Audit log", "history", operator.draw_audit, "Who changed what."),
        ("support", "Support", "support_agent", operator.draw_support, "Questions of users."),
        (
            *("dead-letters", "Dead letters", "mark_email_unread", operator.draw_dead_letters),
            "Messages that could not be used.",
        ),
    )
    return tuple(
        DashboardPage(
            f"/operator/{name}", title, icon, partial(draw, context), about, OPERATOR_ROLE
        )
        for name, title, icon, draw, about in pages
    )


#: Advisory lock: one first administrator.
_FIRST_LOCK: Final = 0x61646D6E
_HAS_USERS: Final = """
    SELECT 1 AS found FROM app_user UNION ALL SELECT 1 FROM credential LIMIT 1
"""


class HivesAuthenticator:
    """Logins of the local issuer, or of Firebase. A session is a refresh token; that of the local
    issuer is never used to refresh."""

    first_page = start.PATH

    def __init__(self, context: DashboardContext) -> None:
        self._context = context

    async def needs_administrator(self) -> bool:
        if self._context.firebase is not None:  # `penstock hives admin create` makes the first
            return False
        return await self._context.resources.pool.row(_HAS_USERS) is None

    async def create_administrator(self, name: str, password: str) -> str:
        pool = self._context.resources.pool
        async with pool.join_transaction() as connection:
            await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_FIRST_LOCK,))
            if not await self.needs_administrator():
                raise RequestConflict("there are users already: sign in")
            session = await self._service().sign_up(name, password)
            caller = await self._context.services.users.caller(session.uid)
            role = {"role": UserRole.ADMIN.value}
            await PeopleRepository(connection).change(caller.known, role)
        return session.refresh_token

    async def sign_in(self, name: str, password: str, address: str) -> str | None:
        if self._context.firebase is not None:
            return await self._context.firebase.sign_in(name, password)
        try:
            return (await self._service().sign_in(name, password, address)).refresh_token
        except (AuthenticationFailed, InvalidRequest):
            return None

    def providers(self) -> Mapping[str, str]:
        firebase = self._context.firebase
        return {} if firebase is None else firebase.providers()

    async def begin(self, provider: str, back: str) -> tuple[str, str]:
        return await self._require_firebase().begin(provider, back)

    async def finish(self, provider: str, state: str, url: str) -> str | None:
        return await self._require_firebase().finish(provider, state, url)

    async def find_user(self, key: str) -> DashboardUser | None:
        sessions = self._context.firebase or self._service()
        try:
            return await self._user(await sessions.user_of_session(key))
        except AuthenticationFailed:
            return None

    async def sign_out(self, key: str) -> None:
        if self._context.firebase is not None:
            self._context.firebase.sign_out(key)
            return
        await self._service().sign_out(key)

    def _require_firebase(self) -> FirebaseSessions:
        if self._context.firebase is None:
            raise NotConfigured("the issuer is local: sign in with a password")
        return self._context.firebase

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
