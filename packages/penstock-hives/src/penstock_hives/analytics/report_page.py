"""`/hives/report`: the weekly report of a business, as it is mailed."""

from __future__ import annotations

from datetime import date, timedelta
from functools import partial
from typing import Final

from nicegui import ui

from penstock_hives.analytics.page import draw_insights
from penstock_hives.analytics.weekly_report import WEEK, monday_before, read_report
from penstock_hives.people.permissions import AppPermission
from penstock_hives.web import charts, components
from penstock_hives.web.context import DashboardContext
from penstock_hives.web.forms import act
from penstock_store.dashboard.pages import PageRequest
from penstock_store.dashboard.theme import draw_chart

PATH: Final = "/hives/report"
_INSIGHTS: Final = 5


async def draw_report(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    view = await context.account_view(visit)
    view.caller.require(AppPermission.READ_ANALYTICS, view.account.id)
    today = components.local_date(context.resources.clock(), view.account.time_zone)
    last = monday_before(today)
    try:
        wanted = date.fromisoformat(visit.query.get("week", ""))
        week = min(wanted - timedelta(days=wanted.weekday()), last)
    except (ValueError, OverflowError):
        week = last
    report = await read_report(context.resources.pool, view.account.id, week)
    with ui.element("div").classes("h-head"):
        components.choose_account(view, PATH)
        with ui.row().classes("items-center gap-2"):
            here = f"{PATH}?account={view.account.id}&week="
            ui.button(icon="chevron_left").props(
                f'flat round dense aria-label="The week before" href={here}{week - WEEK}'
            )
            ui.label(f"{week:%-d %b} to {week + timedelta(days=6):%-d %b %Y}").classes("p-h3")
            if week < last:
                ui.button(icon="chevron_right").props(
                    f'flat round dense aria-label="The week after" href={here}{week + WEEK}'
                )
    with components.figures():
        components.figure(f"{report.visits:,}", "visits", "report-visits")
        components.figure(components.change_text(report.change), "against the week before")
        components.figure(f"{report.redeemed:,}", "deals redeemed")
        components.figure(f"{report.messages:,}", "messages")
        components.figure(f"{report.positive:,} / {report.negative:,}", "positive, negative")
    with components.card("Visits by place"):
        bars = {
            "this week": [hive.visits for hive in report.hives],
            "week before": [hive.visits_before for hive in report.hives],
        }
        names = [hive.name for hive in report.hives]
        draw_chart(charts.bars_chart(names, bars), "Visits of the week by place")
        with components.table(["Place", "Visits:", "Change:", "Mean:", "Busiest day"]) as table:
            for hive in report.hives:
                with table.row() as row:
                    for text in (
                        hive.name,
                        f"{hive.visits:,}",
                        components.change_text(hive.change),
                        components.number_text(hive.mean_percent, "%"),
                        f"{hive.busiest:%A}" if hive.busiest else "–",
                    ):
                        with row.cell():
                            ui.label(text)
    insights = list(report.insights)
    if not insights and week == last:  # the nights began after that week
        analytics = context.services.analytics
        insights = await analytics.insights(view.caller, view.account.id, None, _INSIGHTS)
    draw_insights(insights)
    await _mail_settings(context, visit, view.account.id)


async def _mail_settings(context: DashboardContext, visit: PageRequest, account: int) -> None:
    """Each member decides about their own mail."""
    caller = await context.caller(visit.user)
    if caller.id is None or account not in caller.memberships:
        return
    columns = {
        "weekly_report": "Mail me this report on Monday mornings",
        "sensor_alerts": "Tell me when something is wrong with a sensor",
    }
    statement = (
        "SELECT weekly_report, sensor_alerts FROM account_member "
        "WHERE account_id = %s AND user_id = %s"
    )
    held = await context.resources.pool.row(statement, (account, caller.id)) or {}

    async def change(column: str, on: bool) -> None:
        update = f"UPDATE account_member SET {column} = %s WHERE account_id = %s AND user_id = %s"
        await context.resources.pool.execute(update, (on, account, caller.id))

    with components.card("Mail to you"):
        for column, label in columns.items():
            ui.switch(
                label,
                value=bool(held.get(column)),
                on_change=lambda event, column=column: act(
                    partial(change, column, event.value), "", "Saved"
                ),
            )
