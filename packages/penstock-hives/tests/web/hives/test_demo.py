"""The demonstration as people meet it: `penstock up` on an empty database, once its first nightly
tasks are done. No page is empty, no chart is without data, and nobody is kept out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import httpx
import pytest
from playwright.sync_api import Browser, Page, StorageState, expect

from penstock_hives.demo_account import PASSWORD
from penstock_store import Database
from tests.cli.command import Running, environment
from tests.databases import copy_of, grounds_of_its_own
from tests.peers import free_port
from tests.up.test_up import ANYWHERE
from tests.web.accessibility import serious_findings
from tests.web.browsing import PATIENCE
from tests.web.hives.public_site import sign_in, until
from tests.web.hives.screens import SIZES_AND_SHADES, looking
from tests.web.hives.test_pages_for_everybody import OPERATOR_PAGES, PAGES

pytestmark = [
    pytest.mark.slow,
    pytest.mark.peer,
    pytest.mark.timeout(3000),
    pytest.mark.usefixtures("java"),
]
expect.set_options(timeout=PATIENCE)

ADA, GRACE, OLGA = (f"{name}@hives.example" for name in ("ada", "grace", "olga"))
#: For Spark to start, and forecasts and analytics of fifty places, on a busy machine.
NIGHT_SECONDS: Final = 1500
#: What the nights compute, and of which there must be some.
_COMPUTED: Final = (
    *("forecast", "insight", "hive_popularity", "preference_shift", "deal_recommendation"),
    *("hive_comparison", "deal_effect", "feedback_day", "custom_metric_value", "dead_letter_count"),
)
_WITHOUT_FORECAST: Final = "SELECT id FROM hive WHERE id NOT IN (SELECT hive_id FROM forecast)"


@dataclass(frozen=True)
class Demonstration:
    site: str
    dashboards: str
    database: str

    def rows(self, statement: str, *parameters: Any) -> list[dict[str, Any]]:
        with Database(self.database) as database:
            return database.rows(statement, parameters)

    def numbers(self, statement: str) -> list[int]:
        return [row["id"] for row in self.rows(statement)]

    def read(self, path: str) -> Any:
        return httpx.get(f"{self.site}/v1{path}", timeout=60).raise_for_status().json()


@pytest.fixture(scope="module")
def demonstration(embedded_template: str) -> Iterator[Demonstration]:
    site, dashboards = (f"127.0.0.1:{free_port()}" for _ in range(2))
    listen = environment(PENSTOCK_UP__SITE=site, PENSTOCK_UP__DASHBOARDS=dashboards)
    with grounds_of_its_own() as folder, copy_of(embedded_template) as database:
        where = ("--data", folder / "data", "--database", database)
        with Running(folder, "up", *where, *ANYWHERE, env=listen) as up:
            found = Demonstration(f"http://{site}", f"http://{dashboards}", database)
            until(lambda: _is_computed(found), NIGHT_SECONDS)
            until(lambda: _is_shown(found))
            yield found
            up.stop()


def _is_computed(found: Demonstration) -> bool | None:
    counted = " UNION ALL ".join(
        f"SELECT EXISTS (SELECT FROM {name}) AS some" for name in _COMPUTED
    )
    is_whole = all(row["some"] for row in found.rows(counted))
    return (is_whole and not found.rows(_WITHOUT_FORECAST)) or None


def _is_shown(found: Demonstration) -> bool | None:
    """By the site's snapshot, which is made once a minute."""
    hives = found.numbers("SELECT id FROM hive ORDER BY id")
    return all(found.read(f"/hives/{hive}/forecast")["hours"] for hive in hives) or None


def _storage(browser: Browser, found: Demonstration, login: str, path: str) -> StorageState:
    """Of somebody who has signed in to the dashboards."""
    with looking(browser, found.dashboards) as page:
        page.goto(path)
        page.get_by_label("Name").fill(login)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        expect(page.get_by_label("Password")).to_be_hidden()
        return page.context.storage_state()


#: Of each chart: its description, and how many values it shows.
_CHARTED: Final = """() => [...document.querySelectorAll(".p-chart")].map((each) => [
  each.getAttribute("aria-label"),
  getElement(Number(each.id.slice(1))).chart.getOption().series.flatMap((of) => of.data)
    .map((value) => Array.isArray(value) ? value[2] : value?.value ?? value)
    .filter((value) => value !== null && value !== "-").length])"""


def _look_at(page: Page, path: str) -> list[str]:
    """What is wrong with a page of the dashboards."""
    page.goto(path)
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.locator(".p-card, .p-empty").first).to_be_visible()
    expect(page.locator(".p-chart svg")).to_have_count(page.locator(".p-chart").count())
    found = [f"{path}: empty: {text}" for text in page.locator(".p-empty").all_inner_texts()]
    found += [f"{path}: {name} has {count}" for name, count in page.evaluate(_CHARTED) if count < 2]
    found += [
        f"{path}: no figure: {name}"
        for name in page.locator(".p-figure:has(.p-figure-value:text-is('–'))").all_inner_texts()
    ]
    found += [f"{path}: {finding}" for finding in serious_findings(page)]
    if not page.evaluate("document.documentElement.scrollWidth <= innerWidth"):
        found.append(f"{path}: wider than the window")
    return found


@pytest.mark.parametrize(("size", "shade"), SIZES_AND_SHADES)
def test_no_page_of_the_business_is_empty(
    browser: Browser, demonstration: Demonstration, size: tuple[int, int], shade: str
) -> None:
    known = _storage(browser, demonstration, GRACE, "/hives")
    of_grace = (
        "FROM hive h JOIN account_member USING (account_id) JOIN app_user u ON u.id = user_id "
        "WHERE u.nickname = 'grace'"
    )
    hives = demonstration.numbers(f"SELECT h.id {of_grace} ORDER BY h.id")
    of_hives = f"WHERE hive_id IN (SELECT h.id {of_grace})"
    [deal] = demonstration.numbers(f"SELECT min(id) AS id FROM deal {of_hives}")
    [sensor] = demonstration.numbers(f"SELECT min(id) AS id FROM sensor {of_hives}")
    numbered = {"place": hives[0], "deals": deal, "sensors": sensor}
    paths = [_numbered(path, numbered) for path in PAGES]
    paths += [f"/hives/place/{hive}" for hive in hives[1:]]
    wrong = []
    with looking(browser, demonstration.dashboards, size, shade, known) as page:
        for path in paths:
            wrong += _look_at(page, path)
        page.goto("/hives")
        expect(page.locator(".h-insight").first).to_be_visible()
        page.goto("/hives/report")
        expect(page.locator("[data-figure=report-visits]")).not_to_have_text("0")
    assert wrong == []


def _numbered(path: str, numbers: dict[str, int]) -> str:
    """Of the business instead of the first."""
    parts = path.split("/")
    return "/".join(
        str(numbers[parts[at - 1]]) if part.isdecimal() else part for at, part in enumerate(parts)
    )


@pytest.mark.parametrize(("size", "shade"), SIZES_AND_SHADES)
def test_no_page_of_the_operators_is_empty(
    browser: Browser, demonstration: Demonstration, size: tuple[int, int], shade: str
) -> None:
    known = _storage(browser, demonstration, OLGA, "/operator/users")
    wrong = []
    with looking(browser, demonstration.dashboards, size, shade, known) as page:
        for path in OPERATOR_PAGES:
            wrong += _look_at(page, path)
    assert wrong == []


#: Views of the app, and what each of them shows at least once.
VIEWS: Final = {
    "/": (".place .says",),
    "/#/map": (".pin",),
    "/#/favourites": (
        "main > .places .place",
        "h2:text-is('Recommended for you') + .deals .deal",
        "h2:text-is('Seen lately') + .places .place",
        "h2:text-is('Popular this week') + .places .place",
    ),
    "/#/deals": (".deal",),
    "/#/alerts": (".note",),
    "/#/inbox": (".note",),
    "/#/plan": (".note", "text=Renewal"),
    "/#/account": ("input",),
    "/#/privacy": ("input",),
}


@pytest.mark.parametrize(("size", "shade"), SIZES_AND_SHADES)
def test_no_view_of_the_app_is_empty(
    browser: Browser, demonstration: Demonstration, size: tuple[int, int], shade: str
) -> None:
    deal = demonstration.read("/deals")["items"][0]
    views = {**VIEWS, f"/#/deal/{deal['id']}": (".deal",)}
    wrong = []
    with looking(browser, demonstration.site, size, shade) as page:
        sign_in(page, ADA, PASSWORD)
        for path, parts in views.items():
            page.goto(path)
            for part in parts:
                expect(page.locator(part).first).to_be_visible()
            empty = page.locator("main .empty").all_inner_texts()
            wrong += [f"{path}: empty: {text}" for text in empty]
            wrong += [f"{path}: {finding}" for finding in serious_findings(page)]
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
    assert wrong == []


def test_every_place_has_a_day_a_week_and_a_forecast(
    browser: Browser, demonstration: Demonstration
) -> None:
    hives = demonstration.rows("SELECT id, name FROM hive ORDER BY id")
    assert len(hives) == 50
    with looking(browser, demonstration.site) as page:
        for hive in hives:
            page.goto(f"/#/hive/{hive['id']}")
            expect(page.get_by_role("heading", level=1)).to_have_text(hive["name"])
            expect(page.locator(".hero .says .level")).not_to_have_text("No data")
            for day in page.locator(".week .chip").all():
                day.click()
                expect(day).to_have_attribute("aria-pressed", "true")
                bars = page.locator("svg.chart .bar")
                expect(bars.first.or_(page.get_by_text("Closed on"))).to_be_visible()
            expect(page.locator(".hours tr").first).to_be_visible()
            expect(page.locator("img.cover")).to_be_visible()
            expected = demonstration.read(f"/hives/{hive['id']}/forecast")["hours"]
            if max(hour["p50"] for hour in expected) < 1:  # closed today
                continue
            page.reload()
            expect(page.locator("svg.chart .line").first).to_be_visible()
            expect(page.get_by_text("is expected to be busiest from")).to_be_visible()
