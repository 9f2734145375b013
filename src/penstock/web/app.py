"""The dashboards as one ASGI application: pages behind the gate, inside the frame.

NiceGUI keeps its routes for the whole process, so there is one `create_app` in a process. What
visitors prefer is kept under the data directory; who they are is in their signed cookie, as a key
that the gate knows (`signing_in.py`). Both outlive a restart.
"""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Sequence
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
from penstock.core.host_policy import HostCheck, HostPolicy
from penstock.web import home, signing_in, theme
from penstock.web.failing import missing, tell
from penstock.web.frame import Frame
from penstock.web.gate import ANYONE, Gate, allowed
from penstock.web.pages import Download, Page, Person, Section, Visit
from penstock.web.refusing import refuse

#: Sessions, and what signs them.
FOLDER: Final = "web"
#: A page asks a database before it is there; on a busy machine that may take a while.
_DRAW_SECONDS: Final = 60.0
#: How often the gate is asked about who has a page open.
RECALL_SECONDS: Final = 60.0


def create_app(
    sections: Sequence[Section],
    data: Path,
    gate: Gate | None = None,
    recall_seconds: float = RECALL_SECONDS,
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

    folder = data / FOLDER
    private_directory(folder)
    Storage.path = folder
    server = FastAPI(lifespan=lifespan, openapi_url=None)
    doors = _Doors(Frame(sections, gate), gate, recall_seconds)
    doors.open(Page("/", "Dashboards", "home", home.drawn(sections, gate), listed=False))
    for section in sections:
        for page in section.pages:
            doors.open(page)
        for download in section.downloads:
            doors.hand_out(download)
    if gate is not None:
        signing_in.install(gate)
    theme.install()
    nicegui_app.on_page_exception(tell)
    nicegui_app.add_exception_handler(404, missing)
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
    server.add_middleware(HostCheck, policy=HostPolicy(hosts, setting="--allow-host"))
    return server


class _Doors:
    """Whoever comes to a page is known, or is asked; and sees it if they may."""

    def __init__(self, frame: Frame, gate: Gate | None, recall_seconds: float) -> None:
        self._frame = frame
        self._gate = gate
        self._recall_seconds = recall_seconds

    def open(self, page: Page) -> None:
        async def shown(request: Request) -> Response | None:
            person = await self._person(request)
            if person is None:
                return _to_sign_in(request)
            if self._gate is not None:
                recall = partial(self._recall, request, page)
                ui.timer(self._recall_seconds, recall, immediate=False)
            with self._frame.around(page, person) as entitle:
                if allowed(person, page.role, self._gate):
                    await page.draw(
                        Visit(person, request.path_params, request.query_params, entitle)
                    )
                else:
                    refuse(page, person)
            return None

        title = page.title if page.path == "/" else f"{page.title} · Penstock"
        ui.page(page.path, title=title, response_timeout=_DRAW_SECONDS)(shown)

    def hand_out(self, download: Download) -> None:
        async def answered(request: Request) -> Response:
            person = await self._person(request)
            if person is None:
                return _to_sign_in(request)
            if not allowed(person, download.role, self._gate):
                return Response("This is not for you.", 403, media_type="text/plain")
            return await download.answer(Visit(person, request.path_params, request.query_params))

        nicegui_app.add_route(download.path, answered)

    async def _person(self, request: Request) -> Person | None:
        if self._gate is None:
            return ANYONE
        key = signing_in.session_key(request)
        return None if key is None else await self._gate.recall(key)

    async def _recall(self, request: Request, page: Page) -> None:
        """An open page ends with the session it was opened in, or with the role it is for."""
        client = ui.context.client
        try:
            person = await self._person(request)
        except (PenstockError, ConnectionError):
            return  # asked again in a minute
        if person is None or not allowed(person, page.role, self._gate):
            ui.navigate.reload()
            client.remove_all_elements()  # whatever the browser does, nothing answers it any more


def _to_sign_in(request: Request) -> RedirectResponse:
    wanted = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"{signing_in.PATH}?next={quote(wanted)}", 303)


def _secret(file: Path) -> str:
    """What signs the sessions: made once, and for nobody else to read."""
    try:
        return file.read_text()
    except FileNotFoundError:
        file.touch(0o600)
        file.write_text(secrets.token_urlsafe(32))
        return file.read_text()
