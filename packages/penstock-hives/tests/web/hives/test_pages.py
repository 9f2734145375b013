"""The business dashboard in a browser: every view, live figures, who may see it, how it looks."""

from __future__ import annotations

import csv
import time
from collections.abc import Iterator
from dataclasses import dataclass
from io import StringIO
from itertools import count
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, StorageState, expect

from penstock.client.blocking_client import connect
from penstock_hives.occupancy.publisher import EXCHANGE
from penstock_store import Database
from tests.databases import copy_of
from tests.hives.app.public.snapshots import document
from tests.peers import Penstock
from tests.web.browsing import NARROW, PATIENCE, looking, serving
from tests.web.contrast import faint
from tests.web.hives.business import ADA, BOB, PASSWORD, furnish_business

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]
expect.set_options(timeout=PATIENCE)


_INVITE = """
    INSERT INTO account_invitation (account_id, user_id, role, created_at, expires_at)
    SELECT h.account_id, u.id, 'account_member', now(), now() + interval '1 day'
    FROM hive h, app_user u WHERE h.id = 1 AND u.nickname = 'Bob'
"""
_LEAVE = """
    WITH bob AS (UPDATE app_user SET role = 'user' WHERE nickname = 'Bob' RETURNING id)
    DELETE FROM account_member WHERE user_id IN (SELECT id FROM bob)
"""


@dataclass(frozen=True)
class Business:
    url: str
    broker: str
    database: str


@pytest.fixture(scope="module")
def business(
    embedded_template: str, penstock: Penstock, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Business]:
    folder: Path = tmp_path_factory.mktemp("business")
    server = "tests.web.hives.business_server"
    with copy_of(embedded_template) as database:
        furnish_business(database, folder)
        with serving("-m", server, str(folder), database, penstock.url) as url:
            yield Business(url, penstock.url, database)


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


def sign_in(page: Page, path: str, login: str = ADA) -> None:
    page.goto(path)
    page.get_by_label("Name").fill(login)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()


def no_wider_than_its_window(page: Page) -> bool:
    found: bool = page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    return found


def test_who_comes_first_signs_in_and_is_where_they_wanted_to_be(stranger: Page) -> None:
    sign_in(stranger, "/hives/deals")
    expect(stranger.get_by_role("heading", level=1)).to_have_text("Deals")


def test_the_overview_shows_figures_places_and_what_stands_out(page: Page) -> None:
    page.goto("/hives")
    expect(page.get_by_text("people inside now")).to_be_visible()
    expect(page.get_by_role("link", name="Amber Café")).to_be_visible()
    expect(page.get_by_text("Tuesdays after three are quiet")).to_be_visible()


def test_a_figure_arrives_without_reload(page: Page, business: Business) -> None:
    page.goto("/hives")
    inside = page.locator("[data-inside='1']")
    expect(inside).to_have_text("4 of 30")
    deadline = time.monotonic() + PATIENCE / 1000
    versions = count(7)
    with connect(business.broker) as fabric:
        while inside.text_content() != "29 of 30":  # the page's server may not listen yet
            assert time.monotonic() < deadline
            told = document(1, next(versions), people=29)
            fabric.publish("occupancy.1", told, exchange=EXCHANGE)
            page.wait_for_timeout(250)
    expect(page.locator("[data-level='1']")).to_have_text("busy")


def test_a_place_shows_today_its_week_its_days_and_its_doors(page: Page) -> None:
    page.goto("/hives/place/1")
    expect(page.get_by_role("heading", level=1)).to_have_text("Amber Café")
    expect(page).to_have_title("Amber Café · Penstock")
    for chart in ("today", "week", "days"):
        expect(page.locator(f"[data-chart={chart}] svg").first).to_be_visible()
    expect(page.get_by_text("Number 2 of 7 places of its type")).to_be_visible()
    expect(page.get_by_text("Two for one")).to_be_visible()
    expect(page.get_by_text("side door")).to_be_visible()
    expect(page.get_by_text("stale")).to_be_visible()


def test_two_stretches_of_days_are_compared_as_chosen(page: Page) -> None:
    page.goto("/hives/place/1")
    expect(page.get_by_text("Visits a day", exact=True)).to_be_visible()
    page.get_by_label("After, from").fill("2031-01-01")
    page.get_by_label("After, from").press("Tab")
    expect(page.get_by_text("Each period must end after it begins.")).to_be_visible()


def test_feedback_is_shown_with_how_it_is_meant_and_may_be_answered(page: Page) -> None:
    page.goto("/hives/feedback")
    expect(page.get_by_text("The new terrace is lovely")).to_be_visible()
    expect(page.get_by_label("5 of 5 stars")).to_be_visible()
    expect(page.locator("[data-chart=voices] svg")).to_be_visible()
    expect(page.locator("nav [aria-current=page] > div")).to_have_text("Feedback")
    page.get_by_role("button", name="Negative").click()
    expect(page.get_by_text("The new terrace is lovely")).to_be_hidden()
    expect(page.get_by_text("Far too loud on Saturday")).to_be_visible()
    page.get_by_label("Answer to message").fill("We will do better.")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("Sent", exact=True)).to_be_visible()


def test_deals_and_sensors_have_pages_of_their_own(page: Page) -> None:
    page.goto("/hives/deals")
    expect(page.get_by_text("1 of 2")).to_be_visible()  # opened, of those it was shown to
    expect(page.get_by_text("+14 %")).to_be_visible()  # what came on top, by the nights
    page.goto("/hives/sensors")
    expect(page.get_by_text("door-2")).to_be_visible()


def test_a_places_hours_can_be_taken_away_as_a_file(page: Page) -> None:
    page.goto("/hives/place/1")
    with page.expect_download() as taken:
        page.get_by_role("link", name="Export CSV").click()
    rows = list(csv.DictReader(StringIO(Path(taken.value.path()).read_text())))
    assert len(rows) > 24
    assert int(rows[0]["entries"]) > 0


def test_who_belongs_to_no_business_is_refused(stranger: Page) -> None:
    sign_in(stranger, "/hives", BOB)
    expect(stranger.get_by_text("needs the role")).to_be_visible()
    expect(stranger.get_by_role("link", name="Amber Café")).to_be_hidden()
    assert stranger.request.get("/hives/export/1").status == 403


def test_who_is_invited_belongs_to_a_business_once_they_accept(
    stranger: Page, business: Business
) -> None:
    sign_in(stranger, "/hives/invitations", BOB)
    expect(stranger.get_by_text("No invitations")).to_be_visible()
    with Database(business.database) as database:
        with database.transaction() as connection:
            connection.execute(_INVITE)
        stranger.reload()
        expect(stranger.get_by_text("You would act for it as a member.")).to_be_visible()
        stranger.get_by_role("button", name="Accept").click()
        expect(stranger.get_by_role("link", name="Amber Café")).to_be_visible()
        stranger.goto("/hives/invitations")
        expect(stranger.get_by_text("No invitations")).to_be_visible()
        with database.transaction() as connection:
            connection.execute(_LEAVE)


def test_a_place_of_another_business_is_not_there(page: Page) -> None:
    page.goto("/hives/place/2")
    expect(page.get_by_text("hive 2 not found")).to_be_visible()


@pytest.mark.parametrize("shade", ["light", "dark"])
def test_pages_fit_a_phone_and_can_be_read_by_day_and_by_night(
    browser: Browser, business: Business, ada: StorageState, shade: str
) -> None:
    with looking(browser, business.url, NARROW, shade, ada) as page:
        for path, shown in (
            ("/hives", "people inside now"),
            ("/hives/place/1", "side door"),
            ("/hives/deals", "Two for one"),
            ("/hives/feedback", "The new terrace is lovely"),
            ("/hives/sensors", "side door"),
        ):
            page.goto(path)
            expect(page.get_by_text(shown)).to_be_visible()
            assert no_wider_than_its_window(page)
            assert faint(page) == []


def test_on_a_phone_nothing_of_a_table_is_out_of_sight(
    browser: Browser, business: Business, ada: StorageState
) -> None:
    with looking(browser, business.url, NARROW, known=ada) as page:
        page.goto("/hives/deals")
        for cell in page.get_by_role("cell").all():
            expect(cell).to_be_in_viewport(ratio=1)
