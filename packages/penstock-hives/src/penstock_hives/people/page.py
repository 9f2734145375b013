"""`/hives/invitations`: invitations of the user, to accept or decline."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from nicegui import ui

from penstock.core.errors import PenstockError
from penstock_hives.people.models import Invitation
from penstock_hives.people.permissions import Caller
from penstock_hives.web import components
from penstock_hives.web.context import DashboardContext
from penstock_store.dashboard.pages import ANONYMOUS, PageRequest

INVITATIONS_PATH = "/hives/invitations"
_ROLES = {"account_member": "a member", "account_admin": "an admin"}


async def draw_invitations(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    invitations = context.services.invitations
    if visit.user == ANONYMOUS:
        components.empty_state("mail", "No sign-in", "Start the dashboards with --gate hives.")
        return
    caller = await context.caller(visit.user)
    code = visit.query.get("code", "")
    if code:
        await _draw_mailed(context, caller, code)
        return
    found = await invitations.mine(caller)
    if not found:
        components.empty_state(
            "mail", "No invitations", "Invitations to join a business are shown here."
        )
    for each in found:
        _draw(
            each,
            partial(invitations.accept, caller, each.account_id),
            partial(invitations.decline, caller, each.account_id),
        )


async def _draw_mailed(context: DashboardContext, caller: Caller, code: str) -> None:
    """An invitation by the link in a mail."""
    try:
        found = await context.mail_invitations.find(code)
    except PenstockError as error:
        components.empty_state("mail", "Not valid", str(error))
        return
    about = f"You would act for it as {_ROLES[found.role]}."
    accept = partial(context.mail_invitations.accept, caller, code)
    with components.card(found.account, about), ui.row():
        ui.button("Accept", on_click=lambda: _answer(accept, "/hives")).props("unelevated no-caps")


def _draw(
    invitation: Invitation,
    accept: Callable[[], Awaitable[object]],
    decline: Callable[[], Awaitable[object]],
) -> None:
    about = f"You would act for it as {_ROLES[invitation.role]}."
    with components.card(invitation.account, about), ui.row():
        ui.button("Accept", on_click=lambda: _answer(accept, "/hives")).props("unelevated no-caps")
        ui.button("Decline", on_click=lambda: _answer(decline, INVITATIONS_PATH)).props(
            "flat no-caps"
        )


async def _answer(act: Callable[[], Awaitable[object]], then: str) -> None:
    try:
        await act()
    except PenstockError as error:
        ui.notify(str(error), type="negative")
    else:
        ui.navigate.to(then)
