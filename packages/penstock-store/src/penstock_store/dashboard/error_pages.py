"""What is shown when there is no page, or none could be drawn: what is wrong, and where to go.

An error of ours says what to do about it; anything else is a mistake of ours. NiceGUI has either
in the log.
"""

from __future__ import annotations

from nicegui import Client, ui
from nicegui.page import page
from starlette.requests import Request
from starlette.responses import Response

from penstock.core.errors import PenstockError
from penstock_store.dashboard.pages import DashboardPage, DashboardUser


def draw_error(error: Exception) -> None:
    ours = isinstance(error, PenstockError | ConnectionError)
    text = str(error) if ours else "It is in the log. Other pages may well work."
    with ui.column().classes("p-card p-empty p-alone"):
        ui.icon("cloud_off").classes("p-empty-icon")
        ui.label("This page could not be drawn").classes("p-h2")
        ui.label(text).classes("p-muted")
        with ui.row():
            ui.button("Try again", icon="refresh", on_click=ui.navigate.reload).props("unelevated")
            ui.button("All dashboards", on_click=lambda: ui.navigate.to("/")).props("flat")


async def not_found(request: Request, _: Exception) -> Response:
    with Client(page(""), request=request) as client:
        with ui.column().classes("p-card p-empty p-alone"):
            ui.icon("explore_off").classes("p-empty-icon")
            ui.label("There is nothing here").classes("p-h2")
            ui.label(f"No page is at {request.url.path}.").classes("p-muted")
            ui.link("All dashboards", "/").classes("p-accent")
    return client.build_response(request, 404)


# What is shown instead of a page that is not for the visitor.


def draw_forbidden(page: DashboardPage, person: DashboardUser) -> None:
    with ui.column().classes("p-card p-empty"):
        ui.icon("lock").classes("p-empty-icon")
        ui.label("Not with this account").classes("p-h2")
        ui.label(
            f"{page.title} is for people with the role “{page.role}”, which {person.name} does"
            " not have. Whoever looks after the accounts can give it."
        ).classes("p-muted")
