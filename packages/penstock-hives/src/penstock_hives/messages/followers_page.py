"""`/hives/followers`: messages to the users who follow a place."""

from __future__ import annotations

from typing import Annotated

from nicegui import ui
from pydantic import Field

from penstock_hives.api.fields import LongText, ObjectId, RequestBody, ShortText
from penstock_hives.messages.follower_messages import MAX_MESSAGES, PERIOD
from penstock_hives.web import components
from penstock_hives.web.context import DashboardContext
from penstock_hives.web.forms import EditForm
from penstock_store.dashboard.pages import PageRequest

_SHOWN = 20
_PATH = "/hives/followers"


class FollowerMessageBody(RequestBody):
    hive_id: ObjectId
    title: Annotated[ShortText, Field(max_length=80)]
    body: Annotated[LongText, Field(min_length=1, max_length=500)]


async def draw_followers(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    view = await context.account_view(visit)
    messages = context.services.followers
    with ui.element("div").classes("h-head"):
        components.choose_account(view, _PATH)
    counted = {hive.id: await messages.followers(view.caller, hive.id) for hive in view.hives}
    options = {hive.id: f"{hive.name} · {counted[hive.id]:,} followers" for hive in view.hives}

    async def send(body: FollowerMessageBody) -> None:
        reached = await messages.send(view.caller, body.hive_id, body.title, body.body)
        ui.notify(f"Sent to {reached:,} people.", type="positive")
        ui.navigate.to(f"{_PATH}?account={view.account.id}")

    about = (
        "Users who have the place among their favourites get it in their inbox and on their "
        f"devices. At most {MAX_MESSAGES} in {PERIOD.days} days from each place."
    )
    with components.card("Write to followers", about):
        if not options:
            components.empty_state("storefront", "No places yet", "Followers follow a place.")
            return
        form = EditForm(FollowerMessageBody, send)
        most = max(options, key=lambda hive: counted[hive])
        form.choice("hive_id", "Place", options, most)
        form.text("title", "Title")
        form.area("body", "Message")
        with ui.row():
            form.submit_button("Send")
    sent = await messages.of_account(view.caller, view.account.id, _SHOWN)
    with components.card("Sent"):
        if not sent:
            components.empty_state("campaign", "Nothing sent yet", "Messages are listed here.")
        for each in sent:
            with ui.column().classes("h-message gap-1"):
                ui.label(each.title).classes("p-h3")
                ui.label(each.body)
                when = components.clock_text(each.created_at, each.time_zone)
                ui.label(f"{each.hive} · {when} · {each.recipients:,} recipients").classes(
                    "p-muted p-small"
                )
