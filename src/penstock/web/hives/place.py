"""`/hives/place/{id}`: one hive: now, today against the forecast, its weeks and days, its deals."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from nicegui import ui

from penstock.hives.app.domain.analytics import Bucket, Lately
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.hives import HiveSettings
from penstock.web.charting import draw as draw_chart
from penstock.web.hives import charts, pieces, words
from penstock.web.hives.comparing import Comparing
from penstock.web.hives.deals import effects
from penstock.web.hives.office import Office
from penstock.web.hives.overview import tell
from penstock.web.hives.sensors import health
from penstock.web.hives.standing import Gauge, follow, hour_of, local_day, standing
from penstock.web.pages import Visit

DAYS: Final = 28


async def draw(office: Office, visit: Visit) -> None:
    ui.add_head_html(pieces.STYLES)
    caller, hive = await office.hive(visit)
    visit.entitle(hive.name)
    now = office.resources.clock()
    await _head(office, caller, hive)
    with ui.element("div").classes("p-columns"):
        await _today(office, caller, hive, now)
        await _week(office, caller, hive)
        await _days(office, caller, hive, now)
        with pieces.card("Before and after", "Any two stretches of days, side by side."):
            await Comparing(office, caller, hive, now.date()).draw()
    with pieces.card("Deals and what came of them"):
        await effects(office, caller, [hive])
    found = await office.services.analytics.insights(caller, hive.account_id, hive.id, 5)
    tell(found)
    with pieces.card("Sensors"):
        health(await office.services.sensors.of_hive(caller, hive.id), {hive.id: hive}, now)


async def _head(office: Office, caller: Caller, hive: HiveSettings) -> None:
    with ui.element("div").classes("h-head p-card"):
        with ui.column().classes("gap-1"):
            gauge = Gauge(hive, await standing(office, caller, hive.id))
        ui.button("Export CSV", icon="download").props(
            f"outline no-caps href=/hives/export/{hive.id}"
        )
    follow(office, {hive.id: gauge})


async def _today(office: Office, caller: Caller, hive: HiveSettings, now: datetime) -> None:
    local = now.astimezone(ZoneInfo(hive.time_zone))
    begin = local.replace(hour=0, minute=0, second=0, microsecond=0)
    series = await office.services.analytics.series(
        caller, [hive.id], begin, now + timedelta(hours=1), Bucket.HOUR
    )
    day = f"{local:%Y-%m-%d}"
    actual = {
        hour_of(each.bucket): each.entries for each in series if local_day(each.bucket) == day
    }
    forecast = await office.services.occupancy.forecast(hive.id, None, caller)
    zone = ZoneInfo(hive.time_zone)
    week = await office.services.occupancy.week(hive.id, caller)
    typical = {each.hour: each.entries for each in week.hours if each.weekday == local.weekday()}
    with pieces.card("Today against the forecast", "Visitors by the hour."):
        options = charts.today(
            actual,
            typical,
            {each.slot.astimezone(zone).hour: each.p50 for each in forecast.hours},
            {each.slot.astimezone(zone).hour: each.p90 for each in forecast.hours},
        )
        draw_chart(options, "Today, visitors by the hour").props("data-chart=today")
        if forecast.peak is not None:
            span = (forecast.peak.starts_at, forecast.peak.ends_at)
            begins, ends = (f"{at.astimezone(zone):%H:%M}" for at in span)
            ui.label(f"Busiest from {begins} to {ends}, as expected.").classes("p-muted p-small")


async def _week(office: Office, caller: Caller, hive: HiveSettings) -> None:
    week = await office.services.occupancy.week(hive.id, caller)
    with pieces.card("The week", "How many people are inside, usually."):
        if not week.hours:
            pieces.nothing("calendar_month", "No habits yet", "Two weeks make a week.")
            return
        about = "The week, people inside by day and hour"
        draw_chart(charts.week(week.hours), about).props("data-chart=week")


async def _days(office: Office, caller: Caller, hive: HiveSettings, now: datetime) -> None:
    end = now.date() + timedelta(days=1)
    kpis = await office.services.analytics.kpis(caller, [hive.id], end - timedelta(days=DAYS), end)
    with pieces.card("The last four weeks", "Visits, and how full it was while open."):
        if not kpis:
            pieces.nothing("bar_chart", "No whole day yet", "The first is there tomorrow.")
            return
        draw_chart(charts.days(kpis), "The last four weeks, visits by day").props("data-chart=days")
        covered = [kpi.coverage for kpi in kpis if kpi.coverage is not None]
        if covered:
            share = 100 * sum(covered) / len(covered)
            about = f"Heard of for {words.number(share, '%')} of its opening hours."
            ui.label(about).classes("p-muted p-small")
        for each in await office.services.analytics.compare_peers(caller, [hive.id], Lately.MONTH):
            ui.label(words.among_peers(each)).classes("p-muted p-small")
