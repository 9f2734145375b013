"""The picture of the overlay that a broker serves, in a browser."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

pytest.importorskip("playwright", reason="playwright is not installed; `make test` installs it")

from playwright.sync_api import Browser, Locator, Page, expect

from tests.web.browsing import NARROW, PATIENCE, looking, serving
from tests.web.overlay_server import NEIGHBOURS

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]
expect.set_options(timeout=PATIENCE)

#: In units of the picture; where nothing passes it is 1.5.
THICK = re.compile(r"^([3-9]|1\d)(\.|$)")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("overlay")
    with serving("-m", "tests.web.overlay_server", str(folder)) as url:
        yield url


@pytest.fixture
def page(browser: Browser, brokers: str) -> Iterator[Page]:
    with looking(browser, brokers) as opened:
        sign_in(opened)
        yield opened


def sign_in(page: Page) -> None:
    """And wait until all brokers have been heard of."""
    page.goto("/overlay")
    page.get_by_label("User").fill("guest")
    page.get_by_label("Password").fill("guest")
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("#summary")).to_contain_text("4 brokers, 3 links")


def broker(page: Page, name: str) -> Locator:
    return page.locator(f"[data-broker={name}]")


def facts(page: Page) -> Locator:
    return page.locator("aside dl")


def test_a_wrong_password_is_told_and_shows_nothing(browser: Browser, brokers: str) -> None:
    with looking(browser, brokers) as page:
        page.goto("/overlay")
        page.get_by_label("User").fill("guest")
        page.get_by_label("Password").fill("wrong")
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("alert")).not_to_be_empty()
        expect(page.get_by_role("button", name="Log in")).to_be_visible()
        expect(page.locator("main")).to_be_hidden()


def test_all_brokers_are_drawn_and_listed_with_links_that_are_up(page: Page) -> None:
    expect(page.locator(".broker text")).to_have_text(sorted(NEIGHBOURS))
    expect(page.locator("aside tbody tr")).to_have_count(len(NEIGHBOURS))
    expect(page.locator(".link")).to_have_count(3)
    expect(page.locator(".link.down")).to_have_count(0)


def test_a_link_is_as_thick_as_it_is_busy_whatever_else_is_done(page: Page) -> None:
    """What is drawn again between two looks is of the same look."""
    link = page.locator(".link").first
    expect(link).to_have_attribute("stroke-width", THICK)
    broker(page, "B3").click(force=True)
    assert THICK.match(link.get_attribute("stroke-width") or "")


@pytest.mark.parametrize("layout", ["circle", "tree", "grid", "springs"])
def test_however_it_is_drawn_nobody_stands_on_another_or_outside(page: Page, layout: str) -> None:
    page.locator("#layout").select_option(layout)
    frame = page.locator("#picture").bounding_box()
    assert frame is not None
    places = []
    for name in NEIGHBOURS:
        box = broker(page, name).locator("circle:not(.client)").bounding_box()
        assert box is not None
        assert frame["x"] <= box["x"] <= frame["x"] + frame["width"] - box["width"]
        assert frame["y"] <= box["y"] <= frame["y"] + frame["height"] - box["height"]
        places.append((box["x"], box["y"]))
    for number, (x, y) in enumerate(places):
        assert all(abs(x - a) + abs(y - b) > 40 for a, b in places[:number])


def test_a_broker_is_chosen_by_keyboard_and_stays_in_focus(page: Page) -> None:
    broker(page, "B3").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="B3")).to_be_visible()
    expect(facts(page)).to_contain_text("neighboursBroker1")
    with page.expect_response(re.compile("/api/overlay$")):
        pass  # it is looked at again, and drawn again
    expect(broker(page, "B3")).to_be_focused()
    expect(broker(page, "B3")).to_have_attribute("aria-pressed", "true")
    page.get_by_role("button", name="All brokers").click()
    expect(page.locator("aside tbody tr")).to_have_count(len(NEIGHBOURS))


def test_what_a_broker_has_heard_is_shown(page: Page) -> None:
    page.locator("aside").get_by_role("button", name="B3", exact=True).click()
    page.get_by_text("Subscriptions", exact=True).click()
    expect(page.locator("aside details[open] pre")).to_contain_text("[class,eq,stock]")


def test_clients_are_shown_or_not(page: Page) -> None:
    expect(broker(page, "B3").locator("circle.client")).not_to_have_count(0)
    page.get_by_label("clients").uncheck()
    expect(page.locator("circle.client")).to_have_count(0)


def test_a_broker_is_stopped_and_resumed(page: Page) -> None:
    page.locator("aside").get_by_role("button", name="B4", exact=True).click()
    for command, status in (("Stop", "stopped"), ("Resume", "running")):
        page.locator("aside").get_by_role("button", name=command).click()
        expect(page.locator("aside .pill")).to_have_text(status)
        expect(broker(page, "B4")).to_have_attribute("aria-label", f"B4, {status}")


def test_on_a_phone_the_picture_is_above_and_as_wide_as_the_page(
    browser: Browser, brokers: str
) -> None:
    with looking(browser, brokers, NARROW, "dark") as page:
        sign_in(page)
        picture = page.locator("#picture").bounding_box()
        aside = page.locator("aside").bounding_box()
        assert picture is not None
        assert aside is not None
        assert picture["width"] == NARROW[0]
        assert aside["y"] >= picture["y"] + picture["height"]
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW[0]
