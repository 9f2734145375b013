"""The public page in a browser, served as people have it: every view, live, on a phone, by keys."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.hives.app.sites import CLOSED
from tests.web.browsing import NARROW, PATIENCE
from tests.web.contrast import faint
from tests.web.hives.public_site import HIVES, Site
from tests.web.hives.screens import SCREENS, looking

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(600),
    pytest.mark.parametrize("screen", SCREENS, indirect=True, scope="session"),
]
expect.set_options(timeout=PATIENCE)


@pytest.fixture
def page(browser: Browser, site: Site) -> Iterator[Page]:
    with looking(browser, site.url) as opened:
        yield opened


def card(page: Page, hive: int) -> Any:
    return page.locator(f"[data-hive='{hive}']")


def fits(page: Page) -> bool:
    found: bool = page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    return found


def test_places_are_listed_with_how_busy_they_are(page: Page) -> None:
    page.goto("/")
    expect(page.get_by_role("heading", level=1)).to_have_text("How busy is it right now?")
    expect(page.locator(".place")).to_have_count(HIVES)
    expect(card(page, 1)).to_contain_text("Quiet")
    expect(card(page, HIVES)).to_contain_text("No data")


def test_a_closed_place_says_when_it_opens_and_nothing_else(page: Page, site: Site) -> None:
    said = re.compile(r"Closed, opens \w+ 08:30")
    for path, shown in (("/", card(page, CLOSED)), (f"/#/hive/{CLOSED}", page.locator(".hero"))):
        page.goto(path)
        expect(shown.locator(".says")).to_have_text(said)
        expect(shown.locator(".cell b")).to_have_text("–")
        site.tell(CLOSED, 1, percent=1.0, level="quiet", as_of=datetime.now(UTC).isoformat())
        expect(page.locator("#pulse")).to_have_text("Live")
        expect(shown.locator(".says")).to_have_text(said)
        assert not re.search(r"%|quiet|inside", shown.inner_text(), re.IGNORECASE)
    found = site.call("GET", "/hives?sort=quiet")["items"]
    assert [hive["id"] for hive in found if not hive["open_now"]] == [found[-1]["id"]] == [CLOSED]


def test_a_figure_arrives_without_reload(page: Page, site: Site) -> None:
    page.goto("/")
    page.evaluate("window.sameVisit = true")
    site.tell(2, 160, percent=94.0, level="busy", as_of=datetime.now(UTC).isoformat())
    expect(page.locator("#pulse")).to_have_text("Live")
    expect(card(page, 2)).to_contain_text("Busy")
    expect(card(page, 2)).to_contain_text("94%")
    assert page.evaluate("window.sameVisit")


def test_live_is_not_said_of_data_that_does_not_come(page: Page, site: Site) -> None:
    site.tell(5, 8, percent=11.0, level="quiet")
    page.clock.install()
    page.goto("/")
    site.tell(5, 9, percent=12.0, level="quiet", as_of=datetime.now(UTC).isoformat())
    expect(page.locator("#pulse")).to_have_text("Live")
    page.clock.fast_forward(150_000)
    expect(page.locator("#pulse")).to_have_text("Last data 3 min. ago")
    expect(page.locator("#pulse")).to_have_attribute("data-state", "late")


def test_a_place_nobody_hears_of_reads_silent_and_not_empty(page: Page, site: Site) -> None:
    page.goto("/#/hive/3")
    expect(page.get_by_role("heading", level=1)).to_have_text("Birch Store")
    site.tell(3, 9, percent=6.0, level=None, quality="stale")
    expect(page.locator(".hero")).to_contain_text("No current data")
    expect(page.locator(".hero")).not_to_contain_text("Quiet")


def test_a_place_shows_its_day_its_hours_and_its_deals(page: Page) -> None:
    page.goto("/")
    page.get_by_role("link", name="Amber Café").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Amber Café")
    expect(page.locator("svg.chart .bar").first).to_be_visible()
    expect(page.locator("svg.chart .line")).to_be_visible()
    page.get_by_role("button", name="Monday").click()
    expect(page.get_by_role("button", name="Monday")).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_text("Two for one")).to_be_visible()
    expect(page.get_by_text("Strada Lipscani 1")).to_be_visible()


def test_deals_lead_to_their_places(page: Page) -> None:
    page.goto("/#/deals")
    expect(page.locator(".deal")).to_have_count(2)
    page.locator(".deal").get_by_role("link", name="Amber Café").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Amber Café")


def test_a_deal_that_was_told_opens_by_its_link_and_leads_to_its_place(page: Page) -> None:
    page.goto("/#/deal/1")
    expect(page.get_by_role("heading", level=1)).to_have_text("Amber Café")
    expect(page.locator(".deal")).to_contain_text("Two for one")
    page.locator(".deal").get_by_role("link", name="Amber Café").click()
    expect(page.get_by_text("Good to know")).to_be_visible()
    page.goto("/#/deal/999")
    expect(page.get_by_text("This page does not exist any more.")).to_be_visible()


def test_places_are_found_by_name_zip_type_and_nearness(browser: Browser, site: Site) -> None:
    with looking(browser, site.url) as page:
        page.context.grant_permissions(["geolocation"])
        page.context.set_geolocation({"latitude": 51.5, "longitude": -0.12})
        page.goto("/")
        search = page.get_by_role("searchbox")
        search.fill("birch")
        expect(page.locator(".place")).to_have_count(1)
        search.fill("0300")
        expect(page.locator(".place h2")).to_have_text(["Amber Café"])
        search.fill("nowhere at all")
        expect(page.get_by_text("Nothing matches")).to_be_visible()
        search.fill("")
        page.get_by_role("button", name="Restaurant", exact=True).click()
        expect(page.locator(".place")).to_have_count(1)
        page.get_by_role("button", name="All", exact=True).click()
        page.get_by_role("button", name="Near me").click()
        expect(page.locator(".place h2").first).to_have_text("Anchor Restaurant")  # in London
        expect(page.locator(".place").first).to_contain_text("km")


def test_favourites_are_kept_on_the_device(page: Page) -> None:
    page.goto("/")
    page.get_by_role("button", name="Favourite: Cedar Supermarket").click()
    page.goto("/#/favourites")
    expect(page.locator("main > .places h2")).to_have_text(["Cedar Supermarket"])
    page.reload()
    expect(page.locator("main > .places h2")).to_have_text(["Cedar Supermarket"])


def test_the_page_works_by_keys_alone(page: Page) -> None:
    page.goto("/")
    expect(page.locator(".place")).to_have_count(HIVES)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to places")).to_be_focused()
    page.get_by_role("link", name="Amber Café").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Amber Café")
    expect(page.locator("main")).to_be_focused()


def test_the_focus_stays_where_it_is_when_the_list_is_drawn_again(page: Page) -> None:
    page.clock.install()
    page.goto("/")
    expect(page.locator(".place")).to_have_count(HIVES)
    page.clock.pause_at(datetime.now(UTC) + timedelta(minutes=1))
    search = page.get_by_role("searchbox")
    birch = page.get_by_role("link", name="Birch Store")
    search.fill("birch")
    birch.focus()  # before the list is drawn again, which a timer does
    page.clock.run_for(1_000)
    expect(page.locator(".place")).to_have_count(1)
    expect(birch).to_be_focused()

    page.get_by_role("button", name="Restaurant", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("Nothing matches")).to_be_visible()
    expect(page.get_by_role("button", name="Restaurant", exact=True)).to_be_focused()
    page.keyboard.press("Enter")
    expect(birch).to_be_visible()

    search.fill("cedar")
    birch.focus()
    page.clock.run_for(1_000)
    expect(page.locator(".place h2")).to_have_text(["Cedar Supermarket"])
    expect(page.locator("main")).to_be_focused()  # what had the focus is not there any more
    page.clock.resume()


def test_who_searches_from_another_view_stays_in_the_field(page: Page) -> None:
    page.goto("/#/hive/1")
    expect(page.get_by_role("heading", level=1)).to_have_text("Amber Café")
    search = page.get_by_role("searchbox")
    search.press_sequentially("birch")
    expect(page.locator(".place h2")).to_have_text(["Birch Store"])
    expect(page.locator("[data-tab=places]")).to_have_attribute("aria-current", "page")
    expect(search).to_be_focused()
    expect(search).to_have_value("birch")


def test_everything_that_can_be_pressed_has_a_name(page: Page) -> None:
    for path in ("/", "/#/hive/1", "/#/deals"):
        page.goto(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        nameless = page.evaluate(
            """() => [...document.querySelectorAll("button, a, input, select, [role=img]")]
                .filter((each) => !(each.textContent.trim() || each.getAttribute("aria-label")
                    || each.labels?.length)).map((each) => each.outerHTML)"""
        )
        assert nameless == []


@pytest.mark.parametrize("shade", ["light", "dark"])
def test_the_page_fits_a_phone_by_day_and_by_night(
    browser: Browser, site: Site, shade: str
) -> None:
    with looking(browser, site.url, NARROW, shade) as page:
        for path in ("/", "/#/hive/1", "/#/deals", "/#/favourites"):
            page.goto(path)
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            assert fits(page)
            assert faint(page) == []
        assert _brightness(page) < 60 if shade == "dark" else _brightness(page) > 200
        page.get_by_role("button", name="Switch between light and dark").click()
        assert _brightness(page) > 200 if shade == "dark" else _brightness(page) < 60
        page.reload()  # what was chosen is kept
        assert _brightness(page) > 200 if shade == "dark" else _brightness(page) < 60


def _brightness(page: Page) -> float:
    colour = page.evaluate("getComputedStyle(document.body).backgroundColor")
    red, green, blue = (int(part) for part in colour[4:-1].split(","))
    return (red + green + blue) / 3


def test_where_streams_do_not_get_through_the_page_asks_again(page: Page, site: Site) -> None:
    def no_streams(route: Route) -> None:
        if "event-stream" in route.request.headers.get("accept", ""):
            route.abort()
        else:
            route.continue_()

    page.route("**/v1/live", no_streams)
    page.clock.install()
    page.goto("/")
    expect(page.locator(".place")).to_have_count(HIVES)
    site.tell(4, 55, percent=77.0, level="busy")
    deadline = time.monotonic() + PATIENCE / 1000
    while "77%" not in card(page, 4).inner_text():
        assert time.monotonic() < deadline
        page.clock.fast_forward("00:10")  # it asks every few seconds
        page.wait_for_timeout(100)
