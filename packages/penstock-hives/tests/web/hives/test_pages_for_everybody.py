"""The dashboard for everybody: pages that fit a phone and a desktop, by day and by night, with
axe-core, by keys alone; every chart can be exported."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, StorageState, expect

from penstock_hives.web.context import DashboardContext
from penstock_hives.web.section import section_over
from penstock_store import Database
from penstock_store.dashboard.pages import SectionContext
from tests.web.accessibility import serious_findings, tab_to
from tests.web.browsing import NARROW, PATIENCE
from tests.web.hives.business import ADA, BOB, PASSWORD, Business, sign_in
from tests.web.hives.screens import SIZES_AND_SHADES, looking

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]
expect.set_options(timeout=PATIENCE)

#: Pages of a business, and what they show.
PAGES = {
    "/hives": "people inside now",
    "/hives/place/1": "side door",
    "/hives/analytics": "Places side by side",
    "/hives/metrics": "New metric",
    "/hives/deals": "Two for one",
    "/hives/feedback": "The new terrace is lovely",
    "/hives/followers": "Write to followers",
    "/hives/report": "Visits by place",
    "/hives/sensors": "side door",
    "/hives/members": "Invite by e-mail",
    "/hives/webhooks": "New webhook",
    "/hives/plan": "Subscriptions",
    "/hives/invitations": "No invitations",
    "/hives/new": "Opening hours",
    "/hives/place/1/edit": "Add pictures",
    "/hives/deals/new": "Create the deal",
    "/hives/deals/1": "times shown",
    "/hives/sensors/new": "Add the sensor",
    "/hives/sensors/1": "Configuration",
    "/hives/start": "Getting started",
}
#: Pages of operators.
OPERATOR_PAGES = {
    "/operator/users": "Nickname",
    "/operator/businesses": "Grant a plan",
    "/operator/usage": "Most viewed pages",
    "/operator/audit": "hive 1",
    "/operator/support": "Where do I find my code?",
    "/operator/dead-letters": "checksum",
}
#: How many charts a page has, if any.
CHARTS = {
    "/hives/place/1": 3,
    "/hives/analytics": 8,
    "/hives/metrics": 1,
    "/hives/feedback": 1,
    "/hives/report": 1,
    "/operator/usage": 4,
    "/operator/dead-letters": 1,
}


def test_every_page_is_looked_at(tmp_path: Path) -> None:
    section = section_over(DashboardContext(SectionContext(tmp_path, "amqp://127.0.0.1:1")))
    looked_at = {re.sub(r"/\d+", "/{id}", path) for path in PAGES | OPERATOR_PAGES}
    assert {each.path for each in section.pages} == looked_at


@pytest.fixture(scope="module")
def operator(browser: Browser, business: Business) -> StorageState:
    with Database(business.database) as database, looking(browser, business.url) as page:
        database.execute("UPDATE app_user SET role = 'operator' WHERE nickname = 'Bob'")
        sign_in(page, "/operator/users", BOB)
        expect(page.get_by_text("Nickname")).to_be_visible()
        return page.context.storage_state()


@pytest.mark.parametrize("seen_by", ["business", "operator"])
@pytest.mark.parametrize(("size", "shade"), SIZES_AND_SHADES)
def test_pages_fit_their_window_and_keep_nobody_out(
    browser: Browser,
    business: Business,
    ada: StorageState,
    operator: StorageState,
    seen_by: str,
    size: tuple[int, int],
    shade: str,
) -> None:
    """By axe-core: nothing serious or critical; on a phone nothing of a table is out of sight.
    Every chart can be exported, and no hint lies over what comes after it."""
    known, pages = (ada, PAGES) if seen_by == "business" else (operator, OPERATOR_PAGES)
    found, charts = [], {}
    with looking(browser, business.url, size, shade, known) as page:
        for path, text in pages.items():
            page.goto(path)
            expect(page.get_by_text(text).first).to_be_visible()
            found += serious_findings(page)
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
            outside = """(width) => [...document.querySelectorAll("td")]
                .map((cell) => cell.getBoundingClientRect())
                .filter((box) => box.width && (box.left < 0 || box.right > width)).length"""
            assert size != NARROW or page.evaluate(outside, NARROW[0]) == 0, path
            charts[path] = page.locator(".p-chart").count()
            for kind in ("CSV", "PNG"):
                exports = page.get_by_role("button", name=f"Export as {kind}")
                assert exports.count() == charts[path], path
            hidden = """() => [...document.querySelectorAll(".q-field__messages")]
                .filter((hint) => hint.textContent && !hint.contains(document.elementFromPoint(
                    hint.getBoundingClientRect().left + 4, hint.getBoundingClientRect().bottom - 4))
                    && hint.getBoundingClientRect().bottom < innerHeight).length"""
            assert page.evaluate(hidden) == 0, path
    assert found == []
    assert {path: count for path, count in charts.items() if count} == {
        path: count for path, count in CHARTS.items() if path in pages
    }


@pytest.mark.slow
def test_every_chart_is_exported_as_its_data_and_as_a_picture(
    browser: Browser, business: Business, ada: StorageState, operator: StorageState
) -> None:
    exported: dict[str, str] = {}
    for path, count in CHARTS.items():
        for kind in ("CSV", "PNG"):  # Chromium without a screen gives a page ten files
            known = ada if path in PAGES else operator
            with looking(browser, business.url, known=known) as page:
                page.goto(path)
                buttons = page.get_by_role("button", name=f"Export as {kind}")
                expect(buttons).to_have_count(count)
                expect(page.locator(".p-chart svg")).to_have_count(count)
                for button in buttons.all():
                    with page.expect_download() as taken:
                        button.click()
                    file = Path(taken.value.path())
                    if kind == "PNG":
                        assert min(Image.open(file).size) > 100, path
                        continue
                    text = file.read_text("utf-8-sig")
                    exported[path] = exported.get(path, "") + text
                    rows = list(csv.reader(text.splitlines()))
                    assert len(rows) > 1, (path, rows)
                    assert any(cell for row in rows[1:] for cell in row[1:]), (path, rows)
    assert "Amber Café" in exported["/operator/usage"]  # and not its number


def test_a_business_works_by_keys_alone(stranger: Page) -> None:
    stranger.goto("/hives")
    expect(stranger.get_by_label("Name")).to_be_visible()
    assert serious_findings(stranger) == []
    for name, text in (("Name", ADA), ("Password", PASSWORD)):
        tab_to(stranger, name)
        stranger.keyboard.type(text)
    stranger.keyboard.press("Enter")
    expect(stranger.get_by_role("heading", level=1)).to_have_text("Places")
    tab_to(stranger, "Deals")
    stranger.keyboard.press("Enter")
    expect(stranger.get_by_role("heading", level=1)).to_have_text("Deals")
    tab_to(stranger, "New deal")
    stranger.keyboard.press("Enter")
    expect(stranger.get_by_label("Title")).to_be_visible()
    tab_to(stranger, "Title")
    stranger.keyboard.type("By keys")
    tab_to(stranger, "Create the deal")
    stranger.keyboard.press("Space")
    expect(stranger.get_by_role("link", name="By keys")).to_be_visible()
