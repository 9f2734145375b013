"""Sign-in to the dashboards with accounts of Google and Apple, where Firebase is the issuer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from penstock_store import Database
from penstock_store.dashboard.sign_in import Departures
from tests.databases import copy_of
from tests.peers import Penstock
from tests.web.browsing import PATIENCE, serving, sign_out
from tests.web.hives.business import furnish_business
from tests.web.hives.firebase_accounts import FirebaseAccounts, firebase_accounts
from tests.web.hives.screens import SCREENS, Screen, looking

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]
expect.set_options(timeout=PATIENCE)


@dataclass(frozen=True)
class Dashboards:
    url: str
    firebase: FirebaseAccounts


@pytest.fixture(scope="module")
def dashboards(
    embedded_template: str,
    penstock: Penstock,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Dashboards]:
    folder: Path = tmp_path_factory.mktemp("firebase")
    with (
        copy_of(embedded_template) as database,
        pytest.MonkeyPatch.context() as environment,
    ):
        furnish_business(database, folder)
        with Database(database) as opened, opened.transaction() as connection:
            found = connection.execute("SELECT firebase_uid FROM app_user WHERE nickname = 'Ada'")
            [ada] = found.fetchall()
        with firebase_accounts(ada["firebase_uid"], folder) as firebase:
            for name, value in firebase.environment().items():
                environment.setenv(name, value)
            server = "tests.web.hives.business_server"
            with serving("-m", server, str(folder), database, penstock.url) as url:
                yield Dashboards(url, firebase)


@pytest.fixture
def page(screen: Screen, browser: Browser, dashboards: Dashboards) -> Iterator[Page]:
    dashboards.firebase.asked.clear()
    with looking(browser, dashboards.url) as opened:
        yield opened


@pytest.mark.parametrize("screen", SCREENS, indirect=True, scope="session")
@pytest.mark.parametrize(("name", "provider"), [("Google", "google.com"), ("Apple", "apple.com")])
def test_an_account_of_a_provider_signs_in_and_is_where_it_wanted_to_be(
    page: Page, dashboards: Dashboards, name: str, provider: str
) -> None:
    page.goto("/hives/deals")
    page.get_by_role("button", name=f"Continue with {name}").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Deals")
    expect(page.get_by_text("New deal")).to_be_visible()  # Ada's business
    assert page.url == f"{dashboards.url}/hives/deals"
    (first, asked), (second, returned) = dashboards.firebase.asked[:2]
    assert (first, second) == ("accounts:createAuthUri", "accounts:signInWithIdp")
    assert asked["continueUri"] == f"{dashboards.url}/sign-in/returned"
    assert returned["requestUri"].startswith(f"{dashboards.url}/sign-in/returned?code=c0de&state=s")
    assert returned["postBody"].endswith(f"&providerId={provider}")
    assert "other" not in returned["postBody"]
    sign_out(page)
    expect(page.get_by_role("button", name=f"Continue with {name}")).to_be_visible()


@pytest.mark.parametrize("screen", SCREENS, indirect=True, scope="session")
def test_who_turns_back_at_the_provider_is_told_and_may_try_again(
    page: Page, dashboards: Dashboards
) -> None:
    dashboards.firebase.is_cancelled = True
    try:
        page.goto("/hives/deals")
        page.get_by_role("button", name="Continue with Google").click()
        expect(page.get_by_role("alert")).to_have_text("The sign-in was cancelled.")
    finally:
        dashboards.firebase.is_cancelled = False
    page.get_by_role("button", name="Continue with Google").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Deals")


def test_a_token_of_another_issuer_is_refused(page: Page, dashboards: Dashboards) -> None:
    right = dashboards.firebase.issuer
    dashboards.firebase.issuer = "https://securetoken.google.com/wasps"
    try:
        page.goto("/hives/deals")
        page.get_by_role("button", name="Continue with Google").click()
        expect(page.get_by_role("alert")).to_have_text("This account cannot sign in here.")
    finally:
        dashboards.firebase.issuer = right
    page.goto("/hives/deals")
    expect(page.get_by_label("Name")).to_be_visible()


def test_a_return_that_nobody_left_for_signs_nobody_in(page: Page, dashboards: Dashboards) -> None:
    """Somebody else's link, opened in this browser."""
    page.goto("/sign-in/returned?code=c0de&state=s")
    expect(page.get_by_role("alert")).to_contain_text("begun in another browser")
    assert dashboards.firebase.asked == []


@pytest.mark.parametrize(
    ("form", "status"),
    [({}, 422), ({"code": "c"}, 422), ({"state": "s"}, 422), ({"state": "s" * 17_000}, 413)],
)
def test_other_forms_are_refused(dashboards: Dashboards, form: dict[str, str], status: int) -> None:
    answer = httpx.post(f"{dashboards.url}/sign-in/returned", data=form, timeout=60)
    assert answer.status_code == status


def test_a_departure_ends_once_for_its_browser_within_a_quarter_of_an_hour() -> None:
    now = 0.0
    departures = Departures(lambda: now)
    departures.begin("here", "google.com", "old", "back", "/old")
    departures.begin("here", "google.com", "held", "back", "/deals")
    assert departures.end("elsewhere") is None
    left = departures.end("here")
    assert left is not None
    assert (left.state, left.target) == ("held", "/deals")
    assert departures.end("here") is None
    departures.begin("here", "google.com", "held", "back", "/deals")
    now = 901.0
    assert departures.end("here") is None
