"""How a hive stands now, on a page: drawn once, changed as figures are heard."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from nicegui import context, ui

from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.errors import NothingYet
from penstock.hives.app.domain.hives import HiveSettings
from penstock.hives.app.domain.occupancy import Occupancy, Usual
from penstock.web.hives import pieces, words
from penstock.web.hives.office import Office


async def standing(office: Office, caller: Caller, hive: int) -> Occupancy | None:
    """None of a hive that was never heard of."""
    try:
        return await office.services.occupancy.live(hive, caller)
    except NothingYet:
        return None


class Gauge:
    """The live cells of a hive's row, or of its page."""

    def __init__(self, hive: HiveSettings, now: Occupancy | None) -> None:
        self._hive = hive
        self._version = -1
        with ui.row().classes("items-center gap-3 no-wrap"):
            self._inside = ui.label("–").classes("p-number h-inside")
            self._inside.props(f"data-inside={hive.id}")
            with ui.element("div").classes("h-fill").props("aria-hidden=true"):
                self._fill = ui.element("div")
            self._pill = pieces.pill("not heard of", "busy").props(f"data-level={hive.id}")
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
        usual: Usual | None = None,
    ) -> None:
        self._version = version
        word, look = words.level(level, quality)
        self._inside.set_text(words.inside(occupancy, self._hive.capacity))
        self._fill.classes(replace=look)
        self._fill.style(f"width: {min(100.0, percent or 0.0):.0f}%")
        self._pill.set_text(word)
        self._pill.classes(replace=f"p-pill {look}")
        beside = [words.TRENDS[trend], words.RELATIONS[usual.relation] if usual else ""]
        self._beside.set_text(" · ".join(each for each in beside if each))


def follow(office: Office, gauges: Mapping[int, Gauge]) -> None:
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
