"""`/hives`: overview of a business: figures of the day, current occupancy, insights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from nicegui import ui

from penstock_hives.analytics.models import Insight, Kpi, SeriesBucket
from penstock_hives.analytics.service import AnalyticsService
from penstock_hives.occupancy.models import Occupancy
from penstock_hives.people.permissions import AppPermission, Caller
from penstock_hives.places.models import HiveSettings
from penstock_hives.web import components
from penstock_hives.web.components import (
    OccupancyGauge,
    current_occupancy,
    follow_live,
    local_day,
)
from penstock_hives.web.context import AccountView, DashboardContext
from penstock_store.dashboard.pages import PageRequest

_INSIGHTS: Final = 6
_WEEK: Final = timedelta(days=7)


async def draw_overview(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    caller = await context.caller(visit.user)
    if not (await context.services.accounts.mine(caller, None, 1)).items:
        components.empty_state("flag", "No business yet", "It takes five steps.")
        ui.link("Getting started", "/hives/start").classes("p-accent")
        return
    view = await context.account_view(visit)
    now = context.resources.clock()
    with ui.element("div").classes("h-head"):
        components.choose_account(view, "/hives")
        if view.caller.may(AppPermission.EDIT_HIVES, view.account.id):
            ui.button("Add a place", icon="add").props(
                f"unelevated no-caps href=/hives/new?account={view.account.id}"
            )
    if not view.hives:
        components.empty_state(
            "storefront", "No places yet", "Add a place, then a sensor at its door."
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
                        gauges[hive.id] = OccupancyGauge(hive, found, context.resources.clock)
                    with row.cell():
                        age = components.ago_text(found.as_of if found else None, now)
                        closed = components.is_closed(hive, now)
                        ui.label("" if closed else age).classes("p-muted p-small")
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
    found = await read_overview(context.services.analytics, view.caller, view.hives, now)
    known = [statuses[hive.id] for hive in view.hives if not components.is_closed(hive, now)]
    fresh = [each for each in known if each is not None and each.quality != "stale"]
    with components.figures():
        components.figure(f"{sum(each.occupancy for each in fresh):,}", "people inside now")
        components.figure(f"{found.today:,}", "visitors today", "today")
        components.figure(f"{found.week:,}", "visits in the last seven days", "week")
        components.figure(
            components.number_text(found.mean_percent, "%"), "mean occupancy, open hours"
        )
        busiest = "–" if found.busiest_hour is None else f"{found.busiest_hour}:00"
        components.figure(busiest, "busiest hour")
        components.figure(f"{len(fresh)} of {len(known)}", "open places with data")


@dataclass(frozen=True, slots=True)
class AccountOverview:
    """Figures of hives, each in its own time zone; the week is seven whole days before today."""

    today: int
    week: int
    mean_percent: float | None
    busiest_hour: int | None


async def read_overview(
    analytics: AnalyticsService, caller: Caller, hives: Sequence[HiveSettings], now: datetime
) -> AccountOverview:
    ids = [hive.id for hive in hives]
    today = {hive.id: components.local_date(now, hive.time_zone) for hive in hives}
    begin, end = min(today.values()) - _WEEK, max(today.values())
    kpis = [
        kpi
        for kpi in await analytics.kpis(caller, ids, begin, end)
        if today[kpi.hive_id] - _WEEK <= kpi.day < today[kpi.hive_id]
    ]
    since, until = now - timedelta(hours=26), now + timedelta(hours=1)
    series = await analytics.series(caller, ids, since, until, SeriesBucket.HOUR)
    return AccountOverview(
        sum(each.entries for each in series if local_day(each.bucket) == str(today[each.hive_id])),
        sum(kpi.visits for kpi in kpis),
        _mean(kpis),
        _busiest(kpis),
    )


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


def _busiest(kpis: list[Kpi]) -> int | None:
    hours = Counter(kpi.peak_hour for kpi in kpis if kpi.peak_hour is not None)
    return hours.most_common(1)[0][0] if hours else None
