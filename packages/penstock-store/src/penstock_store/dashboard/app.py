"""The dashboards as one ASGI application: pages behind the gate, inside the frame.

NiceGUI keeps its routes for the whole process, so there is one `create_app` in a process. What
visitors prefer is kept under the data directory; who they are is in their signed cookie, as a key
that the gate knows (`sign_in.py`). Both outlive a restart.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

from fastapi import FastAPI
from nicegui import app as nicegui_app
from nicegui import ui
from nicegui.storage import Storage
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from penstock.core.data_directory import private_directory
from penstock.core.errors import PenstockError
from penstock.core.host_policy import HostPolicy, HostPolicyMiddleware
from penstock_store.dashboard import sign_in, theme
from penstock_store.dashboard.error_pages import draw_error, draw_forbidden, not_found
from penstock_store.dashboard.frame import PageFrame
from penstock_store.dashboard.pages import (
    ANONYMOUS,
    Authenticator,
    DashboardDownload,
    DashboardPage,
    DashboardSection,
    DashboardUser,
    PageRequest,
    is_allowed,
)

#: Sessions, and what signs them.
DATA_FOLDER: Final = "web"
#: A page asks a database before it is there; on a busy machine that may take a while.
_DRAW_SECONDS: Final = 60.0
#: How often the gate is asked about who has a page open.
SESSION_CHECK_SECONDS: Final = 60.0


def create_app(
    sections: Sequence[DashboardSection],
    data: Path,
    gate: Authenticator | None = None,
    recall_seconds: float = SESSION_CHECK_SECONDS,
    hosts: Sequence[str] = (),
) -> FastAPI:
    """`hosts` are the names it is reached by beside addresses and localhost."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            try:
                for section in sections:
                    await stack.enter_async_context(section.opened())
            except (PenstockError, ConnectionError) as error:
                server.state.failure = error  # for whoever serves it to tell
            yield

    folder = data / DATA_FOLDER
    private_directory(folder)
    Storage.path = folder
    server = FastAPI(lifespan=lifespan, openapi_url=None)
    doors = _PageRoutes(PageFrame(sections, gate), gate, recall_seconds)
    doors.open(DashboardPage("/", "Dashboards", "home", home_page(sections, gate), listed=False))
    for section in sections:
        for page in section.pages:
            doors.open(page)
        for download in section.downloads:
            doors.hand_out(download)
        if section.static is not None:
            nicegui_app.add_static_files(f"/static/{section.name.lower()}", section.static)
    if gate is not None:
        sign_in.install_sign_in(gate)
    theme.install_theme()
    nicegui_app.on_page_exception(draw_error)
    nicegui_app.add_exception_handler(404, not_found)
    ui.run_with(
        server,
        title="Penstock",
        favicon=theme.FAVICON,
        dark=None,
        language="en-GB",
        storage_secret=_secret(folder / "secret"),
        show_welcome_message=False,
        binding_refresh_interval=None,
        reconnect_timeout=30.0,
        session_middleware_kwargs={"same_site": "lax"},
    )
    server.add_middleware(HostPolicyMiddleware, policy=HostPolicy(hosts, setting="--allow-host"))
    return server


class _PageRoutes:
    """Whoever comes to a page is known, or is asked; and sees it if they may."""

    def __init__(self, frame: PageFrame, gate: Authenticator | None, recall_seconds: float) -> None:
        self._frame = frame
        self._gate = gate
        self._recall_seconds = recall_seconds

    def open(self, page: DashboardPage) -> None:
        async def shown(request: Request) -> Response | None:
            person = await self._person(request)
            if person is None:
                return _redirect_to_sign_in(request)
            if self._gate is not None:
                recall = partial(self._recall, request, page)
                ui.timer(self._recall_seconds, recall, immediate=False)
            with self._frame.around(page, person) as entitle:
                if is_allowed(person, page.role, self._gate):
                    await page.draw(
                        PageRequest(person, request.path_params, request.query_params, entitle)
                    )
                else:
                    draw_forbidden(page, person)
            return None

        title = page.title if page.path == "/" else f"{page.title} · Penstock"
        ui.page(page.path, title=title, response_timeout=_DRAW_SECONDS)(shown)

    def hand_out(self, download: DashboardDownload) -> None:
        async def answered(request: Request) -> Response:
            person = await self._person(request)
            if person is None:
                return _redirect_to_sign_in(request)
            if not is_allowed(person, download.role, self._gate):
                return Response("This is not for you.", 403, media_type="text/plain")
            return await download.answer(
                PageRequest(person, request.path_params, request.query_params)
            )

        nicegui_app.add_route(download.path, answered)

    async def _person(self, request: Request) -> DashboardUser | None:
        if self._gate is None:
            return ANONYMOUS
        key = sign_in.session_key(request)
        return None if key is None else await self._gate.recall(key)

    async def _recall(self, request: Request, page: DashboardPage) -> None:
        """An open page ends with the session it was opened in, or with the role it is for."""
        client = ui.context.client
        try:
            person = await self._person(request)
        except (PenstockError, ConnectionError):
            return  # asked again in a minute
        if person is None or not is_allowed(person, page.role, self._gate):
            ui.navigate.reload()
            client.remove_all_elements()  # whatever the browser does, nothing answers it any more


def _redirect_to_sign_in(request: Request) -> RedirectResponse:
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"{sign_in.SIGN_IN_PATH}?next={quote(wanted)}", 303)


def _secret(file: Path) -> str:
    """What signs the sessions: made once, and for nobody else to read."""
    try:
        return file.read_text()
    except FileNotFoundError:
        file.touch(0o600)
        file.write_text(secrets.token_urlsafe(32))
        return file.read_text()


# The first page: what there is to look at.


def home_page(
    sections: Sequence[DashboardSection], gate: Authenticator | None
) -> Callable[[PageRequest], Awaitable[None]]:
    async def draw(visit: PageRequest) -> None:
        for section in sections:
            pages = [
                page
                for page in section.pages
                if page.listed and is_allowed(visit.person, page.role, gate)
            ]
            if not pages:
                continue
            ui.label(section.name).classes("p-eyebrow")
            with ui.element("div").classes("p-tiles"):
                for page in pages:
                    _tile(page)

    return draw


def _tile(page: DashboardPage) -> None:
    with ui.link(target=page.path).classes("p-card p-tile"):
        ui.icon(page.icon).classes("p-tile-icon")
        with ui.column().classes("gap-1"):
            ui.label(page.title).classes("p-h3")
            ui.label(page.about).classes("p-muted")
