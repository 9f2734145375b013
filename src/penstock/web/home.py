"""The first page: what there is to look at."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from nicegui import ui

from penstock.web.gate import Gate, allowed
from penstock.web.pages import Page, Section, Visit


def drawn(sections: Sequence[Section], gate: Gate | None) -> Callable[[Visit], Awaitable[None]]:
    async def draw(visit: Visit) -> None:
        for section in sections:
            pages = [
                page
                for page in section.pages
                if page.listed and allowed(visit.person, page.role, gate)
            ]
            if not pages:
                continue
            ui.label(section.name).classes("p-eyebrow")
            with ui.element("div").classes("p-tiles"):
                for page in pages:
                    _tile(page)

    return draw


def _tile(page: Page) -> None:
    with ui.link(target=page.path).classes("p-card p-tile"):
        ui.icon(page.icon).classes("p-tile-icon")
        with ui.column().classes("gap-1"):
            ui.label(page.title).classes("p-h3")
            ui.label(page.about).classes("p-muted")
