"""Pieces pages are made of: figures, pills, tables, a word where there is nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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


@contextmanager
def table(columns: Sequence[str]) -> Iterator[None]:
    """Rows go inside; a column whose name ends with a colon is of numbers."""
    with ui.element("div").classes("p-scroll"), ui.element("table").classes("p-table"):
        with ui.element("thead"), ui.element("tr"):
            for name in columns:
                heading = ui.element("th").classes("right" if name.endswith(":") else "")
                with heading.props("scope=col"):
                    ui.label(name.rstrip(":"))
        with ui.element("tbody"):
            yield


@contextmanager
def cell(right: bool = False) -> Iterator[None]:
    with ui.element("td").classes("right" if right else ""):
        yield


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
