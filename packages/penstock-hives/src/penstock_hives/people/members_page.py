"""`/hives/members`: who works for a business, invitations by e-mail, roles; its name and zone."""

from __future__ import annotations

from functools import partial
from typing import Final, Literal

from nicegui import ui
from pydantic import Field

from penstock_hives.api.fields import RequestBody, ShortText, TimeZoneName
from penstock_hives.people.permissions import AppPermission, UserRole
from penstock_hives.places.editor import time_zones
from penstock_hives.web import components
from penstock_hives.web.context import AccountView, DashboardContext
from penstock_hives.web.forms import EditForm, act, ask
from penstock_store.dashboard.pages import PageRequest

MEMBERS_PATH: Final = "/hives/members"
ROLES: Final = {
    "account_member": "Member: deals, pictures, feedback, figures",
    "account_admin": "Admin: also places, sensors, members, plan",
}
_SHORT: Final = {"account_member": "member", "account_admin": "admin"}


class InvitationBody(RequestBody):
    login: str = Field(min_length=3, max_length=254)
    role: Literal["account_member", "account_admin"]


class BusinessBody(RequestBody):
    name: ShortText
    time_zone: TimeZoneName


async def draw_members(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    view = await context.account_view(visit)
    with ui.element("div").classes("h-head"):
        components.choose_account(view, MEMBERS_PATH)
    here = f"{MEMBERS_PATH}?account={view.account.id}"
    await _members(context, view, here)
    if view.caller.may(AppPermission.EDIT_MEMBERS, view.account.id):
        await _invitations(context, view, here)
    if view.caller.may(AppPermission.EDIT_ACCOUNT, view.account.id):
        _business(context, view, here)


async def _members(context: DashboardContext, view: AccountView, here: str) -> None:
    accounts, account = context.services.accounts, view.account.id
    edits = view.caller.may(AppPermission.EDIT_MEMBERS, account)
    with components.card("Members"), components.table(["Member", "Since", "Role", ""]) as table:
        for member in await accounts.members(view.caller, account):
            name = member.nickname or f"User {member.user_id}"
            with table.row() as row:
                with row.cell():
                    ui.label(name).classes("p-h3")
                with row.cell():
                    zone = view.account.time_zone
                    ui.label(f"{components.local_date(member.created_at, zone):%-d %b %Y}")
                with row.cell():
                    if edits and member.user_id != view.caller.id:
                        role = ui.select(_SHORT, label=f"Role of {name}", value=member.role)
                        role.props("outlined dense").classes("p-unlabelled")
                        role.on_value_change(
                            lambda event, user=member.user_id: act(
                                partial(
                                    accounts.appoint,
                                    view.caller,
                                    account,
                                    user,
                                    UserRole(event.value),
                                ),
                                here,
                            )
                        )
                    else:
                        ui.label(_SHORT[member.role])
                with row.cell():
                    own = member.user_id == view.caller.id
                    if own or edits:
                        work = partial(accounts.dismiss, view.caller, account, member.user_id)
                        word = "Leave" if own else "Remove"
                        then = "/" if own else here
                        dialog = ask(
                            f"{word} {name}?" if not own else "Leave it?", word, work, then
                        )
                        ui.button(word, on_click=dialog.open).props("flat dense no-caps")


async def _invitations(context: DashboardContext, view: AccountView, here: str) -> None:
    async def send(body: InvitationBody) -> None:
        role = UserRole(body.role)
        await context.mail_invitations.invite(view.caller, view.account.id, body.login, role)
        ui.notify(f"A mail is on its way to {body.login}.", type="positive")
        ui.navigate.to(here)

    about = "Who has the link in the mail and signs in can accept it, once, within two weeks."
    with components.card("Invite by e-mail", about):
        form = EditForm(InvitationBody, send)
        with ui.element("div").classes("h-dates"):
            form.text("login", "E-mail address").props("type=email")
            form.choice("role", "Role", ROLES, "account_member")
        with ui.row():
            form.submit_button("Invite")
        waiting = await context.mail_invitations.of_account(view.caller, view.account.id)
        if not waiting:
            return
        with components.table(["Invited", "Role", "Valid until", ""]) as table:
            for each in waiting:
                with table.row() as row:
                    with row.cell():
                        ui.label(each.email)
                    with row.cell():
                        ui.label(_SHORT[each.role])
                    with row.cell():
                        ui.label(components.clock_text(each.expires_at, view.account.time_zone))
                    with row.cell():
                        withdraw = partial(
                            context.mail_invitations.withdraw,
                            *(view.caller, view.account.id, each.email),
                        )
                        ui.button("Withdraw", on_click=partial(act, withdraw, here)).props(
                            "flat dense no-caps"
                        )


def _business(context: DashboardContext, view: AccountView, here: str) -> None:
    async def save(body: BusinessBody) -> None:
        values = body.model_dump()
        await context.services.accounts.edit(view.caller, view.account.id, values, None)
        ui.navigate.to(here)

    with components.card("The business"):
        form = EditForm(BusinessBody, save)
        with ui.element("div").classes("h-dates"):
            form.text("name", "Name", view.account.name)
            zone = view.account.time_zone
            form.choice("time_zone", "Time zone", {**time_zones(), zone: zone}, zone)
        with ui.row():
            form.submit_button()
