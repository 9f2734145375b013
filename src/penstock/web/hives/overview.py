"""`/hives`: a business at a glance: the day in figures, hives as they are now, what stands out."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from nicegui import ui

from penstock.hives.app.domain.analytics import Bucket, Insight, Kpi
from penstock.hives.app.domain.occupancy import Occupancy
from penstock.web.hives import pieces, words
from penstock.web.hives.office import Desk, Office
from penstock.web.hives.standing import Gauge, follow, local_day, standing
from penstock.web.pages import Visit

_INSIGHTS = 6


async def draw(office: Office, visit: Visit) -> None:
    ui.add_head_html(pieces.STYLES)
    desk = await office.desk(visit)
    now = office.resources.clock()
    with ui.element("div").classes("h-head"):
        pieces.choose_account(desk, "/hives")
    if not desk.hives:
        pieces.nothing("storefront", "No hives yet", "Open one through the API, then fit a sensor.")
        return
    standings = {hive.id: await standing(office, desk.caller, hive.id) for hive in desk.hives}
    await _figures(office, desk, now, standings)
    with pieces.card("Now", "Changes as doors report."):
        gauges = {}
        with pieces.table(["Place", "Inside", "As of"]) as table:
            for hive in desk.hives:
                found = standings[hive.id]
                with table.row() as row:
                    with row.cell():
                        ui.link(hive.name, f"/hives/place/{hive.id}").classes("h-link")
                    with row.cell():
                        gauges[hive.id] = Gauge(hive, found)
                    with row.cell():
                        ui.label(words.ago(found.as_of if found else None, now)).classes(
                            "p-muted p-small"
                        )
        follow(office, gauges)
    account = desk.account.id
    insights = await office.services.analytics.insights(desk.caller, account, None, _INSIGHTS)
    tell(insights)


async def _figures(
    office: Office, desk: Desk, now: datetime, standings: dict[int, Occupancy | None]
) -> None:
    analytics = office.services.analytics
    end = now.date() + timedelta(days=1)
    kpis = await analytics.kpis(desk.caller, desk.numbers, end - timedelta(days=8), end)
    series = await analytics.series(
        desk.caller,
        desk.numbers,
        now - timedelta(hours=26),
        now + timedelta(hours=1),
        Bucket.HOUR,
    )
    local = {hive.id: f"{now.astimezone(ZoneInfo(hive.time_zone)):%Y-%m-%d}" for hive in desk.hives}
    today = sum(each.entries for each in series if local_day(each.bucket) == local[each.hive_id])
    heard = [each for each in standings.values() if each is not None and each.quality != "stale"]
    silent = len(desk.hives) - len(heard)
    with pieces.figures():
        pieces.figure(f"{sum(each.occupancy for each in heard):,}", "people inside now")
        pieces.figure(f"{today:,}", "visitors today")
        pieces.figure(f"{sum(kpi.visits for kpi in kpis):,}", "visits in seven days")
        pieces.figure(words.number(_mean(kpis), "%"), "mean occupancy, open hours")
        pieces.figure(_busiest(kpis), "busiest hour")
        pieces.figure(f"{silent} of {len(desk.hives)}", "places not heard of")


def tell(insights: list[Insight]) -> None:
    with pieces.card("What stands out"):
        if not insights:
            pieces.nothing("lightbulb", "Nothing yet", "Each night looks at the days before.")
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
