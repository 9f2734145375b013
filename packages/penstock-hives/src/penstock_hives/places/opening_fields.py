"""Inputs for opening hours: a line for each weekday, and lines for dates with other hours.

A line is `09:00-12:00, 13:00-18:00`; a span that ends no later than it begins lasts into the next
day; an empty line means closed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from nicegui import ui

from penstock_hives.errors import invalid_field
from penstock_hives.places.models import WEEKDAYS
from penstock_hives.web.forms import EditForm

DAY_NAMES: Final = {
    "mon": "Monday",
    "tue": "Tuesday",
    "wed": "Wednesday",
    "thu": "Thursday",
    "fri": "Friday",
    "sat": "Saturday",
    "sun": "Sunday",
}
_SPAN: Final = re.compile(r"(\d{1,2}):(\d{2})\s*(?:-|–|to)\s*(\d{1,2}):(\d{2})")
_CLOSED: Final = ("", "closed")


def parse_spans(text: str) -> list[list[str]]:
    """Raises ValueError."""
    if text.strip().lower() in _CLOSED:
        return []
    spans = []
    for part in text.split(","):
        found = _SPAN.fullmatch(part.strip())
        if found is None:
            raise ValueError(f"must be hours such as 09:00-17:30, got {part.strip()!r}")
        opens, until = (int(found[1]), int(found[2])), (int(found[3]), int(found[4]))
        if not (opens < (24, 0) and until <= (24, 0) and max(opens[1], until[1]) < 60):
            raise ValueError(f"must be times of day, got {part.strip()!r}")
        spans.append([f"{opens[0]:02}:{opens[1]:02}", f"{until[0]:02}:{until[1]:02}"])
    return spans


def spans_text(spans: Sequence[Sequence[str]]) -> str:
    return ", ".join(f"{opens}-{closes}" for opens, closes in spans)


class OpeningFields:
    """The field `opening_hours` of a form."""

    def __init__(self, form: EditForm[Any], hours: Mapping[str, Sequence[Sequence[str]]]) -> None:
        self._form = form
        self._days: dict[str, ui.input] = {}
        self._exceptions: list[tuple[ui.input, ui.input]] = []
        with ui.element("div").classes("h-hours"):
            for day in WEEKDAYS:
                self._days[day] = self._line(DAY_NAMES[day], spans_text(hours.get(day, ())))
                form.mark(f"opening_hours.{day}", self._days[day])
        ui.button("Monday's hours until Friday", icon="content_copy", on_click=self._copy).props(
            "flat dense no-caps"
        )
        ui.label("Exceptions").classes("p-h3")
        ui.label("Holidays and other dates on which the hours differ; no hours: closed.").classes(
            "p-muted p-small"
        )
        self._list = ui.column().classes("w-full gap-2")
        for day in sorted(set(hours) - set(WEEKDAYS)):
            self._add(day, spans_text(hours[day]))
        ui.button("Add an exception", icon="add", on_click=lambda: self._add("", "")).props(
            "flat dense no-caps"
        )
        form.add_group("opening_hours", self._read)

    def _line(self, label: str, text: str) -> ui.input:
        field = ui.input(label, value=text, placeholder="closed").props("outlined dense")
        return field.classes("w-full")

    def _copy(self) -> None:
        for day in WEEKDAYS[1:5]:
            self._days[day].set_value(self._days["mon"].value)

    def _add(self, day: str, text: str) -> None:
        with self._list, ui.row().classes("w-full no-wrap items-start gap-2") as row:
            date = ui.input("Date", value=day).props("type=date outlined dense stack-label")
            hours = self._line("Hours", text)
            pair = (date, hours)
            self._exceptions.append(pair)

            def remove() -> None:
                self._exceptions.remove(pair)
                self._list.remove(row)

            ui.button(icon="delete", on_click=remove).props(
                'flat round dense aria-label="Remove the exception"'
            )

    def _read(self) -> dict[str, list[list[str]]]:
        found = {}
        for day, field in self._days.items():
            found[day] = self._spans(f"opening_hours.{day}", field.value or "")
        for date, field in self._exceptions:
            name = f"opening_hours.{date.value or ''}"
            self._form.mark(name, field)
            if not date.value:
                self._form.mark(name, date)
                raise invalid_field(name, "must be given")
            found[str(date.value)] = self._spans(name, field.value or "")
        return found

    def _spans(self, name: str, text: str) -> list[list[str]]:
        try:
            return parse_spans(text)
        except ValueError as error:
            raise invalid_field(name, str(error)) from None
