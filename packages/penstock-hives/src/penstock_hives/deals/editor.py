"""`/hives/deals/new` and `/hives/deals/{id}`: drafts, schedules and limits of deals."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final
from zoneinfo import ZoneInfo

from nicegui import ui

from penstock.core.errors import NotFound
from penstock.core.units import parse_count
from penstock_hives.api.fields import fields_set
from penstock_hives.deals.endpoints import DealEdit, NewDeal
from penstock_hives.deals.models import Deal
from penstock_hives.errors import invalid_field
from penstock_hives.people.permissions import AppPermission
from penstock_hives.web import components
from penstock_hives.web.context import DashboardContext
from penstock_hives.web.forms import EditForm, ask
from penstock_store.dashboard.pages import PageRequest

KINDS: Final = {
    "discount": "Discount",
    "promotion": "Promotion",
    "daily": "Daily deal, for one day",
    "event": "Event",
}
STATUSES: Final = {"published": "Published", "draft": "Draft, not visible to users"}
_PATTERN: Final = "%Y-%m-%dT%H:%M"


def local_moment(field: str, text: Any, zone: str) -> datetime:
    """From an input of local date and time."""
    try:
        wall = datetime.fromisoformat(str(text or ""))
    except ValueError:
        raise invalid_field(field, "must be a date and a time") from None
    return wall.replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)


async def draw_new_deal(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    view = await context.account_view(visit)
    view.caller.require(AppPermission.EDIT_DEALS, view.account.id)
    if not view.hives:
        components.empty_state("storefront", "No places yet", "A deal is offered by a place.")
        return
    hives = {hive.id: hive for hive in view.hives}
    wanted = parse_count(visit.query.get("hive", ""))
    with components.card("The deal"):
        chosen = ui.select(
            {hive.id: hive.name for hive in view.hives},
            label="Place",
            value=wanted if wanted in hives else view.hives[0].id,
        )
        chosen.props("outlined dense options-dense").classes("w-full")

        async def save(body: NewDeal) -> None:
            await context.services.deals.make(view.caller, chosen.value, body.model_dump())
            ui.navigate.to(f"/hives/deals?account={view.account.id}")

        form = EditForm(NewDeal, save)
        zone = hives[chosen.value].time_zone
        hour = context.resources.clock().astimezone(ZoneInfo(zone))
        begins = hour.replace(minute=0) + timedelta(hours=1)
        _fields(form, lambda: hives[chosen.value].time_zone, begins, begins + timedelta(days=7))
        with ui.row():
            form.submit_button("Create the deal")


async def draw_deal(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    caller = await context.caller(visit.user)
    number = parse_count(visit.parameters["id"])
    if number is None:
        raise NotFound(f"deal {visit.parameters['id']} not found")
    deal = await context.services.deals.own(caller, number)
    visit.set_title(deal.title)

    async def save(body: DealEdit) -> None:
        await context.services.deals.edit(caller, deal.id, fields_set(body), None)
        ui.navigate.to("/hives/deals")

    effect = await context.services.deals.effect(caller, deal.id)
    with components.figures():
        components.figure(f"{effect.shown:,}", "times shown")
        components.figure(f"{effect.opened:,}", "times opened")
        limit = "" if deal.max_redemptions is None else f" of {deal.max_redemptions:,}"
        components.figure(f"{deal.redemptions:,}{limit}", "redeemed")
        components.figure(components.number_text(effect.visits_a_day), "visitors a day")
        components.figure(components.change_text(effect.lift), "on top of what was expected")
    with components.card("The deal", f"At {deal.hive_name}, in its local time."):
        form = EditForm(DealEdit, save)
        zone = ZoneInfo(deal.time_zone)
        times = (deal.starts_at.astimezone(zone), deal.expires_at.astimezone(zone))
        _fields(form, lambda: deal.time_zone, *times, deal=deal)
        with ui.row():
            form.submit_button()
            if deal.status != "withdrawn":
                withdraw = partial(context.services.deals.withdraw, caller, deal.id)
                dialog = ask(f"Withdraw “{deal.title}”?", "Withdraw", withdraw, "/hives/deals")
                ui.button("Withdraw", on_click=dialog.open).props("flat no-caps color=negative")


def _fields(
    form: EditForm[Any],
    zone: Callable[[], str],
    begins: datetime,
    ends: datetime,
    deal: Deal | None = None,
) -> None:
    form.text("title", "Title", deal.title if deal else "")
    form.area("description", "Description", deal.description if deal else "")
    form.area("terms", "Terms", deal.terms if deal else "")
    with ui.element("div").classes("h-dates"):
        form.choice("kind", "Kind", KINDS, deal.kind if deal else "discount")
        status = deal.status if deal and deal.status in STATUSES else "draft"
        form.choice("status", "Status", STATUSES, status if deal else "published")

    def reader(name: str) -> Callable[[Any], datetime]:
        return lambda text: local_moment(name, text, zone())

    with ui.element("div").classes("h-dates"):
        for name, label, at in (("starts_at", "From", begins), ("expires_at", "Until", ends)):
            form.moment(name, label, at.strftime(_PATTERN), reader(name))
    form.number(
        "max_redemptions",
        "Limit",
        deal.max_redemptions if deal else None,
        "How often it may be redeemed in all; empty: without limit.",
    )
