"""Two stretches of days of one hive, chosen freely, and by how much they differ."""

from __future__ import annotations

from datetime import date, timedelta

from nicegui import ui

from penstock.core.errors import PenstockError
from penstock.hives.app.domain.analytics import Comparison, Window
from penstock.hives.app.domain.callers import Caller
from penstock.hives.app.domain.hives import HiveSettings
from penstock.web.hives import pieces, words
from penstock.web.hives.office import Office

_WEEK = timedelta(days=7)


class Comparing:
    """One visitor's choice; a week against the one before, until they choose."""

    def __init__(self, office: Office, caller: Caller, hive: HiveSettings, today: date) -> None:
        self._office = office
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
                found = await self._office.services.analytics.compare_periods(
                    self._caller, self._hive.id, before, after
                )
            except ValueError:
                ui.label("Choose days that follow on one another.").classes("p-muted")
            except PenstockError as error:
                ui.label(str(error)).classes("p-bad-text")
            else:
                _draw(found)


def _draw(found: Comparison) -> None:
    rows = (
        ("Visits", _visits(found.before), _visits(found.after), ""),
        (
            "Visits a day",
            words.number(found.before.visits_a_day),
            words.number(found.after.visits_a_day),
            words.change(found.visits_change),
        ),
        (
            "Mean occupancy",
            words.number(found.before.mean_occupancy),
            words.number(found.after.mean_occupancy),
            words.change(found.mean_change),
        ),
        ("Peak", words.number(found.before.peak), words.number(found.after.peak), ""),
    )
    with pieces.table(["", "Before:", "After:", "Change:"]) as table:
        for name, *values in rows:
            with table.row() as row:
                with row.cell():
                    ui.label(name)
                for value in values:
                    with row.cell():
                        ui.label(value).classes("p-number")


def _visits(window: Window) -> str:
    return f"{window.visits:,} in {window.days} d"
