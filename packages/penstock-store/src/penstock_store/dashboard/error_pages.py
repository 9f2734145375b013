"""Error pages: page not found, not permitted, and pages that failed; NiceGUI logs the latter."""

from __future__ import annotations

from nicegui import Client, ui
from nicegui.page import page
from starlette.requests import Request
from starlette.responses import Response

from penstock.core.errors import PenstockError
from penstock_store.dashboard.pages import DashboardPage, DashboardUser


def draw_error(error: Exception) -> None:
    known = isinstance(error, PenstockError | ConnectionError)
    text = str(error) if known else "The log has details. Other pages may work."
    with ui.column().classes("p-card p-empty p-alone"):
        ui.icon("cloud_off").classes("p-empty-icon")
        ui.label("This page failed").classes("p-h2")
        ui.label(text).classes("p-muted")
        with ui.row():
            ui.button("Try again", icon="refresh", on_click=ui.navigate.reload).props("unelevated")
            ui.button("All dashboards", on_click=lambda: ui.navigate.to("/")).props("flat")


async def not_found(request: Request, _: Exception) -> Response:
    with Client(page(""), request=request) as client:
        with ui.column().classes("p-card p-empty p-alone"):
            ui.icon("explore_off").classes("p-empty-icon")
            ui.label("Page not found").classes("p-h2")
            ui.label(f"There is no page at {request.url.path}.").classes("p-muted")
            ui.link("All dashboards", "/").classes("p-accent")
    return client.build_response(request, 404)


def draw_forbidden(page: DashboardPage, user: DashboardUser) -> None:
    with ui.column().classes("p-card p-empty"):
        ui.icon("lock").classes("p-empty-icon")
        ui.label("Not permitted").classes("p-h2")
        ui.label(
            f"{page.title} needs the role “{page.role}”, which {user.name} does not have."
            " An administrator can grant it."
        ).classes("p-muted")
