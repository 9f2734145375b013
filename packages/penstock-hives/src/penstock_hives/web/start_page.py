"""`/hives/start`: from an empty database to the first report, in five steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from nicegui import ui

from penstock_hives.people.members_page import BusinessBody
from penstock_hives.people.permissions import AppPermission, Caller
from penstock_hives.places.editor import time_zones
from penstock_hives.web import components
from penstock_hives.web.context import DashboardContext
from penstock_hives.web.forms import EditForm, act
from penstock_store.dashboard.pages import ANONYMOUS, PageRequest

PATH: Final = "/hives/start"
#: Between two looks for the first report.
_POLL_SECONDS: Final = 3.0
TYPES: Final = {
    "bar": "Bar",
    "cafe": "Café",
    "gym": "Gym",
    "library": "Library",
    "office": "Office building",
    "restaurant": "Restaurant",
    "store": "Store",
    "supermarket": "Supermarket",
}
_FIRST_REPORT: Final = """
    SELECT s.name, s.serial FROM sensor s JOIN hive h ON h.id = s.hive_id
    JOIN sensor_state t ON t.sensor_id = s.id
    WHERE h.account_id = %s ORDER BY t.received_at LIMIT 1
"""


async def draw_start(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    if visit.user == ANONYMOUS:
        components.empty_state("flag", "No sign-in", "Start the dashboards with --gate hives.")
        return
    caller = await context.caller(visit.user)
    accounts = (await context.services.accounts.mine(caller, None, 1)).items
    account = accounts[0] if accounts else None
    step = 1
    if account is not None:
        hives = await context.services.hives.of_account(caller, account.id, None, 1)
        sensors = await context.services.sensors.of_account(caller, account.id, None, 1)
        step = 2 + bool(hives.items) + bool(sensors.items)
    _step(1, "An account to sign in with", step, lambda: None)
    _step(2, "A business", step, lambda: _business(context, caller))
    if step == 2 and caller.may(AppPermission.EDIT_TYPES):
        await _create_types(context, caller)
    where = f"?account={account.id}" if account else ""
    _step(3, "A place", step, lambda: _link("Add a place", f"/hives/new{where}"))
    _step(
        4,
        "A sensor and its credentials",
        step,
        lambda: _link("Add a sensor", f"/hives/sensors/new{where}"),
    )
    await _first_report(context, None if account is None else account.id, step)


def _step(number: int, title: str, current: int, draw: Callable[[], None]) -> None:
    """Steps before the current one are done."""
    done = number <= current
    with ui.row().classes("p-card w-full items-center gap-3"):
        name = "check_circle" if done else "radio_button_unchecked"
        ui.icon(name).classes("p-good-text" if done else "p-muted").style("font-size: 24px")
        ui.label(f"{number}. {title}").classes("p-h3")
        if number == current + 1:
            ui.space()
            draw()


def _link(label: str, target: str) -> None:
    ui.button(label).props(f"unelevated no-caps href={target}")


def _business(context: DashboardContext, caller: Caller) -> None:
    async def save(body: BusinessBody) -> None:
        await context.services.accounts.open(caller, body.name, body.time_zone)
        ui.navigate.to(PATH)

    form = EditForm(BusinessBody, save)
    with ui.row().classes("items-start gap-2"):
        form.text("name", "Name of the business").classes(replace="h-choice")
        form.choice("time_zone", "Time zone", time_zones(), "UTC").classes(replace="h-choice")
        form.submit_button("Create the business")


async def _create_types(context: DashboardContext, caller: Caller) -> None:
    """Without types there are no places: the usual ones are created."""
    if await context.services.hives.types():
        return
    for code, name in TYPES.items():
        await act(partial(context.services.hives.add_type, caller, code, name), "")


async def _first_report(context: DashboardContext, account: int | None, step: int) -> None:
    async def look() -> None:
        if account is None or text.text != waiting:
            return
        row = await context.resources.pool.row(_FIRST_REPORT, (account,))
        if row is not None:
            text.set_text(f"5. {row['name'] or row['serial']} has reported")
            icon.set_name("check_circle")
            icon.classes(replace="p-good-text")
            link.set_visibility(True)
            hint.set_visibility(False)

    waiting = "5. The first report"
    with ui.row().classes("p-card w-full items-center gap-3"):
        icon = ui.icon("radio_button_unchecked").classes("p-muted").style("font-size: 24px")
        text = ui.label(waiting).classes("p-h3").props("aria-live=polite")
        ui.space()
        link = ui.button("To your places").props("unelevated no-caps href=/hives")
        link.set_visibility(False)
        hint = ui.label("Waiting; a sensor reports when somebody passes.").classes("p-muted")
        hint.set_visibility(step == 4)
    await look()
    ui.timer(_POLL_SECONDS, look)
