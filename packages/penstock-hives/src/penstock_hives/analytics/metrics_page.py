"""`/hives/metrics`: custom metrics, built in a form and computed every night."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Final

from nicegui import ui

from penstock_hives.analytics.endpoints import NewMetric
from penstock_hives.analytics.formula import SERIES
from penstock_hives.analytics.models import AccountMetric
from penstock_hives.people.permissions import AppPermission
from penstock_hives.web import charts, components
from penstock_hives.web.context import AccountView, DashboardContext
from penstock_hives.web.forms import EditForm, ask
from penstock_store.dashboard.pages import PageRequest
from penstock_store.dashboard.theme import draw_chart

_PATH: Final = "/hives/metrics"
_SHOWN: Final = timedelta(days=56)


async def draw_metrics(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    view = await context.account_view(visit)
    with ui.element("div").classes("h-head"):
        components.choose_account(view, _PATH)
    found = await context.services.metrics.of_account(view.caller, view.account.id)
    for metric in found:
        await _draw(context, view, metric)
    if not found:
        components.empty_state(
            "functions", "No metrics yet", "A metric combines daily figures of your places."
        )
    if view.caller.may(AppPermission.EDIT_METRICS, view.account.id):
        _form(context, view)


async def _draw(context: DashboardContext, view: AccountView, metric: AccountMetric) -> None:
    here = f"{_PATH}?account={view.account.id}"
    today = components.local_date(context.resources.clock(), view.account.time_zone)
    values = await context.services.metrics.values(
        view.caller, metric.id, today - _SHOWN, today + timedelta(days=1)
    )
    goal = "" if metric.goal is None else f", goal {components.number_text(metric.goal)}"
    about = f"{metric.formula}, over {metric.window_days} days{goal}"
    with components.card(metric.name, about):
        names = {hive.id: hive.name for hive in view.hives}
        days = sorted({each.day for each in values})
        if not days:
            ui.label("It is computed in the next night.").classes("p-muted")
        else:
            by_hive = {(each.hive_id, each.day): each.value for each in values}
            hives = sorted({each.hive_id for each in values} & set(names))
            if len(days) > 1:
                lines = {names[hive]: [by_hive.get((hive, day)) for day in days] for hive in hives}
                chart = charts.lines_chart([f"{day:%-d %b}" for day in days], lines)
            else:
                last = [round(by_hive.get((hive, days[0])) or 0.0, 2) for hive in hives]
                chart = charts.bars_chart(
                    [names[hive] for hive in hives], {f"{days[0]:%-d %b}": last}
                )
            draw_chart(chart, f"Metric {metric.name}").props("data-chart=metric")
        if view.caller.may(AppPermission.EDIT_METRICS, view.account.id):
            remove = partial(context.services.metrics.remove, view.caller, metric.id)
            dialog = ask(f"Remove “{metric.name}”?", "Remove", remove, here)
            ui.button("Remove", on_click=dialog.open).props("flat dense no-caps")


def _form(context: DashboardContext, view: AccountView) -> None:
    async def save(body: NewMetric) -> None:
        await context.services.metrics.define(
            view.caller, view.account.id, body.model_dump(exclude_none=True)
        )
        ui.navigate.to(f"{_PATH}?account={view.account.id}")

    with components.card("New metric", "A formula of daily figures, for each place."):
        form = EditForm(NewMetric, save)
        form.text("name", "Name")
        formula = form.text("formula", "Formula", "visits / max(deal_redemptions, 1)")
        with ui.row().classes("gap-1"):
            for series in SERIES:

                def insert(name: str = series) -> None:
                    formula.set_value(f"{formula.value or ''} {name}".strip())

                ui.button(series, on_click=insert).props("flat dense no-caps size=sm")
        ui.label("Also: numbers, + - * / ( ), min, max, abs.").classes("p-muted p-small")
        with ui.element("div").classes("h-dates"):
            form.number("window_days", "Days", 7, "The window that ends with each day.")
            form.number("goal", "Goal", None, "Met when the value reaches it.", whole=False)
        places = {hive.id: hive.name for hive in view.hives}
        hives = form.choices("filter.hives", "Places, all unless chosen", places)
        form.add("filter.hives", hives, lambda chosen: chosen or None)
        days = form.choices(
            "filter.weekdays", "Weekdays, all unless chosen", dict(enumerate(charts.DAYS))
        )
        form.add("filter.weekdays", days, lambda chosen: chosen or None)
        with ui.row():
            form.submit_button("Create the metric")
