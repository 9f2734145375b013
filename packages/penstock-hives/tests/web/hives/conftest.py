"""One site for all tests of the public page, one dashboard for all tests of a module."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, StorageState, expect

from tests.databases import copy_of
from tests.fixtures import running
from tests.hives.app.sites import furnish
from tests.peers import Penstock
from tests.web.browsing import serving
from tests.web.hives.business import Business, furnish_business, sign_in
from tests.web.hives.public_site import HIVES, Site, listening
from tests.web.hives.screens import DESKTOP, Screen, looking, on_screen


@pytest.fixture(scope="session")
def screen(request: pytest.FixtureRequest) -> Iterator[Screen]:
    """What `looking` opens: a desktop unless a module asks for `SCREENS`."""
    shown: Screen = getattr(request, "param", DESKTOP)
    with on_screen(shown):
        yield shown


@pytest.fixture(scope="session")
def site(
    screen: Screen, embedded_template: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    folder: Path = tmp_path_factory.mktemp("site")
    words = ("-m", "penstock", "hives", "serve", "--port", "0", "--workers", "1")
    with (
        pytest.MonkeyPatch.context() as environment,
        running(Penstock(folder / "broker")) as broker,
        copy_of(embedded_template) as database,
    ):
        furnish(database, HIVES)
        # Tests sign in more often than people do, and have push services of their own.
        environment.setenv("PENSTOCK_HIVES_RATE_ANONYMOUS", "1000")
        environment.setenv("PENSTOCK_HIVES_RATE_ACCOUNTS", "100000")
        environment.setenv("PENSTOCK_HIVES_PUSH_LOCAL", "true")
        settings = folder / "site.toml"
        settings.write_text("[site]\nrefresh = 2.0\n")  # what is changed is soon shown
        reaching = (
            "--site",
            str(settings),
            "--url",
            broker.url,
            "--database",
            database,
            "--data",
            str(folder),
        )
        with serving(*words, *reaching, "--stop-with-stdin") as url:
            listening(url)
            yield Site(url, broker.url, database, folder, count(2))


@pytest.fixture(scope="module")
def business(
    screen: Screen,
    embedded_template: str,
    penstock: Penstock,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Business]:
    folder: Path = tmp_path_factory.mktemp("business")
    server = "tests.web.hives.business_server"
    with copy_of(embedded_template) as database:
        furnish_business(database, folder)
        management = penstock.http_url.replace("://", "://guest:guest@")
        with serving("-m", server, str(folder), database, penstock.url, management) as url:
            yield Business(url, penstock.url, database, folder)


@pytest.fixture(scope="module")
def ada(browser: Browser, business: Business) -> StorageState:
    """What a browser has kept of somebody who has signed in."""
    with looking(browser, business.url) as page:
        sign_in(page, "/hives/sensors")
        expect(page.get_by_text("door-2")).to_be_visible()
        return page.context.storage_state()


@pytest.fixture
def page(browser: Browser, business: Business, ada: StorageState) -> Iterator[Page]:
    """Ada's."""
    with looking(browser, business.url, known=ada) as opened:
        yield opened


@pytest.fixture
def stranger(browser: Browser, business: Business) -> Iterator[Page]:
    with looking(browser, business.url) as opened:
        yield opened
