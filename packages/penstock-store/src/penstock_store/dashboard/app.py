"""The dashboards as one ASGI application: authenticated pages inside a frame.

NiceGUI's routes are global, so a process can have only one `create_app`. Preferences of users are
stored under the data directory, sessions in signed cookies (`sign_in.py`); both survive a restart.
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
    DRAW_SECONDS,
    Authenticator,
    DashboardDownload,
    DashboardPage,
    DashboardSection,
    DashboardUser,
    PageRequest,
    is_allowed,
)

#: Preferences and the secret of cookies.
DATA_FOLDER: Final = "web"
#: Between two checks of the session of an open page.
SESSION_CHECK_SECONDS: Final = 60.0


def create_app(
    sections: Sequence[DashboardSection],
    data: Path,
    gate: Authenticator | None = None,
    check_seconds: float = SESSION_CHECK_SECONDS,
    hosts: Sequence[str] = (),
    *,
    secure: bool = False,
) -> FastAPI:
    """`hosts` are host names that are accepted beside addresses and localhost. The cookies of a
    `secure` application are for HTTPS only."""

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            try:
                for section in sections:
                    await stack.enter_async_context(section.opened())
            except (PenstockError, ConnectionError) as error:
                server.state.failure = error  # raised by `serve_app`
            yield

    folder = data / DATA_FOLDER
    private_directory(folder)
    Storage.path = folder
    server = FastAPI(lifespan=lifespan, openapi_url=None)
    routes = _PageRoutes(PageFrame(sections, gate), gate, check_seconds)
    home = DashboardPage("/", "Dashboards", "home", home_page(sections, gate), in_menu=False)
    routes.add_page(home)
    for section in sections:
        for page in section.pages:
            routes.add_page(page)
        for download in section.downloads:
            routes.add_download(download)
        if section.static is not None:
            nicegui_app.add_static_files(f"/static/{section.name.lower()}", section.static)
    if gate is not None:
        sign_in.SignInPages(gate).install()
        server.add_route(sign_in.RETURNED_PATH, sign_in.form_as_query, methods=["POST"])
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
        session_middleware_kwargs={"same_site": "lax", "https_only": secure},
    )
    server.add_middleware(
        HostPolicyMiddleware,
        policy=HostPolicy(hosts, setting="--allow-host"),
        cross_site_paths=(sign_in.RETURNED_PATH,),
    )
    return server


class _PageRoutes:
    def __init__(self, frame: PageFrame, gate: Authenticator | None, check_seconds: float) -> None:
        self._frame = frame
        self._gate = gate
        self._check_seconds = check_seconds

    def add_page(self, page: DashboardPage) -> None:
        async def draw(request: Request) -> Response | None:
            user = await self._find_user(request)
            if user is None:
                return _redirect_to_sign_in(request)
            if self._gate is not None:
                check = partial(self._check_session, request, page)
                ui.timer(self._check_seconds, check, immediate=False)
            with self._frame.around(page, user) as set_title:
                if is_allowed(user, page.role, self._gate):
                    await page.draw(
                        PageRequest(user, request.path_params, request.query_params, set_title)
                    )
                else:
                    draw_forbidden(page, user)
            return None

        title = page.title if page.path == "/" else f"{page.title} · Penstock"
        ui.page(page.path, title=title, response_timeout=DRAW_SECONDS)(draw)

    def add_download(self, download: DashboardDownload) -> None:
        async def answered(request: Request) -> Response:
            user = await self._find_user(request)
            if user is None:
                return _redirect_to_sign_in(request)
            if not is_allowed(user, download.role, self._gate):
                return Response("Not permitted.", 403, media_type="text/plain")
            return await download.answer(
                PageRequest(user, request.path_params, request.query_params)
            )

        nicegui_app.add_route(download.path, answered)

    async def _find_user(self, request: Request) -> DashboardUser | None:
        if self._gate is None:
            return ANONYMOUS
        key = sign_in.session_key(request)
        return None if key is None else await self._gate.find_user(key)

    async def _check_session(self, request: Request, page: DashboardPage) -> None:
        """Close an open page when its session has ended or the user has lost the role."""
        client = ui.context.client
        try:
            user = await self._find_user(request)
        except (PenstockError, ConnectionError):
            return  # checked again later
        if user is None or not is_allowed(user, page.role, self._gate):
            ui.navigate.reload()
            client.remove_all_elements()  # in case that the browser does not reload


def _redirect_to_sign_in(request: Request) -> RedirectResponse:
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"{sign_in.SIGN_IN_PATH}?next={quote(wanted)}", 303)


def _secret(file: Path) -> str:
    """The secret of session cookies, created once."""
    try:
        return file.read_text()
    except FileNotFoundError:
        file.touch(0o600)
        file.write_text(secrets.token_urlsafe(32))
        return file.read_text()


def home_page(
    sections: Sequence[DashboardSection], gate: Authenticator | None
) -> Callable[[PageRequest], Awaitable[None]]:
    async def draw(request: PageRequest) -> None:
        for section in sections:
            pages = [
                page
                for page in section.pages
                if page.in_menu and is_allowed(request.user, page.role, gate)
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
