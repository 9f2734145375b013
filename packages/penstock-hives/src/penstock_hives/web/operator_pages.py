"""`/operator/…`: pages of those who run the installation: users, businesses, usage, audit, support,
dead letters."""

from __future__ import annotations

from functools import partial
from typing import Final

from nicegui import ui

from penstock.core.units import parse_count
from penstock_hives.api.fields import Identifier, ObjectId, RequestBody
from penstock_hives.billing.page import feature_text, price_text
from penstock_hives.people.permissions import AppPermission, Caller, UserRole
from penstock_hives.web import charts, components
from penstock_hives.web.context import DashboardContext
from penstock_hives.web.forms import EditForm, act
from penstock_store.dashboard.pages import PageRequest
from penstock_store.dashboard.theme import draw_chart

_SHOWN: Final = 50
_ROLES: Final = {role.value: role.value.replace("_", " ") for role in list(UserRole)[1:]}
_DEAD_LETTERS: Final = """
    SELECT day, stream, reason, count, last_at FROM dead_letter_count
    ORDER BY day DESC, count DESC LIMIT 100
"""
_HELD_PLANS: Final = """
    SELECT t.code, count(*) AS held FROM subscription s
    JOIN subscription_type t ON t.id = s.subscription_type_id
    WHERE s.status IN ('active', 'trial', 'past_due', 'cancelled')
      AND s.started_at <= %(now)s AND (s.expires_at IS NULL OR s.expires_at > %(now)s)
    GROUP BY t.code
"""


class GrantBody(RequestBody):
    account_id: ObjectId
    plan: Identifier


async def draw_users(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    caller = await context.caller(visit.user)
    users = context.services.users
    found = await users.users(caller, visit.query.get("cursor"), _SHOWN)
    edits = caller.may(AppPermission.EDIT_ROLES)
    with components.card("Users", "Without names or addresses: those are with the issuer."):
        with components.table(["User", "Nickname", "Since", "Role"]) as table:
            for each in found.items:
                with table.row() as row:
                    with row.cell():
                        ui.label(str(each.id)).classes("p-mono")
                    with row.cell():
                        ui.label(each.nickname or "–")
                    with row.cell():
                        ui.label(f"{each.created_at:%-d %b %Y}")
                    with row.cell():
                        if edits and each.id != caller.id:
                            label = f"Role of user {each.id}"
                            role = ui.select(_ROLES, label=label, value=each.role)
                            role.props("outlined dense").classes("p-unlabelled")
                            role.on_value_change(
                                lambda event, user=each.id: act(
                                    partial(users.appoint, caller, user, UserRole(event.value)),
                                    "",
                                    "Saved",
                                )
                            )
                        else:
                            ui.label(_ROLES.get(each.role, each.role))
        _more("/operator/users", found.next, "More")


async def draw_businesses(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    caller = await context.caller(visit.user)
    found = await context.services.accounts.mine(caller, visit.query.get("cursor"), _SHOWN)
    with components.card("Businesses"):
        with components.table(["Business", "Status", "Plan", "Places:", "Since"]) as table:
            for each in found.items:
                with table.row() as row:
                    with row.cell():
                        ui.link(each.name, f"/hives?account={each.id}").classes("h-link")
                    for text in (
                        each.status,
                        each.plan,
                        f"{each.hives:,}",
                        f"{each.created_at:%-d %b %Y}",
                    ):
                        with row.cell():
                            ui.label(text)
        _more("/operator/businesses", found.next, "More")

    async def grant(body: GrantBody) -> None:
        await context.services.plans.grant(caller, body.plan, None, body.account_id, None)
        ui.navigate.to("/operator/businesses")

    await _plans(context, caller)
    if not caller.may(AppPermission.GRANT_PLANS) or not found.items:
        return
    plans = [each for each in await context.services.plans.plans() if each.audience == "account"]
    with components.card("Grant a plan", "Without payment, until it is cancelled."):
        form = EditForm(GrantBody, grant)
        with ui.element("div").classes("h-dates"):
            names = {each.id: each.name for each in found.items}
            form.choice("account_id", "Business", names, found.items[0].id)
            form.choice("plan", "Plan", {each.code: each.name for each in plans}, "business")
        with ui.row():
            form.submit_button("Grant")


async def _plans(context: DashboardContext, caller: Caller) -> None:
    """What is sold, and how many hold it."""
    caller.require(AppPermission.READ_USAGE)
    resources = context.resources
    rows = await resources.pool.rows(_HELD_PLANS, {"now": resources.clock()})
    held = {row["code"]: row["held"] for row in rows}
    about = "With the subscriptions that apply now, bought or granted."
    with components.card("Plans", about):
        columns = ["Plan", "For", "Price", "Includes", "Subscriptions:"]
        with components.table(columns) as table:
            for plan in await context.services.plans.plans():
                with table.row() as row:
                    for text in (
                        plan.name,
                        "businesses" if plan.audience == "account" else "users",
                        price_text(plan),
                        ", ".join(map(feature_text, plan.features)),
                        f"{held.get(plan.code, 0):,}",
                    ):
                        with row.cell():
                            ui.label(text)


async def draw_usage(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    caller = await context.caller(visit.user)
    found = await context.services.activity.everybody(caller, 28, 15)
    viewed = (*found.pages, *found.hives, *found.favourites)
    numbers = {parse_count(each.name.removeprefix("hive/")) for each in viewed} - {None}
    statement = "SELECT id, name FROM hive WHERE id = ANY (%s)"
    rows = await context.resources.pool.rows(statement, (list(numbers),))
    places = {str(row["id"]): row["name"] for row in rows}
    titles = {
        "pages": "Most viewed pages",
        "searches": "Most frequent searches",
        "hives": "Most viewed places",
        "favourites": "New favourites",
    }
    with ui.element("div").classes("p-columns"):
        for name, title in titles.items():
            counted = getattr(found, name)
            with components.card(title, "In the last four weeks."):
                if not counted:
                    components.empty_state("bar_chart", "No data", "Usage is counted here.")
                    continue
                # Places have their number as name, their pages `hive/NUMBER`.
                names = [
                    each.name
                    if name == "searches"
                    else places.get(each.name.removeprefix("hive/"), each.name)
                    for each in counted
                ]
                bars = {"count": [each.count for each in counted]}
                draw_chart(charts.bars_chart(names, bars), title)


async def draw_audit(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    caller = await context.caller(visit.user)
    found = await context.services.users.audit(caller, None, visit.query.get("cursor"), _SHOWN)
    with components.card("Audit log", "Who changed what, the newest first; times in UTC."):
        if not found.items:
            components.empty_state("history", "Nothing yet", "Changes are recorded here.")
        columns = ["When", "User:", "Action", "What", "Business:", "Details"]
        with components.table(columns) as table:
            for each in found.items:
                with table.row() as row:
                    for text in (
                        components.clock_text(each.at, "UTC"),
                        "–" if each.user_id is None else str(each.user_id),
                        each.action,
                        f"{each.entity} {each.entity_id or ''}".strip(),
                        "–" if each.account_id is None else str(each.account_id),
                        ", ".join(f"{name}: {value}" for name, value in each.details.items()),
                    ):
                        with row.cell():
                            ui.label(text)
        _more("/operator/audit", found.next)


async def draw_support(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    caller = await context.caller(visit.user)
    messages = context.services.messages
    found = await messages.support(caller, visit.query.get("cursor"), _SHOWN)
    with components.card("Support", "Questions of users, the newest first."):
        if not found.items:
            components.empty_state("support_agent", "No questions", "Users ask with the app.")
        for message in found.items:
            with ui.column().classes("h-message gap-1"):
                when = components.clock_text(message.created_at, "UTC")
                ui.label(f"User {message.user_id} · {when} UTC").classes("p-muted p-small")
                ui.label(message.content)
                with ui.row().classes("items-center gap-2 w-full no-wrap"):
                    answer = ui.input(placeholder="Answer").props("outlined dense").classes("grow")
                    answer.props["aria-label"] = f"Answer to message {message.id}"

                    async def reply(number: int = message.id, field: ui.input = answer) -> None:
                        if text := (field.value or "").strip():
                            field.set_value("")
                            await act(partial(messages.reply, caller, number, text), "", "Sent")

                    ui.button(icon="send", on_click=reply).props("flat round dense aria-label=Send")
        _more("/operator/support", found.next)


async def draw_dead_letters(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    caller = await context.caller(visit.user)
    caller.require(AppPermission.READ_USAGE)
    rows = await context.resources.pool.rows(_DEAD_LETTERS)
    about = "Messages of sensors that the pipeline could not use; the lake keeps them whole."
    with components.card("Dead letters", about):
        if not rows:
            components.empty_state("mark_email_read", "None", "All messages could be used.")
            return
        days = sorted({row["day"] for row in rows})
        reasons = sorted({row["reason"] for row in rows})
        counted = {(row["day"], row["reason"]): row["count"] for row in rows}
        bars = {reason: [counted.get((day, reason), 0) for day in days] for reason in reasons}
        draw_chart(
            charts.columns_chart([f"{day:%-d %b}" for day in days], bars), "Dead letters by day"
        )
        with components.table(["Day", "Stream", "Reason", "Messages:", "Last"]) as table:
            for each in rows:
                with table.row() as row:
                    for text in (
                        f"{each['day']:%-d %b}",
                        each["stream"],
                        each["reason"],
                        f"{each['count']:,}",
                        components.clock_text(each["last_at"], "UTC"),
                    ):
                        with row.cell():
                            ui.label(text)


def _more(path: str, cursor: str | None, label: str = "Older") -> None:
    if cursor is not None:
        ui.link(label, f"{path}?cursor={cursor}").classes("p-accent")
