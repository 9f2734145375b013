"""`/hives/analytics`: any period, several places side by side, and what users do and say.

The period and the places are in the address, so a view can be bookmarked and shared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from nicegui import ui

from penstock_hives.analytics.models import ComparisonDays, PopularityMeasure, SeriesBucket
from penstock_hives.encoding import local_midnight
from penstock_hives.people.permissions import Caller
from penstock_hives.places.models import HiveSettings
from penstock_hives.web import charts, components
from penstock_hives.web.context import AccountView, DashboardContext
from penstock_store.dashboard.pages import PageRequest
from penstock_store.dashboard.theme import draw_chart

PATH: Final = "/hives/analytics"
#: Side by side.
MAX_PLACES: Final = 8
MAX_DAYS: Final = 400
_DEFAULT: Final = 4  #: places that are shown first
_AGES: Final = {
    "under_18": "under 18",
    "18_24": "18 to 24",
    "25_34": "25 to 34",
    "35_49": "35 to 49",
    "50_64": "50 to 64",
    "65_over": "65 and over",
}


@dataclass(frozen=True, slots=True)
class AnalyticsQuery:
    """Places, and days from `begin` to before `end`."""

    hives: tuple[int, ...]
    begin: date
    end: date

    @classmethod
    def of(cls, query: Mapping[str, str], known: Sequence[int], today: date) -> AnalyticsQuery:
        """Without valid values: the first places, the last four weeks."""
        wanted = [int(part) for part in query.get("hives", "").split(",") if part.isdecimal()]
        hives = tuple(each for each in known if each in wanted) or tuple(known)[:_DEFAULT]
        begin, end = _day(query.get("from")), _day(query.get("to"))
        end = end or today
        begin = begin or end - timedelta(days=28)
        if not 0 < (end - begin).days <= MAX_DAYS:
            begin, end = today - timedelta(days=28), today
        return cls(hives[:MAX_PLACES], begin, end)


def _day(text: str | None) -> date | None:
    try:
        return date.fromisoformat(text or "")
    except ValueError:
        return None


async def draw_analytics(context: DashboardContext, visit: PageRequest) -> None:
    ui.add_head_html(components.STYLES)
    view = await context.account_view(visit)
    with ui.element("div").classes("h-head"):
        components.choose_account(view, PATH)
    if not view.hives:
        components.empty_state("insights", "No places yet", "Figures begin with the first report.")
        return
    today = components.local_date(context.resources.clock(), view.account.time_zone)
    chosen = AnalyticsQuery.of(visit.query, view.hive_ids, today)
    hives = [hive for hive in view.hives if hive.id in chosen.hives]
    _choices(view, chosen, today)
    await _figures(context, view.caller, hives, chosen)
    with ui.element("div").classes("p-columns"):
        await _days(context, view.caller, hives, chosen)
        await _rhythm(context, view.caller, hives, chosen, SeriesBucket.HOUR_OF_DAY)
        await _rhythm(context, view.caller, hives, chosen, SeriesBucket.WEEKDAY)
        await _sentiment(context, view, chosen)
        await _interest(context, view)
        await _shifts(context, view.caller)
    await _demographics(context, view.caller, hives)


def _choices(view: AccountView, chosen: AnalyticsQuery, today: date) -> None:
    def show() -> None:
        query = {
            "account": view.account.id,
            "hives": ",".join(map(str, places.value or [])),
            "from": begin.value,
            "to": end.value,
        }
        ui.navigate.to(f"{PATH}?{urlencode(query)}")

    def last(days: int) -> None:
        begin.value, end.value = str(today - timedelta(days=days)), str(today)
        show()

    with ui.element("div").classes("p-card h-choices"):
        places = ui.select(
            {hive.id: hive.name for hive in view.hives},
            label=f"Places, up to {MAX_PLACES}",
            value=list(chosen.hives),
            multiple=True,
        )
        places.props(f"outlined dense options-dense use-chips max-values={MAX_PLACES}")
        begin = ui.input("From", value=str(chosen.begin))
        end = ui.input("To, not included", value=str(chosen.end))
        for field in (begin, end):
            field.props("type=date outlined dense stack-label")
        ui.button("Show", on_click=show).props("unelevated no-caps")
        with ui.row().classes("gap-1"):
            for days, name in ((7, "7 days"), (28, "4 weeks"), (56, "8 weeks"), (365, "a year")):
                ui.button(name, on_click=lambda days=days: last(days)).props("flat dense no-caps")


async def _figures(
    context: DashboardContext,
    caller: Caller,
    hives: Sequence[HiveSettings],
    chosen: AnalyticsQuery,
) -> None:
    analytics = context.services.analytics
    ids = [hive.id for hive in hives]
    length = chosen.end - chosen.begin
    now = await analytics.compare_hives(caller, ids, chosen.begin, chosen.end)
    before = await analytics.compare_hives(caller, ids, chosen.begin - length, chosen.begin)
    earlier = {each.hive_id: each for each in before}
    peers = {
        each.hive_id: each
        for each in await analytics.compare_peers(caller, ids, ComparisonDays.MONTH)
    }
    names = {hive.id: hive.name for hive in hives}
    columns = ["Place", "Visits:", "A day:", "Before:", "Change:", "Mean inside:", "Peak:", "Type:"]
    about = f"{length.days} days beside the {length.days} before; the type over four weeks."
    with components.card("Places side by side", about), components.table(columns) as table:
        for each in now:
            was, peer = earlier[each.hive_id], peers.get(each.hive_id)
            change = None
            if was.visits_a_day and each.visits_a_day is not None:
                change = each.visits_a_day / was.visits_a_day - 1
            rank = "–" if peer is None or peer.rank is None else f"{peer.rank} of {peer.peers + 1}"
            with table.row() as row:
                with row.cell():
                    ui.link(names[each.hive_id], f"/hives/place/{each.hive_id}").classes("h-link")
                for text in (
                    f"{each.visits:,}",
                    components.number_text(each.visits_a_day),
                    components.number_text(was.visits_a_day),
                    components.change_text(change),
                    components.number_text(each.mean_occupancy),
                    "–" if each.peak is None else f"{each.peak:,}",
                    rank,
                ):
                    with row.cell():
                        ui.label(text).classes("p-number")


async def _days(
    context: DashboardContext,
    caller: Caller,
    hives: Sequence[HiveSettings],
    chosen: AnalyticsQuery,
) -> None:
    ids = [hive.id for hive in hives]
    kpis = await context.services.analytics.kpis(caller, ids, chosen.begin, chosen.end)
    days = [chosen.begin + timedelta(days=n) for n in range((chosen.end - chosen.begin).days)]
    visits = {(kpi.hive_id, kpi.day): kpi.visits for kpi in kpis}
    lines = {hive.name: [visits.get((hive.id, day)) for day in days] for hive in hives}
    with components.card("Visits by day", "In the local time of each place."):
        chart = charts.lines_chart([f"{day:%-d %b}" for day in days], lines)
        draw_chart(chart, "Visits by day").props("data-chart=visits")


async def _rhythm(
    context: DashboardContext,
    caller: Caller,
    hives: Sequence[HiveSettings],
    chosen: AnalyticsQuery,
    bucket: SeriesBucket,
) -> None:
    by_hour = bucket is SeriesBucket.HOUR_OF_DAY
    names = [f"{hour:02}" for hour in range(24)] if by_hour else [str(day) for day in range(7)]
    lines = {}
    for hive in hives:
        zone = ZoneInfo(hive.time_zone)
        found = await context.services.analytics.series(
            caller,
            [hive.id],
            local_midnight(chosen.begin, zone),
            local_midnight(chosen.end, zone),
            bucket,
        )
        means = {each.bucket: each.mean for each in found}
        lines[hive.name] = [_round(means.get(name)) for name in names]
    title = "People inside by hour" if by_hour else "People inside by weekday"
    shown = [f"{int(name)}:00" for name in names] if by_hour else list(charts.DAYS)
    with components.card(title, "The mean over the period."):
        draw_chart(charts.lines_chart(shown, lines), title).props(f"data-chart={bucket.value}")


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


async def _sentiment(context: DashboardContext, view: AccountView, chosen: AnalyticsQuery) -> None:
    found = [
        each
        for each in await context.services.messages.feedback_days(
            view.caller, view.account.id, chosen.begin, chosen.end
        )
        if each.hive_id in chosen.hives
    ]
    with components.card("Sentiment", "Positive and negative feedback, for English texts."):
        if not found:
            components.empty_state("forum", "No feedback", "Users send feedback with the app.")
            return
        draw_chart(charts.sentiment_chart(found), "Feedback by day").props("data-chart=sentiment")


async def _interest(context: DashboardContext, view: AccountView) -> None:
    """Views and searches of the last thirty days, beside all public places."""
    ranked = await context.services.analytics.popular(30, PopularityMeasure.ALL, 100)
    own = set(view.hive_ids)
    shown = [each for each in ranked if each.hive_id in own][:10]
    with components.card("Search and popularity", "What users did in the last thirty days."):
        if not shown:
            components.empty_state("search", "No data", "It is computed every night.")
            return
        bars = {
            "views": [each.views for each in shown],
            "searches": [each.searches for each in shown],
            "favourites": [each.favourites for each in shown],
        }
        names = [f"{each.rank}. {each.name}" for each in shown]
        draw_chart(charts.bars_chart(names, bars), "Search and popularity by place").props(
            "data-chart=popularity"
        )


async def _shifts(context: DashboardContext, caller: Caller) -> None:
    found = await context.services.analytics.shifts(caller, 30)
    with components.card("Shifts of demand", "Share of views by type of place, in percent."):
        if not found:
            components.empty_state("swap_vert", "No data", "It is computed every night.")
            return
        bars = {
            "thirty days before": [round(100 * each.share_before, 1) for each in found],
            "last thirty days": [round(100 * each.share_now, 1) for each in found],
        }
        names = [each.hive_type for each in found]
        draw_chart(charts.bars_chart(names, bars), "Share of views by type of place").props(
            "data-chart=shifts"
        )


async def _demographics(
    context: DashboardContext, caller: Caller, hives: Sequence[HiveSettings]
) -> None:
    found = {
        hive.name: await context.services.analytics.demographics(caller, hive.id) for hive in hives
    }
    about = "Of users who follow or visit a place and chose to say; groups of ten and more."
    with components.card("Demographics", about):
        if not any(each.age_bands or each.genders for each in found.values()):
            components.empty_state("groups", "Too few users", "Smaller groups are not shown.")
            return
        with ui.element("div").classes("p-columns w-full"):
            for title, field in (("Age", "age_bands"), ("Gender", "genders")):
                groups = {
                    name: {each.group: each.people for each in getattr(of, field)}
                    for name, of in found.items()
                }
                codes = sorted({code for of in groups.values() for code in of})
                bars = {name: [of.get(code, 0) for code in codes] for name, of in groups.items()}
                names = [_AGES.get(code, code) for code in codes]
                draw_chart(charts.bars_chart(names, bars), f"{title} of users by place")
