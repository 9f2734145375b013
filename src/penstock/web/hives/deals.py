"""`/hives/deals`: deals of a business, and what came of each."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.hives import HiveSettings
from penstock.web.hives import pieces, words
from penstock.web.hives.office import Office
from penstock.web.pages import Visit

#: Of each hive, the newest.
_SHOWN = 10


async def draw(office: Office, visit: Visit) -> None:
    ui.add_head_html(pieces.STYLES)
    desk = await office.desk(visit)
    with ui.element("div").classes("h-head"):
        pieces.choose_account(desk, "/hives/deals")
    with pieces.card("Deals and what came of them"):
        await effects(office, desk.caller, desk.hives)


async def effects(office: Office, caller: Caller, hives: Sequence[HiveSettings]) -> None:
    deals = office.services.deals
    found = [
        (hive, deal, await deals.effect(caller, deal.id))
        for hive in hives
        for deal in (await deals.of_hive(caller, hive.id, None, _SHOWN)).items
    ]
    if not found:
        about = "A deal brings people when it is quiet; make one through the API."
        pieces.nothing("local_offer", "No deals yet", about)
        return
    columns = ["Deal", "Place", "Until", "Opened:", "Redeemed:", "Visitors a day:", "On top:"]
    with pieces.table(columns) as table:
        for hive, deal, effect in found:
            values = (
                f"{effect.opened:,} of {effect.shown:,}",
                f"{effect.redeemed:,}",
                words.number(effect.visits_a_day),
                words.change(effect.lift),
            )
            with table.row() as row:
                with row.cell():
                    ui.label(deal.title).classes("p-h3")
                    ui.label(f"{deal.kind} · {deal.status}").classes("p-muted p-small")
                with row.cell():
                    ui.label(hive.name)
                with row.cell():
                    ui.label(words.clock(deal.expires_at, hive.time_zone))
                for value in values:
                    with row.cell():
                        ui.label(value).classes("p-number")
