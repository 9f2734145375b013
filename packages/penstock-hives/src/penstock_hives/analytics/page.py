"""`/hives`: overview of a business: figures of the day, current occupancy, insights."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from nicegui import ui

from penstock_hives.analytics.models import Insight, Kpi, SeriesBucket
from penstock_hives.occupancy.models import Occupancy
from penstock_hives.web import components
from penstock_hives.web.components import (
    OccupancyGauge,
    current_occupancy,
    follow_live,
    local_day,
)
from penstock_hives.web.context import AccountView, DashboardContext
from penstock_store.dashboard.pages import PageRequest

_INSIGHTS = 6


async def draw_overview(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    view = await context.account_view(visit)
    now = context.resources.clock()
    with ui.element("div").classes("h-head"):
        components.choose_account(view, "/hives")
    if not view.hives:
        components.empty_state(
            "storefront", "No hives yet", "Open one through the API, then fit a sensor."
        )
        return
    statuses = {
        hive.id: await current_occupancy(context, view.caller, hive.id) for hive in view.hives
    }
    await _figures(context, view, now, statuses)
    with components.card("Now", "Live occupancy."):
        gauges = {}
        with components.table(["Place", "Inside", "As of"]) as table:
            for hive in view.hives:
                found = statuses[hive.id]
                with table.row() as row:
                    with row.cell():
                        ui.link(hive.name, f"/hives/place/{hive.id}").classes("h-link")
                    with row.cell():
                        gauges[hive.id] = OccupancyGauge(hive, found)
                    with row.cell():
                        ui.label(components.ago_text(found.as_of if found else None, now)).classes(
                            "p-muted p-small"
                        )
        follow_live(context, gauges)
    account = view.account.id
    insights = await context.services.analytics.insights(view.caller, account, None, _INSIGHTS)
    draw_insights(insights)


async def _figures(
    context: DashboardContext,
    view: AccountView,
    now: datetime,
    statuses: dict[int, Occupancy | None],
) -> None:
    analytics = context.services.analytics
    end = now.date() + timedelta(days=1)
    kpis = await analytics.kpis(view.caller, view.hive_ids, end - timedelta(days=8), end)
    series = await analytics.series(
        view.caller,
        view.hive_ids,
        now - timedelta(hours=26),
        now + timedelta(hours=1),
        SeriesBucket.HOUR,
    )
    local = {hive.id: f"{now.astimezone(ZoneInfo(hive.time_zone)):%Y-%m-%d}" for hive in view.hives}
    today = sum(each.entries for each in series if local_day(each.bucket) == local[each.hive_id])
    fresh = [each for each in statuses.values() if each is not None and each.quality != "stale"]
    stale = len(view.hives) - len(fresh)
    with components.figures():
        components.figure(f"{sum(each.occupancy for each in fresh):,}", "people inside now")
        components.figure(f"{today:,}", "visitors today")
        components.figure(f"{sum(kpi.visits for kpi in kpis):,}", "visits in seven days")
        components.figure(components.number_text(_mean(kpis), "%"), "mean occupancy, open hours")
        components.figure(_busiest(kpis), "busiest hour")
        components.figure(f"{stale} of {len(view.hives)}", "places without data")


def draw_insights(insights: list[Insight]) -> None:
    with components.card("Insights"):
        if not insights:
            components.empty_state(
                "lightbulb", "No insights yet", "Insights are computed every night."
            )
        for each in insights:
            with ui.column().classes("h-insight gap-0"):
                ui.label(each.title).classes("p-h3")
                ui.label(each.body).classes("p-muted")


def _mean(kpis: list[Kpi]) -> float | None:
    known = [kpi.mean_percent for kpi in kpis if kpi.mean_percent is not None]
    return sum(known) / len(known) if known else None


def _busiest(kpis: list[Kpi]) -> str:
    hours = Counter(kpi.peak_hour for kpi in kpis if kpi.peak_hour is not None)
    return f"{hours.most_common(1)[0][0]}:00" if hours else "–"
