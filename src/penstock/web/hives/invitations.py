"""`/hives/invitations`: businesses that ask the visitor to join, to be accepted or declined."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

from nicegui import ui

from penstock.core.errors import PenstockError
from penstock.hives.app.domain.people import Invitation
from penstock.web.gate import ANYONE
from penstock.web.hives import pieces
from penstock.web.hives.office import Office
from penstock.web.pages import Visit

PATH = "/hives/invitations"
_ROLES = {"account_member": "a member", "account_admin": "an admin"}


async def draw(office: Office, visit: Visit) -> None:
    ui.add_head_html(pieces.STYLES)
    invitations = office.services.invitations
    if visit.person == ANYONE:
        pieces.nothing("mail", "Nobody is asked who they are here", "Start it with --gate hives.")
        return
    caller = await office.caller(visit.person)
    found = await invitations.mine(caller)
    if not found:
        pieces.nothing("mail", "No invitations", "A business that asks you to join is shown here.")
    for each in found:
        _draw(
            each,
            partial(invitations.accept, caller, each.account_id),
            partial(invitations.decline, caller, each.account_id),
        )


def _draw(
    invitation: Invitation,
    accept: Callable[[], Awaitable[object]],
    decline: Callable[[], Awaitable[object]],
) -> None:
    about = f"You would act for it as {_ROLES[invitation.role]}."
    with pieces.card(invitation.account, about), ui.row():
        ui.button("Accept", on_click=lambda: _answer(accept, "/hives")).props("unelevated no-caps")
        ui.button("Decline", on_click=lambda: _answer(decline, PATH)).props("flat no-caps")


async def _answer(act: Callable[[], Awaitable[object]], then: str) -> None:
    try:
        await act()
    except PenstockError as error:
        ui.notify(str(error), type="negative")
    else:
        ui.navigate.to(then)
