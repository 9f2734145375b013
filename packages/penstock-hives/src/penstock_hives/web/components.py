"""Pieces pages are made of: figures, pills, tables, a word where there is nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from zoneinfo import ZoneInfo

from nicegui import context, ui

from penstock_hives.analytics.models import PeerComparison
from penstock_hives.errors import NotReady
from penstock_hives.occupancy.models import Occupancy, UsualOccupancy
from penstock_hives.people.permissions import Caller
from penstock_hives.places.models import HiveSettings
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
    """Cells go inside, from the first column on."""

    _columns: Iterator[str]

    @contextmanager
    def cell(self) -> Iterator[None]:
        name = next(self._columns)
        found = ui.element("td").classes(_side(name)).props("role=cell")
        found.props["data-name"] = name.rstrip(":")  # on a phone a row is a list of these
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
    """Rows go inside; a column whose name ends with a colon is of numbers. What each part is, is
    said: on a phone they are laid out as lists, and browsers forget it then."""
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


def choose_account(desk: AccountView, path: str) -> None:
    """For those who belong to several."""
    if len(desk.accounts) < 2:
        ui.label(desk.account.name).classes("p-muted")
        return
    options = {each.id: each.name for each in desk.accounts}
    ui.select(
        options,
        value=desk.account.id,
        on_change=lambda event: ui.navigate.to(f"{path}?account={event.value}"),
    ).props('outlined dense options-dense aria-label="Business"').classes("h-choice")


# How figures are said: levels, relations, moments, changes.

#: Level → its pill's look. A hive nobody hears of has none.
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
    """The word, and the look of its pill."""
    if quality == "stale":
        return "sensors silent", "warn"
    return (level, LEVELS[level]) if level else ("no capacity set", "busy")


def inside_text(occupancy: int, capacity: int | None) -> str:
    return f"{occupancy:,} of {capacity:,}" if capacity else f"{occupancy:,}"


def clock_text(moment: datetime | None, zone: str) -> str:
    """By the hive's own clock."""
    return "–" if moment is None else f"{moment.astimezone(ZoneInfo(zone)):%-d %b %H:%M}"


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
        return "There is no other place of its type to compare it with."
    theirs = f"{number_text(found.peer_visits)} visits a day are usual among them"
    return f"Number {found.rank} of {found.peers + 1} places of its type; {theirs}."


def change_text(share: float | None) -> str:
    if share is None:
        return "–"
    percent = round(100 * share)
    return f"{'+−'[percent < 0]}{abs(percent)} %" if percent else "0 %"


def number_text(value: float | None, unit: str = "") -> str:
    if value is None:
        return "–"
    told = f"{value:,.0f}" if abs(value) >= 10 else f"{value:,.1f}"
    return f"{told} {unit}".rstrip()


# How a hive stands now, on a page: drawn once, changed as figures are heard.


async def current_occupancy(
    office: DashboardContext, caller: Caller, hive: int
) -> Occupancy | None:
    """None of a hive that was never heard of."""
    try:
        return await office.services.occupancy.live(hive, caller)
    except NotReady:
        return None


class OccupancyGauge:
    """The live cells of a hive's row, or of its page."""

    def __init__(self, hive: HiveSettings, now: Occupancy | None) -> None:
        self._hive = hive
        self._version = -1
        with ui.row().classes("items-center gap-3 no-wrap"):
            self._inside = ui.label("–").classes("p-number h-inside")
            self._inside.props(f"data-inside={hive.id}")
            with ui.element("div").classes("h-fill").props("aria-hidden=true"):
                self._fill = ui.element("div")
            self._pill = pill("not heard of", "busy").props(f"data-level={hive.id}")
        self._beside = ui.label().classes("p-muted p-small")
        if now is not None:
            self.show(
                now.occupancy,
                now.percent,
                now.level,
                now.quality,
                now.trend,
                now.version,
                now.usual,
            )

    def heard(self, told: Mapping[str, Any]) -> bool:
        """Whether it is about this hive, and new."""
        if told["hive"] != self._hive.id or told["version"] <= self._version:
            return False
        self.show(
            *(told["occupancy"], told["percent"], told["level"], told["quality"]),
            *(told["trend"], told["version"]),
        )
        self._inside.classes(remove="h-rose")
        self._inside.classes(add="h-rose")
        return True

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
        self._version = version
        word, look = level_text(level, quality)
        self._inside.set_text(inside_text(occupancy, self._hive.capacity))
        self._fill.classes(replace=look)
        self._fill.style(f"width: {min(100.0, percent or 0.0):.0f}%")
        self._pill.set_text(word)
        self._pill.classes(replace=f"p-pill {look}")
        beside = [TRENDS[trend], RELATIONS[usual.relation] if usual else ""]
        self._beside.set_text(" · ".join(each for each in beside if each))


def follow_live(office: DashboardContext, gauges: Mapping[int, OccupancyGauge]) -> None:
    """Have them change as figures are heard, for as long as the visitor looks."""
    client = context.client

    def heard(told: Mapping[str, Any]) -> None:
        gauge = gauges.get(told["hive"])
        if gauge is not None:
            with client:
                gauge.heard(told)

    client.on_delete(office.live.listen(heard))


def local_day(moment: str) -> str:
    """Of a local moment as series have them."""
    return moment[:10]


def hour_of(moment: str) -> int:
    return datetime.fromisoformat(moment).hour
