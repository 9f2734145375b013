"""Who may see what, where there is a gate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from penstock_store.dashboard.pages import safe_redirect_path
from penstock_store.dashboard.sign_in import SignInTickets
from tests.web.browsing import PATIENCE, looking, serving, sign_out

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]
expect.set_options(timeout=PATIENCE)


@dataclass(frozen=True)
class Gated:
    url: str
    folder: Path


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gated]:
    folder = tmp_path_factory.mktemp("gated")
    with serving("-m", "tests.web.shell_server", str(folder), "--gated") as url:
        yield Gated(url, folder)


@pytest.fixture
def page(browser: Browser, gated: Gated) -> Iterator[Page]:
    with looking(browser, gated.url) as opened:
        yield opened


def sign_in(page: Page, name: str, password: str) -> None:
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_role("button", name="Sign in").click()


def test_who_is_not_known_is_asked_and_then_sees_what_they_came_for(page: Page) -> None:
    page.goto("/vault")
    sign_in(page, "ada", "babbage")
    expect(page.get_by_role("alert")).to_be_visible()
    sign_in(page, "ada", "lovelace")
    expect(page.get_by_text("Gold")).to_be_visible()


def test_a_page_for_another_role_is_refused_and_not_in_the_menu(page: Page) -> None:
    page.goto("/vault")
    sign_in(page, "bob", "builder")
    expect(page.get_by_text("Not permitted")).to_be_visible()
    expect(page.get_by_text("Gold")).to_have_count(0)
    expect(page.locator("nav .p-menu-item > div")).to_have_text(["Ponds", "Dry pond"])


def test_a_role_that_is_taken_away_is_gone_at_the_next_click(page: Page, gated: Gated) -> None:
    page.goto("/vault")
    sign_in(page, "ada", "lovelace")
    expect(page.get_by_text("Gold")).to_be_visible()
    revoked = gated.folder / "revoked"
    revoked.touch()
    try:
        page.reload()
        expect(page.get_by_text("Not permitted")).to_be_visible()
    finally:
        revoked.unlink()


def test_who_signs_out_is_asked_again(page: Page) -> None:
    page.goto("/ponds")
    sign_in(page, "bob", "builder")
    expect(page.get_by_text("Ponds of Bob")).to_be_visible()
    page.get_by_role("button", name="Account").click()
    page.get_by_text("Sign out").click()
    expect(page.get_by_label("Name")).to_be_visible()
    page.goto("/ponds")
    expect(page.get_by_label("Name")).to_be_visible()


def session(page: Page) -> dict[str, str]:
    """The cookie, as another browser would show it."""
    return {each["name"]: each["value"] for each in page.context.cookies()}


def test_a_cookie_from_before_a_sign_in_is_not_signed_in(page: Page, gated: Gated) -> None:
    page.goto("/vault")
    before = session(page)
    sign_in(page, "ada", "lovelace")
    expect(page.get_by_text("Gold")).to_be_visible()
    after = session(page)
    levels = f"{gated.url}/levels.csv"
    assert httpx.get(levels, cookies=before, timeout=60).status_code == 303
    assert httpx.get(levels, cookies=after, timeout=60).status_code == 200


def test_a_cookie_from_before_a_sign_out_is_signed_out(page: Page, gated: Gated) -> None:
    page.goto("/vault")
    sign_in(page, "ada", "lovelace")
    expect(page.get_by_text("Gold")).to_be_visible()
    kept = session(page)
    sign_out(page)
    expect(page.get_by_label("Name")).to_be_visible()
    assert httpx.get(f"{gated.url}/levels.csv", cookies=kept, timeout=60).status_code == 303


def test_a_session_that_is_ended_elsewhere_ends_with_its_open_pages(
    page: Page, gated: Gated
) -> None:
    page.goto("/vault")
    sign_in(page, "ada", "lovelace")
    expect(page.get_by_text("Gold")).to_be_visible()
    reset = gated.folder / "reset"
    reset.touch()
    try:
        expect(page.get_by_label("Name")).to_be_visible()
        expect(page.get_by_text("Gold")).to_have_count(0)
    finally:
        reset.unlink()


def test_a_ticket_is_good_once_for_one_browser_for_a_minute() -> None:
    now = 0.0
    tickets = SignInTickets(lambda: now)
    first, second, third = (tickets.issue("here", f"key {each}") for each in range(3))
    assert tickets.redeem("elsewhere", first) is None
    assert tickets.redeem("here", first) is None
    assert tickets.redeem("here", second) == "key 1"
    assert tickets.redeem("here", second) is None
    now = 61.0
    assert tickets.redeem("here", third) is None


def test_files_are_behind_the_same_gate(gated: Gated) -> None:
    answer = httpx.get(f"{gated.url}/levels.csv", timeout=60)
    assert answer.status_code == 303
    assert answer.headers["location"] == "/sign-in?next=/levels.csv"


@pytest.mark.parametrize("text", ["//evil.test", "https://evil.test", "/\\evil.test", "x", ""])
def test_nobody_is_led_to_another_site_after_signing_in(text: str) -> None:
    assert safe_redirect_path(text) == "/"
    assert safe_redirect_path("/jobs?page=2") == "/jobs?page=2"
