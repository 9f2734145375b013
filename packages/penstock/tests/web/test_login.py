"""Sign-in at a token issuer in Chromium: there, back, and on when the token expires."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("playwright", reason="playwright is not installed; `make test` installs it")

from playwright.sync_api import Browser, expect

from penstock.core.config import BrokerSettings, OAuth2Settings
from penstock.server.broker import Broker
from tests.broker.auth.issuer import CLIENT, RESOURCE, Issuer, serve
from tests.web.browsing import PATIENCE, looking

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    issuer = Issuer()
    with serve(issuer):
        yield issuer


@pytest.fixture(scope="module")
def url(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a broker in a thread: the browser has the loop of this one."""
    oauth2 = OAuth2Settings(
        resource_server_id=RESOURCE, issuer=issuer.url, client_id=CLIENT, clock_skew=0
    )
    settings = BrokerSettings(
        listen=["http://127.0.0.1:0"], auth_backends=["oauth2", "internal"], oauth2=oauth2
    )
    ready, stop = threading.Event(), threading.Event()
    found: list[str] = []

    async def serve_console(data: Path) -> None:
        async with Broker(settings, data=data) as broker:
            found.extend(broker.addresses)
            ready.set()
            await asyncio.to_thread(stop.wait)

    data = tmp_path_factory.mktemp("login")
    thread = threading.Thread(target=lambda: asyncio.run(serve_console(data)))
    thread.start()
    try:
        assert ready.wait(60)
        yield found[0]
    finally:
        stop.set()
        thread.join()


def test_a_user_signs_in_at_the_issuer_and_the_session_outlives_the_token(
    browser: Browser, url: str, issuer: Issuer
) -> None:
    issuer.first_seconds = 1
    with looking(browser, url) as page:
        page.goto("/#/queues")
        page.get_by_role("button", name=f"Sign in with {issuer.url.split('/')[2]}").click()
        expect(page).to_have_title("Issuer")
        page.get_by_role("link", name="Sign in as ada").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
        expect(page.locator("header .user")).to_have_text("ada")
        assert page.url == f"{url}/#/queues"  # the code is not in the history
        page.wait_for_function("sessionStorage.getItem('penstock.refresh') === 'refresh-1'")
        page.evaluate("location.hash = '#/users'")
        expect(page.get_by_role("heading", level=1)).to_have_text("Users")
        expect(page.get_by_role("cell", name="guest")).to_be_visible()
        deadline = time.monotonic() + PATIENCE / 1000
        while not issuer.refreshed and time.monotonic() < deadline:
            # The calls of a page find that the token has expired.
            page.wait_for_timeout(200)
            page.evaluate("location.hash = location.hash === '#/users' ? '#/queues' : '#/users'")
        assert issuer.refreshed
        page.evaluate("location.hash = '#/vhosts'")
        expect(page.get_by_role("heading", level=1)).to_have_text("Virtual hosts")
        page.get_by_role("button", name="Sign out").click()
        expect(page.get_by_role("button", name="Sign in", exact=True)).to_be_visible()
        assert page.evaluate("sessionStorage.length") == 0


def test_an_answer_that_was_not_asked_for_is_refused(browser: Browser, url: str) -> None:
    with looking(browser, url) as page:
        page.goto("/?code=stolen&state=guessed")
        expect(page.get_by_role("alert")).to_have_text(
            "The sign-in did not begin in this window: try again"
        )
        assert page.url == f"{url}/"
