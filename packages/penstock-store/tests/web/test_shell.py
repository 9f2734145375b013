"""The frame around all pages, in a browser."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.web.browsing import NARROW, PATIENCE, looking, serving

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("shell")
    with serving("-m", "tests.web.shell_server", str(folder)) as url:
        yield url


@pytest.fixture
def page(browser: Browser, shell: str) -> Iterator[Page]:
    with looking(browser, shell) as opened:
        yield opened


def test_the_first_page_and_the_menu_lead_to_every_listed_page(page: Page) -> None:
    page.goto("/")
    expect(page.locator("nav .p-menu-item > div")).to_have_text(["Ponds", "Dry pond", "Vault"])
    page.get_by_text("Where the water is.").click()
    expect(page.get_by_role("heading", name="Ponds")).to_be_visible()
    expect(page.get_by_text("Ponds of anyone")).to_be_visible()
    expect(page.locator("[aria-current=page] > div")).to_have_text("Ponds")


def test_a_page_below_another_knows_its_parameters_and_the_way_back(page: Page) -> None:
    page.goto("/ponds/north?depth=3")
    expect(page.get_by_text("Pond north, depth 3")).to_be_visible()
    page.locator(".p-back").click()
    expect(page.get_by_text("Ponds of anyone")).to_be_visible()


def test_light_and_dark_are_chosen_and_remembered(page: Page) -> None:
    page.goto("/ponds")
    expect(page.locator("body.body--light")).to_be_visible()
    page.get_by_role("button", name="Colours: as the system").click()
    page.get_by_role("button", name="Colours: light").click()
    expect(page.locator("body.body--dark")).to_be_visible()
    page.reload()
    expect(page.get_by_role("button", name="Colours: dark")).to_be_visible()
    expect(page.locator("body.body--dark")).to_be_visible()


def test_on_a_narrow_screen_the_menu_is_behind_a_button(browser: Browser, shell: str) -> None:
    with looking(browser, shell, NARROW, "dark") as page:
        page.goto("/")
        expect(page.locator("body.body--dark")).to_be_visible()
        vault = page.get_by_role("navigation", name="Pages").get_by_role("link", name="Vault")
        expect(vault).to_be_hidden()
        page.get_by_role("button", name="Menu").click()
        vault.click()
        expect(page.get_by_text("Gold")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW[0]


def test_a_page_that_fails_says_why(page: Page) -> None:
    page.goto("/dry")
    expect(page.get_by_text("the pond has no water; open the gate")).to_be_visible()


def test_a_page_that_is_not_there_says_so(page: Page) -> None:
    answer = page.goto("/nowhere")
    assert answer is not None
    assert answer.status == 404
    expect(page.get_by_text("There is no page at /nowhere.")).to_be_visible()


def test_without_a_gate_downloads_are_for_everyone(shell: str) -> None:
    assert httpx.get(f"{shell}/levels.csv", timeout=60).text == "pond,level\nnorth,3\n"


def test_names_and_sites_that_are_not_ours_are_refused(shell: str) -> None:
    upgrade = {"connection": "Upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
    upgrade |= {"sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==", "origin": "http://localhost:1"}
    sockets = f"{shell}/_nicegui_ws/socket.io/?EIO=4&transport=websocket"

    assert httpx.get(shell, headers={"host": "rebound.example"}).status_code == 403
    assert httpx.get(sockets, headers=upgrade).status_code == 403
    assert httpx.get(shell, timeout=60).status_code == 200
