"""What is shown instead of a page that is not for the visitor."""

from __future__ import annotations

from nicegui import ui

from penstock.web.pages import Page, Person


def refuse(page: Page, person: Person) -> None:
    with ui.column().classes("p-card p-empty"):
        ui.icon("lock").classes("p-empty-icon")
        ui.label("Not with this account").classes("p-h2")
        ui.label(
            f"{page.title} is for people with the role “{page.role}”, which {person.name} does"
            " not have. Whoever looks after the accounts can give it."
        ).classes("p-muted")
