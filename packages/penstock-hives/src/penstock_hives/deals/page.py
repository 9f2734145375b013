"""`/hives/deals`: the deals of a business, their effects, and the codes that users show."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from nicegui import ui
from pydantic import Field

from penstock_hives.api.fields import RequestBody
from penstock_hives.deals.models import Deal
from penstock_hives.people.permissions import AppPermission, Caller
from penstock_hives.places.models import HiveSettings
from penstock_hives.web import components
from penstock_hives.web.context import DashboardContext
from penstock_hives.web.forms import EditForm
from penstock_store.dashboard.pages import PageRequest

#: The newest of each hive.
_SHOWN = 10


class CodeBody(RequestBody):
    code: str = Field(pattern="^[0-9A-Za-z -]{8,12}$")


async def draw_deals(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    view = await context.account_view(visit)
    with ui.element("div").classes("h-head"):
        components.choose_account(view, "/hives/deals")
        if view.caller.may(AppPermission.EDIT_DEALS, view.account.id):
            ui.button("New deal", icon="add").props(
                f"unelevated no-caps href=/hives/deals/new?account={view.account.id}"
            )
    _draw_codes(context, view.caller)
    with components.card("Deals and their effects"):
        await draw_effects(context, view.caller, view.hives)


def _draw_codes(context: DashboardContext, caller: Caller) -> None:
    async def verify(body: CodeBody) -> None:
        result.set_text("")
        found = await context.services.deals.verify(caller, body.code)
        result.set_text(f"Valid: “{found.title}” at {found.hive_name}. It is used now.")
        field.set_value("")

    with components.card("Verify a code", "A user who redeems a deal shows a code, valid once."):
        form = EditForm(CodeBody, verify)
        with ui.row().classes("items-start w-full gap-2"):
            field = form.text("code", "Code")
            field.classes(replace="h-code").props('placeholder="7KQM-2XHB" autocomplete=off')
            field.on("keydown.enter", form.submit)
            form.submit_button("Verify")
        result = ui.label().classes("p-good-text").props("aria-live=polite")


def deal_state(deal: Deal, now: datetime) -> tuple[str, str]:
    """A word for its state, and the class of the pill."""
    if deal.status != "published":
        return deal.status, "busy"
    if deal.expires_at <= now:
        return "ended", "busy"
    if deal.max_redemptions is not None and deal.redemptions >= deal.max_redemptions:
        return "used up", "warn"
    return ("scheduled", "warn") if deal.starts_at > now else ("active", "good")


async def draw_effects(
    context: DashboardContext, caller: Caller, hives: Sequence[HiveSettings]
) -> None:
    deals = context.services.deals
    now = context.resources.clock()
    found = [
        (hive, deal, await deals.effect(caller, deal.id))
        for hive in hives
        for deal in (await deals.of_hive(caller, hive.id, None, _SHOWN)).items
    ]
    if not found:
        components.empty_state("local_offer", "No deals yet", "A deal can fill quiet hours.")
        return
    found.sort(key=lambda each: each[1].expires_at, reverse=True)
    columns = ["Deal", "Place", "Until", "Opened:", "Redeemed:", "Visitors a day:", "On top:"]
    with components.table(columns) as table:
        for hive, deal, effect in found:
            values = (
                f"{effect.opened:,} of {effect.shown:,}",
                f"{effect.redeemed:,}",
                components.number_text(effect.visits_a_day),
                components.change_text(effect.lift),
            )
            with table.row() as row:
                with row.cell():
                    ui.link(deal.title, f"/hives/deals/{deal.id}").classes("h-link")
                    with ui.row().classes("items-center gap-2"):
                        ui.label(deal.kind).classes("p-muted p-small")
                        components.pill(*deal_state(deal, now))
                with row.cell():
                    ui.label(hive.name)
                with row.cell():
                    ui.label(components.clock_text(deal.expires_at, hive.time_zone))
                for value in values:
                    with row.cell():
                        ui.label(value).classes("p-number")
