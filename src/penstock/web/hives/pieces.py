"""Pieces pages are made of: figures, pills, tables, a word where there is nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from nicegui import ui

from penstock.web.hives.office import Desk

STYLES: Final = '<link rel="stylesheet" href="/static/hives.css">'


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


def nothing(icon: str, title: str, about: str) -> None:
    with ui.column().classes("p-empty w-full"):
        ui.icon(icon).classes("p-empty-icon")
        ui.label(title).classes("p-h3")
        ui.label(about).classes("p-muted")


@dataclass(frozen=True, slots=True)
class Row:
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
class Table:
    _columns: Sequence[str]

    @contextmanager
    def row(self) -> Iterator[Row]:
        with ui.element("tr").props("role=row"):
            yield Row(iter(self._columns))


@contextmanager
def table(columns: Sequence[str]) -> Iterator[Table]:
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
            yield Table(columns)


def _side(column: str) -> str:
    return "right" if column.endswith(":") else ""


def choose_account(desk: Desk, path: str) -> None:
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
