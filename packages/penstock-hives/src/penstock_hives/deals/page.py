"""`/hives/deals`: the deals of a business and their effects."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from penstock_hives.people.permissions import Caller
from penstock_hives.places.models import HiveSettings
from penstock_hives.web import components
from penstock_hives.web.context import DashboardContext
from penstock_store.dashboard.pages import PageRequest

#: The newest of each hive.
_SHOWN = 10


async def draw_deals(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    view = await context.account_view(visit)
    with ui.element("div").classes("h-head"):
        components.choose_account(view, "/hives/deals")
    with components.card("Deals and their effects"):
        await draw_effects(context, view.caller, view.hives)


async def draw_effects(
    context: DashboardContext, caller: Caller, hives: Sequence[HiveSettings]
) -> None:
    deals = context.services.deals
    found = [
        (hive, deal, await deals.effect(caller, deal.id))
        for hive in hives
        for deal in (await deals.of_hive(caller, hive.id, None, _SHOWN)).items
    ]
    if not found:
        about = "Create deals with the API."
        components.empty_state("local_offer", "No deals yet", about)
        return
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
                    ui.label(deal.title).classes("p-h3")
                    ui.label(f"{deal.kind} · {deal.status}").classes("p-muted p-small")
                with row.cell():
                    ui.label(hive.name)
                with row.cell():
                    ui.label(components.clock_text(deal.expires_at, hive.time_zone))
                for value in values:
                    with row.cell():
                        ui.label(value).classes("p-number")
