"""`/hives/place/{id}`: a hive with its charts, deals and sensors; `/hives/export/{id}`: its CSV."""

from __future__ import annotations

import csv
from collections.abc import Awaitable, Callable
from datetime import date, datetime, timedelta
from io import StringIO
from typing import Final
from zoneinfo import ZoneInfo

from nicegui import ui
from starlette.responses import PlainTextResponse, Response

from penstock.core.errors import AccessRefused, NotFound, PenstockError
from penstock_hives.analytics.models import (
    ComparisonDays,
    PeriodComparison,
    PeriodSummary,
    SeriesBucket,
)
from penstock_hives.analytics.page import draw_insights
from penstock_hives.deals.page import draw_effects
from penstock_hives.encoding import local_midnight
from penstock_hives.people.permissions import AppPermission, Caller
from penstock_hives.places.endpoints import HeadCount
from penstock_hives.places.models import HiveSettings
from penstock_hives.sensors.page import draw_sensor_health
from penstock_hives.web import charts, components
from penstock_hives.web.components import (
    OccupancyGauge,
    current_occupancy,
    follow_live,
    hour_of,
    local_day,
)
from penstock_hives.web.context import DashboardContext
from penstock_hives.web.forms import EditForm
from penstock_store.dashboard.pages import PageRequest
from penstock_store.dashboard.theme import draw_chart

DAYS: Final = 28


async def draw_place(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    caller, hive = await context.hive(visit)
    visit.set_title(hive.name)
    now = context.resources.clock()
    today = components.local_date(now, hive.time_zone)
    await _head(context, caller, hive)
    with ui.element("div").classes("p-columns"):
        await _today(context, caller, hive, now)
        await _week(context, caller, hive)
        await _days(context, caller, hive, now)
        with components.card("Before and after", "Compare any two periods."):
            await PeriodComparisonCard(context, caller, hive, today).draw()
    with components.card("Deals and their effects"):
        await draw_effects(context, caller, [hive])
    found = await context.services.analytics.insights(caller, hive.account_id, hive.id, 5)
    if found:
        draw_insights(found)
    with components.card("Sensors"):
        draw_sensor_health(
            await context.services.sensors.of_hive(caller, hive.id), {hive.id: hive}, now
        )


async def _head(context: DashboardContext, caller: Caller, hive: HiveSettings) -> None:
    with ui.element("div").classes("h-head p-card"):
        with ui.column().classes("gap-1"):
            status = await current_occupancy(context, caller, hive.id)
            gauge = OccupancyGauge(hive, status, context.resources.clock)
        with ui.row().classes("gap-2"):
            if caller.may(AppPermission.COUNT_HEADS, hive.account_id):
                dialog = _head_count(context, caller, hive)
                ui.button("Count heads", icon="groups", on_click=dialog.open).props(
                    "outline no-caps"
                )
            ui.button("Export CSV", icon="download").props(
                f"outline no-caps href=/hives/export/{hive.id}"
            )
            if caller.may(AppPermission.EDIT_HIVES, hive.account_id):
                ui.button("Edit", icon="edit").props(
                    f"unelevated no-caps href=/hives/place/{hive.id}/edit"
                )
    follow_live(context, {hive.id: gauge})


def _head_count(context: DashboardContext, caller: Caller, hive: HiveSettings) -> ui.dialog:
    """Occupancy is counted from this number on."""

    async def save(body: HeadCount) -> None:
        await context.services.occupancy.count(caller, hive.id, body.counted, body.at)
        dialog.close()
        ui.notify("The count applies within a minute.", type="positive")

    with ui.dialog() as dialog, ui.card().classes("p-card h-dialog"):
        ui.label(f"People in {hive.name} now").classes("p-h2")
        form = EditForm(HeadCount, save)
        form.number("counted", "People", None, "From now on, entries and exits are added to it.")
        with ui.row().classes("w-full justify-end"):
            ui.button("Cancel", on_click=dialog.close).props("flat no-caps")
            form.submit_button("Count")
    return dialog


async def _today(
    context: DashboardContext, caller: Caller, hive: HiveSettings, now: datetime
) -> None:
    local = now.astimezone(ZoneInfo(hive.time_zone))
    begin = local.replace(hour=0, minute=0, second=0, microsecond=0)
    series = await context.services.analytics.series(
        caller, [hive.id], begin, now + timedelta(hours=1), SeriesBucket.HOUR
    )
    day = f"{local:%Y-%m-%d}"
    actual = {
        hour_of(each.bucket): each.entries for each in series if local_day(each.bucket) == day
    }
    forecast = await context.services.occupancy.forecast(hive.id, None, caller)
    zone = ZoneInfo(hive.time_zone)
    week = await context.services.occupancy.week(hive.id, caller)
    typical = {each.hour: each.entries for each in week.hours if each.weekday == local.weekday()}
    with components.card("Today against the forecast", "Visitors by the hour."):
        options = charts.today_chart(
            actual,
            typical,
            {each.slot.astimezone(zone).hour: each.p50 for each in forecast.hours},
            {each.slot.astimezone(zone).hour: each.p90 for each in forecast.hours},
        )
        draw_chart(options, "Today, visitors by the hour").props("data-chart=today")
        if forecast.peak is not None:
            span = (forecast.peak.starts_at, forecast.peak.ends_at)
            begins, ends = (f"{at.astimezone(zone):%H:%M}" for at in span)
            ui.label(f"Expected peak from {begins} to {ends}.").classes("p-muted p-small")


async def _week(context: DashboardContext, caller: Caller, hive: HiveSettings) -> None:
    week = await context.services.occupancy.week(hive.id, caller)
    with components.card("Typical week", "The usual number of people inside."):
        if not week.hours:
            components.empty_state(
                "calendar_month", "No data", "A typical week needs two weeks of data."
            )
            return
        about = "The week, people inside by day and hour"
        draw_chart(charts.week_chart(week.hours), about).props("data-chart=week")


async def _days(
    context: DashboardContext, caller: Caller, hive: HiveSettings, now: datetime
) -> None:
    end = components.local_date(now, hive.time_zone)
    kpis = await context.services.analytics.kpis(caller, [hive.id], end - timedelta(days=DAYS), end)
    with components.card("The last four weeks", "Visits, and occupancy during opening hours."):
        if not kpis:
            components.empty_state(
                "bar_chart", "No data", "The first complete day is shown tomorrow."
            )
            return
        draw_chart(charts.days_chart(kpis), "The last four weeks, visits by day").props(
            "data-chart=days"
        )
        covered = [kpi.coverage for kpi in kpis if kpi.coverage is not None]
        if covered:
            share = 100 * sum(covered) / len(covered)
            about = f"Data for {components.number_text(share, '%')} of its opening hours."
            ui.label(about).classes("p-muted p-small")
        for each in await context.services.analytics.compare_peers(
            caller, [hive.id], ComparisonDays.MONTH
        ):
            ui.label(components.peer_rank_text(each)).classes("p-muted p-small")


_WEEK = timedelta(days=7)


class PeriodComparisonCard:
    """Two periods to choose; by default the last two weeks."""

    def __init__(
        self, context: DashboardContext, caller: Caller, hive: HiveSettings, today: date
    ) -> None:
        self._context = context
        self._caller = caller
        self._hive = hive
        self._dates = {
            "Before, from": today - 2 * _WEEK,
            "Before, to": today - _WEEK,
            "After, from": today - _WEEK,
            "After, to": today,
        }

    async def draw(self) -> None:
        self._inputs = {}
        with ui.element("div").classes("h-dates"):
            for name, day in self._dates.items():
                chosen = ui.input(name, value=day.isoformat())
                chosen.props("type=date outlined dense stack-label")
                self._inputs[name] = chosen.on_value_change(self._show)
        self._result = ui.column().classes("w-full gap-2").props("aria-live=polite")
        await self._show()

    async def _show(self) -> None:
        self._result.clear()
        with self._result:
            try:
                days = [date.fromisoformat(str(each.value)) for each in self._inputs.values()]
                before, after = (days[0], days[1]), (days[2], days[3])
                if before[0] >= before[1] or after[0] >= after[1]:
                    raise ValueError
                found = await self._context.services.analytics.compare_periods(
                    self._caller, self._hive.id, before, after
                )
            except ValueError:
                ui.label("Each period must end after it begins.").classes("p-muted")
            except PenstockError as error:
                ui.label(str(error)).classes("p-bad-text")
            else:
                _draw(found)


def _draw(found: PeriodComparison) -> None:
    rows = (
        ("Visits", _visits(found.before), _visits(found.after), ""),
        (
            "Visits a day",
            components.number_text(found.before.visits_a_day),
            components.number_text(found.after.visits_a_day),
            components.change_text(found.visits_change),
        ),
        (
            "Mean occupancy",
            components.number_text(found.before.mean_occupancy),
            components.number_text(found.after.mean_occupancy),
            components.change_text(found.mean_change),
        ),
        (
            "Peak",
            components.number_text(found.before.peak),
            components.number_text(found.after.peak),
            "",
        ),
    )
    with components.table(["", "Before:", "After:", "Change:"]) as table:
        for name, *values in rows:
            with table.row() as row:
                with row.cell():
                    ui.label(name)
                for value in values:
                    with row.cell():
                        ui.label(value).classes("p-number")


def _visits(window: PeriodSummary) -> str:
    return f"{window.visits:,} in {window.days} d"


_MAX_DAYS: Final = 400
COLUMNS: Final = ("hour", "entries", "exits", "mean_occupancy", "peak")


def export_csv(context: DashboardContext) -> Callable[[PageRequest], Awaitable[Response]]:
    async def export(visit: PageRequest) -> Response:
        try:
            caller, hive = await context.hive(visit)
            today = components.local_date(context.resources.clock(), hive.time_zone)
            begin, end = _export_days(visit, today)
        except NotFound as error:
            return PlainTextResponse(str(error), 404)
        except AccessRefused as error:
            return PlainTextResponse(str(error), 403)
        except ValueError as error:
            return PlainTextResponse(str(error), 422)
        zone = ZoneInfo(hive.time_zone)
        series = await context.services.analytics.series(
            caller,
            [hive.id],
            local_midnight(begin, zone),
            local_midnight(end, zone),
            SeriesBucket.HOUR,
        )
        text = StringIO()
        writer = csv.writer(text)
        writer.writerow(COLUMNS)
        for each in series:
            mean = None if each.mean is None else round(each.mean, 2)
            writer.writerow((each.bucket, each.entries, each.exits, mean, each.peak))
        name = f"hive-{hive.id}-{begin}-{end}.csv"
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return Response(text.getvalue(), 200, headers, "text/csv; charset=utf-8")

    return export


def _export_days(visit: PageRequest, today: date) -> tuple[date, date]:
    end = date.fromisoformat(visit.query.get("to", str(today + timedelta(days=1))))
    begin = date.fromisoformat(visit.query.get("from", str(end - timedelta(days=DAYS))))
    if not 0 < (end - begin).days <= _MAX_DAYS:
        raise ValueError(f"to must be after from, by at most {_MAX_DAYS} days")
    return begin, end
