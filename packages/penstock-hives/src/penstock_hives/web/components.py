"""Components of pages: figures, pills, tables, texts, and the live occupancy of a hive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from nicegui import context as page_context
from nicegui import ui

from penstock_hives.analytics.models import PeerComparison
from penstock_hives.errors import NotReady
from penstock_hives.occupancy.models import Occupancy, UsualOccupancy
from penstock_hives.people.permissions import Caller
from penstock_hives.places.models import HiveSettings, closed_text, is_open_or_unknown, next_change
from penstock_hives.web.context import AccountView, DashboardContext

STYLES: Final = '<link rel="stylesheet" href="/static/hives/hives.css">'


@contextmanager
def figures() -> Iterator[None]:
    with ui.element("div").classes("p-figures"):
        yield


def figure(value: str, name: str, mark: str = "") -> ui.label:
    """The label of the value, to be changed."""
    with ui.element("div").classes("p-figure h-figure"):
        label = ui.label(value).classes("p-figure-value")
        if mark:
            label.props(f"data-figure={mark}")
        ui.label(name).classes("p-figure-name")
    return label


@contextmanager
def card(title: str, about: str = "") -> Iterator[None]:
    with ui.column().classes("p-card gap-2 h-card"):
        ui.label(title).classes("p-h2").props("role=heading aria-level=2")
        if about:
            ui.label(about).classes("p-muted p-small")
        yield


def pill(word: str, look: str) -> ui.label:
    return ui.label(word).classes(f"p-pill {look}")


def empty_state(icon: str, title: str, about: str) -> None:
    with ui.column().classes("p-empty w-full"):
        ui.icon(icon).classes("p-empty-icon")
        ui.label(title).classes("p-h3")
        ui.label(about).classes("p-muted")


@dataclass(frozen=True, slots=True)
class DashboardRow:
    """A context for the cells, in the order of the columns."""

    _columns: Iterator[str]

    @contextmanager
    def cell(self) -> Iterator[None]:
        name = next(self._columns)
        found = ui.element("td").classes(_side(name)).props("role=cell")
        found.props["data-name"] = name.rstrip(":")  # a label on phones, where rows are lists
        with found, ui.element("div"):
            yield


@dataclass(frozen=True, slots=True)
class DashboardTable:
    _columns: Sequence[str]

    @contextmanager
    def row(self) -> Iterator[DashboardRow]:
        with ui.element("tr").props("role=row"):
            yield DashboardRow(iter(self._columns))


@contextmanager
def table(columns: Sequence[str]) -> Iterator[DashboardTable]:
    """A context for the rows; a column whose name ends with a colon is numeric.

    ARIA roles are explicit because the style sheet lays tables out as lists on phones.
    """
    with (
        ui.element("div").classes("p-scroll"),
        ui.element("table").classes("p-table").props("role=table"),
    ):
        with ui.element("thead"), ui.element("tr").props("role=row"):
            for name in columns:
                heading = ui.element("th").classes(_side(name))
                with heading.props("scope=col role=columnheader"):
                    ui.label(name.rstrip(":"))
        with ui.element("tbody"):
            yield DashboardTable(columns)


def _side(column: str) -> str:
    return "right" if column.endswith(":") else ""


def choose_account(view: AccountView, path: str) -> None:
    """A choice for members of several accounts."""
    if len(view.accounts) < 2:
        ui.label(view.account.name).classes("p-muted")
        return
    options = {each.id: each.name for each in view.accounts}
    ui.select(
        options,
        label="Business",
        value=view.account.id,
        on_change=lambda event: ui.navigate.to(f"{path}?account={event.value}"),
    ).props("outlined dense options-dense").classes("h-choice p-unlabelled")


#: Level → class of the pill.
LEVELS: Final = {"quiet": "good", "moderate": "busy", "busy": "warn", "full": "bad"}
RELATIONS: Final = {
    "quieter": "less busy than usual",
    "as_usual": "as usual",
    "busier": "busier than usual",
}
TRENDS: Final = {"rising": "↗ filling up", "falling": "↘ emptying", "steady": ""}
SENTIMENTS: Final = {"positive": "good", "neutral": "busy", "negative": "bad"}
HEALTH: Final = {"good": "good", "stale": "bad", "never": "warn", "off": "busy"}


def level_text(level: str | None, quality: str) -> tuple[str, str]:
    """The text and the class of its pill."""
    if quality == "stale":
        return "no data", "warn"
    return (level, LEVELS[level]) if level else ("no capacity set", "busy")


def inside_text(occupancy: int, capacity: int | None) -> str:
    return f"{occupancy:,} of {capacity:,}" if capacity else f"{occupancy:,}"


def clock_text(moment: datetime | None, zone: str) -> str:
    """In the hive's local time."""
    return "–" if moment is None else f"{moment.astimezone(ZoneInfo(zone)):%-d %b %H:%M}"


def local_date(moment: datetime, zone: str) -> date:
    return moment.astimezone(ZoneInfo(zone)).date()


def ago_text(moment: datetime | None, now: datetime) -> str:
    if moment is None:
        return "never"
    seconds = (now - moment).total_seconds()
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{int(seconds // length)} {unit} ago"
    return "just now"


def peer_rank_text(found: PeerComparison) -> str:
    if found.rank is None or not found.peers:
        return "No other place of its type to compare with."
    theirs = f"their median is {number_text(found.peer_visits)} visits a day"
    return f"Number {found.rank} of {found.peers + 1} places of its type; {theirs}."


def change_text(share: float | None) -> str:
    if share is None:
        return "–"
    percent = round(100 * share)
    return f"{'+−'[percent < 0]}{abs(percent)} %" if percent else "0 %"


def number_text(value: float | None, unit: str = "") -> str:
    if value is None:
        return "–"
    text = f"{value:,.0f}" if abs(value) >= 10 else f"{value:,.1f}"
    return f"{text} {unit}".rstrip()


async def current_occupancy(
    context: DashboardContext, caller: Caller, hive: int
) -> Occupancy | None:
    """None: no data yet."""
    try:
        return await context.services.occupancy.live(hive, caller)
    except NotReady:
        return None


def is_closed(hive: HiveSettings, now: datetime) -> bool:
    return not is_open_or_unknown(hive.opening_hours, hive.time_zone, now)


class OccupancyGauge:
    """The live cells of a hive's row, or of its page."""

    def __init__(
        self, hive: HiveSettings, now: Occupancy | None, clock: Callable[[], datetime]
    ) -> None:
        self._hive = hive
        self._clock = clock
        self._version = -1
        with ui.row().classes("items-center gap-3 no-wrap"):
            self._inside = ui.label("–").classes("p-number h-inside")
            self._inside.props(f"data-inside={hive.id}")
            with ui.element("div").classes("h-fill").props("aria-hidden=true"):
                self._fill = ui.element("div")
            self._pill = pill("no data", "busy").props(f"data-level={hive.id}")
        self._beside = ui.label().classes("p-muted p-small")
        if is_closed(hive, clock()):
            self._show_closed(now.version if now else -1)
        elif now is not None:
            self.show(
                now.occupancy,
                now.percent,
                now.level,
                now.quality,
                now.trend,
                now.version,
                now.usual,
            )

    def update(self, document: Mapping[str, Any]) -> None:
        """Show an occupancy message of this hive, if it is newer."""
        if document["version"] <= self._version:
            return
        self.show(
            *(document["occupancy"], document["percent"], document["level"], document["quality"]),
            *(document["trend"], document["version"]),
        )
        self._inside.classes(remove="h-rose")
        self._inside.classes(add="h-rose")

    def _show_closed(self, version: int) -> None:
        """A closed hive says when it opens, and nothing else."""
        hours, zone, now = self._hive.opening_hours, self._hive.time_zone, self._clock()
        self._version = version
        self._inside.set_text("–")
        self._fill.style("width: 0")
        self._pill.set_text("closed")
        self._pill.classes(replace="p-pill")
        opens = closed_text(next_change(hours, zone, now), zone, now)
        self._beside.set_text(opens.partition(", ")[2])

    def show(
        self,
        occupancy: int,
        percent: float | None,
        level: str | None,
        quality: str,
        trend: str,
        version: int,
        usual: UsualOccupancy | None = None,
    ) -> None:
        if is_closed(self._hive, self._clock()):
            self._show_closed(version)
            return
        self._version = version
        word, look = level_text(level, quality)
        self._inside.set_text(inside_text(occupancy, self._hive.capacity))
        self._fill.classes(replace=look)
        self._fill.style(f"width: {min(100.0, percent or 0.0):.0f}%")
        self._pill.set_text(word)
        self._pill.classes(replace=f"p-pill {look}")
        beside = [TRENDS[trend], RELATIONS[usual.relation] if usual else ""]
        self._beside.set_text(" · ".join(each for each in beside if each))


def follow_live(context: DashboardContext, gauges: Mapping[int, OccupancyGauge]) -> None:
    """Update the gauges with live occupancy while the page is open."""
    client = page_context.client

    def on_occupancy(document: Mapping[str, Any]) -> None:
        gauge = gauges.get(document["hive"])
        if gauge is not None:
            with client:
                gauge.update(document)

    client.on_delete(context.live.listen(on_occupancy))


def local_day(moment: str) -> str:
    return moment[:10]


def hour_of(moment: str) -> int:
    return datetime.fromisoformat(moment).hour
