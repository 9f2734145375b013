"""`/hives/webhooks`: webhooks of a business, their secrets, and what was delivered."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Final

from nicegui import ui
from pydantic import Field

from penstock_hives.api.fields import RequestBody
from penstock_hives.people.permissions import AppPermission
from penstock_hives.web import components
from penstock_hives.web.context import AccountView, DashboardContext
from penstock_hives.web.forms import EditForm, act, ask
from penstock_hives.webhooks.service import Webhook, WebhookEvent, WebhookService
from penstock_store.dashboard.pages import PageRequest

_PATH: Final = "/hives/webhooks"
_SHOWN: Final = 15
EVENTS: Final = {
    WebhookEvent.OCCUPANCY: "Occupancy, at most once a minute for each place",
    WebhookEvent.SENSOR_ALERT: "Alerts about sensors",
    WebhookEvent.SENSOR: "Changes of sensors: registered, configured, replaced, retired",
    WebhookEvent.DEAL: "Verified codes of deals",
}
_LOOKS: Final = {"sent": "good", "pending": "warn", "failed": "bad"}


class WebhookBody(RequestBody):
    url: Annotated[str, Field(min_length=1, max_length=2000)]
    events: Annotated[list[WebhookEvent], Field(min_length=1)]


async def draw_webhooks(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    view = await context.account_view(visit)
    view.caller.require(AppPermission.EDIT_ACCOUNT, view.account.id)
    resources = context.resources
    service = WebhookService(
        resources.pool, resources.clock, production=resources.settings.production
    )
    with ui.element("div").classes("h-head"):
        components.choose_account(view, _PATH)
    _form(service, view)
    for webhook in await service.of_account(view.caller, view.account.id):
        await _draw(context, service, view, webhook)


def _form(service: WebhookService, view: AccountView) -> None:
    async def save(body: WebhookBody) -> None:
        _, secret = await service.add(view.caller, view.account.id, body.url, body.events)
        shown.clear()
        with shown, ui.element("div").classes("h-access").props("data-secret"):
            ui.label("Secret").classes("p-muted p-small")
            ui.label(secret).classes("p-mono h-secret")
        with shown:
            ui.label("It signs the deliveries and is not shown again.").classes("p-muted p-small")
            ui.button("Done", on_click=lambda: ui.navigate.to(here)).props("outline no-caps")

    here = f"{_PATH}?account={view.account.id}"
    about = "Events are posted as JSON, signed with a secret, and retried for about twenty minutes."
    with components.card("New webhook", about):
        form = EditForm(WebhookBody, save)
        form.text("url", "URL", hint="https://…")
        form.choices("events", "Events", EVENTS, [WebhookEvent.SENSOR_ALERT])
        with ui.row():
            form.submit_button("Create the webhook")
        shown = ui.column().classes("w-full gap-2").props("aria-live=polite")


async def _draw(
    context: DashboardContext, service: WebhookService, view: AccountView, webhook: Webhook
) -> None:
    here = f"{_PATH}?account={view.account.id}"
    with components.card(webhook.url, ", ".join(webhook.events)):
        if not webhook.enabled:
            components.pill("disabled", "bad")
            ui.label(webhook.disabled_reason).classes("p-muted")
        with ui.row():
            test = partial(service.test, view.caller, webhook.id)
            ui.button("Send a test", on_click=partial(act, test, here)).props("outline no-caps")
            if not webhook.enabled:
                enable = partial(service.enable, view.caller, webhook.id)
                ui.button("Enable", on_click=partial(act, enable, here)).props("outline no-caps")
            remove = partial(service.remove, view.caller, webhook.id)
            dialog = ask("Remove the webhook and its log?", "Remove", remove, here)
            ui.button("Remove", on_click=dialog.open).props("flat no-caps color=negative")
        deliveries = await service.deliveries(view.caller, webhook.id, _SHOWN)
        if not deliveries:
            ui.label("Nothing was delivered yet.").classes("p-muted p-small")
            return
        columns = ["Delivery", "Event", "State", "When", "Attempts:", "Response:"]
        with components.table(columns) as table:
            for each in deliveries:
                with table.row() as row:
                    with row.cell():
                        ui.label(str(each.id)).classes("p-mono")
                    with row.cell():
                        ui.label(each.event)
                    with row.cell():
                        components.pill(each.state, _LOOKS[each.state])
                        ui.label(each.error).classes("p-muted p-small")
                    with row.cell():
                        zone = view.account.time_zone
                        ui.label(components.clock_text(each.created_at, zone))
                    with row.cell():
                        ui.label(f"{each.attempts}").classes("p-number")
                    with row.cell():
                        ui.label("–" if each.status is None else str(each.status))
