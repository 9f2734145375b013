"""The sign-in page and its sessions.

The session key is in the browser's signed cookie. Pages communicate over a WebSocket, which cannot
set cookies, so after a sign-in the browser is redirected to a URL that does, with a ticket that is
valid once, for this browser, for a minute.

A sign-in at a provider (`ProviderAuthenticator`) leaves the page and comes back to
`/sign-in/returned`, with a query, or with a form, as Apple does. The cookie does not accompany a
form of another site, so its fields become a query first. Only the browser that left is signed in.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, urlencode

from nicegui import app, ui
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from penstock.core.addresses import is_loopback
from penstock.core.errors import AuthenticationFailed, PenstockError
from penstock.core.logs import get_logger
from penstock_store.dashboard.frame import logo
from penstock_store.dashboard.pages import (
    DRAW_SECONDS,
    Authenticator,
    FirstRunAuthenticator,
    ProviderAuthenticator,
    safe_redirect_path,
)

log = get_logger(__name__)

SIGN_IN_PATH: Final = "/sign-in"
SIGN_OUT_PATH: Final = "/sign-out"
_SIGNED_IN_PATH: Final = "/sign-in/done"
#: Accepts a form of another site, and only redirects it.
RETURNED_PATH: Final = "/sign-in/returned"
#: What providers send back; other fields are dropped.
_RETURNED_FIELDS: Final = ("code", "state", "id_token", "user", "error")
_MAX_FORM: Final = 16_384
#: For the answer of a browser.
_BROWSER_SECONDS: Final = 30.0
#: Sign-ins that have left for a provider.
_MAX_DEPARTURES: Final = 10_000
#: Why a sign-in at a provider failed, by the word in the URL.
_PROBLEMS: Final = {
    "cancelled": "The sign-in was cancelled.",
    "expired": "The sign-in took too long, or was begun in another browser. Try again.",
    "refused": "This account cannot sign in here.",
    "unavailable": "The sign-in service does not answer. Try again later.",
}
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


class Departure(NamedTuple):
    """A browser that is at a provider."""

    until: float
    provider: str
    state: str
    back: str  #: the URL it comes back to
    target: str  #: the page it wanted


class Departures:
    """By browser; the last one of each counts, once."""

    LIFE_SECONDS: Final = 900.0

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._departures: dict[str, Departure] = {}

    def begin(self, browser: str, provider: str, state: str, back: str, target: str) -> None:
        now = self._clock()
        if len(self._departures) >= _MAX_DEPARTURES:
            self._departures = {b: d for b, d in self._departures.items() if d.until > now}
            while len(self._departures) >= _MAX_DEPARTURES:
                del self._departures[next(iter(self._departures))]
        until = now + self.LIFE_SECONDS
        self._departures[browser] = Departure(until, provider, state, back, target)

    def end(self, browser: str) -> Departure | None:
        found = self._departures.pop(browser, None)
        return found if found is not None and found.until > self._clock() else None


class SignInPages:
    """The pages and routes of one authenticator."""

    def __init__(self, gate: Authenticator) -> None:
        self._gate = gate
        self._tickets = SignInTickets()
        self._departures = Departures()

    def install(self) -> None:
        page = ui.page(SIGN_IN_PATH, title="Sign in · Penstock", response_timeout=DRAW_SECONDS)
        page(self._page)
        app.add_route(_SIGNED_IN_PATH, self._done)
        app.add_route(SIGN_OUT_PATH, self._sign_out)
        if isinstance(self._gate, ProviderAuthenticator):
            app.add_route(RETURNED_PATH, self._returned)

    async def _page(self, request: Request) -> None:
        target = safe_redirect_path(request.query_params.get("next", "/"))
        address = request.client.host if request.client else "unknown"
        gate = self._gate
        first = None
        if isinstance(gate, FirstRunAuthenticator) and await gate.needs_administrator():
            if is_loopback(address):
                first = gate
            else:
                hint = "Nobody can sign in yet: create the administrator on the machine itself."
                ui.label(hint).classes("p-sign-in p-muted")
        form = SignInForm(self._gate, first, self._tickets, request.session["id"], address, target)
        with ui.column().classes("p-card p-sign-in"):
            form.draw()
            if isinstance(gate, ProviderAuthenticator) and first is None:
                for provider, called in gate.providers().items():
                    go = partial(self._leave, gate, provider, form)
                    ui.button(f"Continue with {called}", on_click=go).props("outline no-caps")
            if (problem := _PROBLEMS.get(request.query_params.get("problem", ""))) is not None:
                form.show_problem(problem)

    async def _leave(self, gate: ProviderAuthenticator, provider: str, form: SignInForm) -> None:
        origin = await ui.run_javascript("location.origin", timeout=_BROWSER_SECONDS)
        back = f"{origin}{RETURNED_PATH}"
        try:
            url, state = await gate.begin(provider, back)
        except PenstockError as error:
            form.show_problem(str(error))
            return
        self._departures.begin(form.browser, provider, state, back, form.target)
        ui.navigate.to(url)

    async def _returned(self, request: Request) -> Response:
        gate = self._gate
        assert isinstance(gate, ProviderAuthenticator)
        left = self._departures.end(request.session.get("id", ""))
        if left is None:
            return _to_sign_in("expired")
        if "error" in request.query_params:
            return _to_sign_in("cancelled", left.target)
        try:
            key = await gate.finish(left.provider, left.state, f"{left.back}?{request.url.query}")
        except AuthenticationFailed:
            key = None
        except PenstockError as error:
            log.warning("sign-in failed", provider=left.provider, error=str(error))
            return _to_sign_in("unavailable", left.target)
        if key is None:
            return _to_sign_in("refused", left.target)
        return await self._begin_session(request, key, left.target)

    async def _begin_session(self, request: Request, key: str, target: str) -> Response:
        if (before := session_key(request)) is not None:
            await self._gate.sign_out(before)
        request.session[_SESSION_KEY] = key
        return RedirectResponse(safe_redirect_path(target), 303)

    async def _done(self, request: Request) -> Response:
        query = request.query_params
        key = self._tickets.redeem(request.session["id"], query.get("ticket", ""))
        if key is None:
            return RedirectResponse(SIGN_IN_PATH, 303)
        return await self._begin_session(request, key, query.get("next", "/"))

    async def _sign_out(self, request: Request) -> Response:
        key = session_key(request)
        request.session.pop(_SESSION_KEY, None)
        if key is not None:
            await self._gate.sign_out(key)
        return RedirectResponse(SIGN_IN_PATH, 303)


class SignInForm:
    """Name and password; of the first administrator if `first` is given."""

    def __init__(
        self,
        gate: Authenticator,
        first: FirstRunAuthenticator | None,
        tickets: SignInTickets,
        browser: str,
        address: str,
        target: str,
    ) -> None:
        self.browser = browser
        self.target = target  #: the page that was wanted
        self._gate = gate
        self._first = first
        self._tickets = tickets
        self._address = address

    def draw(self) -> None:
        first = self._first is not None
        logo()
        ui.label("Create the administrator" if first else "Sign in").classes("p-h2")
        if first:
            about = "The database is empty. Whoever runs the installation signs in with this."
            ui.label(about).classes("p-muted")
        self._name = ui.input("E-mail address" if first else "Name")
        self._name.props("outlined autofocus autocomplete=username")
        self._password = ui.input("Password", password=True, password_toggle_button=True)
        self._password.props("outlined autocomplete=current-password")
        self._password.on("keydown.enter", self._submit)
        self._problem = ui.label().classes("p-bad-text").props("role=alert")
        self._problem.set_visibility(False)
        button = "Create" if first else "Sign in"
        ui.button(button, on_click=self._submit).props("unelevated no-caps")

    def show_problem(self, text: str) -> None:
        self._problem.set_text(text)
        self._problem.set_visibility(True)

    async def _submit(self) -> None:
        try:
            key = await self._key(self._name.value.strip(), self._password.value)
        except PenstockError as error:
            key, problem = None, str(error)
        else:
            problem = _WRONG_PASSWORD
        if key is None:
            self.show_problem(problem)
            self._password.set_value("")
            return
        ticket = self._tickets.issue(self.browser, key)
        target = self.target if self._first is None else self._first.first_page
        ui.navigate.to(f"{_SIGNED_IN_PATH}?ticket={ticket}&next={quote(target, safe='')}")

    async def _key(self, name: str, password: str) -> str | None:
        if self._first is not None:
            return await self._first.create_administrator(name, password)
        return await self._gate.sign_in(name, password, self._address)


def _to_sign_in(problem: str, target: str = "/") -> Response:
    query = urlencode({"problem": problem, "next": target})
    return RedirectResponse(f"{SIGN_IN_PATH}?{query}", 303)


async def form_as_query(request: Request) -> Response:
    """Answers `RETURNED_PATH` outside of sessions: the form comes without the cookie, and a new one
    would replace that of the browser."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _MAX_FORM:
            return PlainTextResponse(f"A form may have at most {_MAX_FORM:,} bytes.", 413)
    given = parse_qsl(body.decode("latin-1"), keep_blank_values=True)
    fields = {name: value for name, value in given if name in _RETURNED_FIELDS}
    if "state" not in fields or not fields.keys() & {"code", "error"}:
        return PlainTextResponse("state, and code or error must be given.", 422)
    headers = {"cache-control": "no-store"}
    return RedirectResponse(f"{RETURNED_PATH}?{urlencode(fields)}", 303, headers=headers)
