"""The page that asks who somebody is, where there is a gate; and the sessions that come of it.

A session's key is in the browser's signed cookie, and nowhere else: a cookie from before a sign-in
is not signed in after it. Pages talk over a WebSocket, which sets no cookies, so the page leads
the browser to an address that does, with a ticket that is good once, for this browser, for a
minute.
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
#: Where a cookie has the key of the session.
_SESSION_KEY: Final = "key"
_WRONG_PASSWORD: Final = "That is not the name and password of an account here."


def session_key(request: Request) -> str | None:
    key = request.session.get(_SESSION_KEY)
    return key if isinstance(key, str) else None


class SignInTickets:
    """Keys of sessions that a browser has yet to fetch."""

    LIFE_SECONDS: Final = 60.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._held: dict[str, tuple[float, str, str]] = {}

    def issue(self, browser: str, key: str) -> str:
        now = self._clock()
        self._held = {name: held for name, held in self._held.items() if held[0] > now}
        ticket = secrets.token_urlsafe(32)
        self._held[ticket] = (now + self.LIFE_SECONDS, browser, key)
        return ticket

    def redeem(self, browser: str, ticket: str) -> str | None:
        until, holder, key = self._held.pop(ticket, (0.0, "", ""))
        return key if holder == browser and until > self._clock() else None


def install_sign_in(gate: Authenticator) -> None:
    tickets = SignInTickets()

    async def page(request: Request) -> None:
        target = safe_redirect_path(request.query_params.get("next", "/"))
        browser = request.session["id"]

        async def sign_in() -> None:
            try:
                key = await gate.admit(name.value.strip(), password.value)
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
        asked = request.query_params
        key = tickets.redeem(request.session["id"], asked.get("ticket", ""))
        if key is None:
            return RedirectResponse(SIGN_IN_PATH, 303)
        if (before := session_key(request)) is not None:
            await gate.dismiss(before)
        request.session[_SESSION_KEY] = key
        return RedirectResponse(safe_redirect_path(asked.get("next", "/")), 303)

    async def sign_out(request: Request) -> Response:
        key = session_key(request)
        request.session.pop(_SESSION_KEY, None)
        if key is not None:
            await gate.dismiss(key)
        return RedirectResponse(SIGN_IN_PATH, 303)

    ui.page(SIGN_IN_PATH, title="Sign in · Penstock")(page)
    app.add_route(_SIGNED_IN_PATH, done)
    app.add_route(SIGN_OUT_PATH, sign_out)
