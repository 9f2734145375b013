"""The sign-in page and its sessions.

The session key is in the browser's signed cookie. Pages communicate over a WebSocket, which cannot
set cookies, so after a sign-in the browser is redirected to a URL that does, with a ticket that is
valid once, for this browser, for a minute.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Final
from urllib.parse import quote

from nicegui import app, ui
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from penstock.core.errors import PenstockError
from penstock_store.dashboard.frame import logo
from penstock_store.dashboard.pages import Authenticator, safe_redirect_path

SIGN_IN_PATH: Final = "/sign-in"
SIGN_OUT_PATH: Final = "/sign-out"
_SIGNED_IN_PATH: Final = "/sign-in/done"
#: The name in the cookie.
_SESSION_KEY: Final = "key"
_WRONG_PASSWORD: Final = "Wrong name or password."  # noqa: S105 - a text


def session_key(request: Request) -> str | None:
    key = request.session.get(_SESSION_KEY)
    return key if isinstance(key, str) else None


class SignInTickets:
    """Session keys that browsers have not fetched yet."""

    LIFE_SECONDS: Final = 60.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tickets: dict[str, tuple[float, str, str]] = {}

    def issue(self, browser: str, key: str) -> str:
        now = self._clock()
        self._tickets = {name: ticket for name, ticket in self._tickets.items() if ticket[0] > now}
        ticket = secrets.token_urlsafe(32)
        self._tickets[ticket] = (now + self.LIFE_SECONDS, browser, key)
        return ticket

    def redeem(self, browser: str, ticket: str) -> str | None:
        until, holder, key = self._tickets.pop(ticket, (0.0, "", ""))
        return key if holder == browser and until > self._clock() else None


def install_sign_in(gate: Authenticator) -> None:
    tickets = SignInTickets()

    async def page(request: Request) -> None:
        target = safe_redirect_path(request.query_params.get("next", "/"))
        browser = request.session["id"]
        address = request.client.host if request.client else "unknown"

        async def sign_in() -> None:
            try:
                key = await gate.sign_in(name.value.strip(), password.value, address)
            except PenstockError as error:
                key = None
                wrong.set_text(str(error))
            else:
                wrong.set_text(_WRONG_PASSWORD)
            if key is None:
                wrong.set_visibility(True)
                password.set_value("")
                return
            ticket = tickets.issue(browser, key)
            ui.navigate.to(f"{_SIGNED_IN_PATH}?ticket={ticket}&next={quote(target, safe='')}")

        with ui.column().classes("p-card p-sign-in"):
            logo()
            ui.label("Sign in").classes("p-h2")
            name = ui.input("Name").props("outlined autofocus autocomplete=username")
            password = ui.input("Password", password=True, password_toggle_button=True)
            password.props("outlined autocomplete=current-password")
            password.on("keydown.enter", sign_in)
            wrong = ui.label(_WRONG_PASSWORD)
            wrong.classes("p-bad-text").props("role=alert")
            wrong.set_visibility(False)
            ui.button("Sign in", on_click=sign_in).props("unelevated no-caps")

    async def done(request: Request) -> Response:
        query = request.query_params
        key = tickets.redeem(request.session["id"], query.get("ticket", ""))
        if key is None:
            return RedirectResponse(SIGN_IN_PATH, 303)
        if (before := session_key(request)) is not None:
            await gate.sign_out(before)
        request.session[_SESSION_KEY] = key
        return RedirectResponse(safe_redirect_path(query.get("next", "/")), 303)

    async def sign_out(request: Request) -> Response:
        key = session_key(request)
        request.session.pop(_SESSION_KEY, None)
        if key is not None:
            await gate.sign_out(key)
        return RedirectResponse(SIGN_IN_PATH, 303)

    ui.page(SIGN_IN_PATH, title="Sign in · Penstock")(page)
    app.add_route(_SIGNED_IN_PATH, done)
    app.add_route(SIGN_OUT_PATH, sign_out)
