"""What pages and the API say about one fact, in the time zone of the place.

The servers, the database, the browser and the business are each in another time zone than the
place, where it is about noon: hours and dates of any other clock would differ.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from penstock_store import Database
from tests.databases import copy_of
from tests.hives.app.sites import CLOSED
from tests.peers import Penstock
from tests.web.browsing import PATIENCE, looking, serving
from tests.web.hives.business import ADA, PASSWORD, furnish_business

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]
expect.set_options(timeout=PATIENCE)

#: At the start of the tests it is past noon there; `Etc/GMT+5` is five hours behind UTC.
ZONE = f"Etc/GMT{datetime.now(UTC).hour - 12:+d}"
BROWSER, SERVERS, BUSINESS = "America/New_York", "Asia/Kolkata", "Pacific/Auckland"
_MOVE = """
    UPDATE account SET time_zone = %(business)s;
    UPDATE hive SET time_zone = %(zone)s, badge = true;
    UPDATE hive SET opening_hours = %(hours)s WHERE id = %(closed)s;
    UPDATE deal SET starts_at = now() - interval '2 days', expires_at = %(ends)s;
    UPDATE hive SET capacity = 32 WHERE id = 1;
    UPDATE hive_status SET percent = 12.5 WHERE hive_id = 1;
    INSERT INTO forecast_peak (hive_id, day, model, made_at, starts_at, ends_at)
    SELECT 1, (now() AT TIME ZONE %(zone)s)::date, max(model), max(made_at), %(peak)s,
        %(peak)s + interval '2 hours' FROM forecast WHERE hive_id = 1
"""


@dataclass(frozen=True)
class Place:
    site: str
    dashboards: str
    database: str
    opens: datetime  #: the closed place
    ends: datetime  #: the deal
    peak: datetime
    today: date

    def read(self, path: str) -> Any:
        return httpx.get(f"{self.site}/v1{path}", timeout=60).raise_for_status().json()

    def rows(self, statement: str, *parameters: Any) -> list[dict[str, Any]]:
        with Database(self.database) as database:
            return database.rows(statement, parameters)


@pytest.fixture(scope="module")
def place(
    embedded_template: str, penstock: Penstock, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    folder: Path = tmp_path_factory.mktemp("agreement")
    with copy_of(embedded_template) as database, pytest.MonkeyPatch.context() as environment:
        environment.setenv("TZ", SERVERS)
        furnish_business(database, folder)
        now = datetime.now(ZoneInfo(ZONE)).replace(minute=0, second=0, microsecond=0)
        opens = (now + timedelta(days=2)).replace(hour=8, minute=30)
        ends = (now + timedelta(days=3)).replace(hour=0, minute=30)
        peak = now.replace(hour=17)
        days = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
        hours: dict[str, list[list[str]]] = {day: [["08:30", "18:00"]] for day in days}
        hours |= {str(now.date() + timedelta(days=n)): [] for n in range(-1, 2)}
        given = {"zone": ZONE, "business": BUSINESS, "closed": CLOSED, "hours": json.dumps(hours)}
        with Database(database) as opened, opened.transaction() as connection:
            for statement in _MOVE.split(";\n"):
                connection.execute(statement, {**given, "ends": ends, "peak": peak})
        serve = ("-m", "penstock", "hives", "serve", "--port", "0", "--workers", "1")
        reach = ("--url", penstock.url, "--database", database, "--data", str(folder))
        pages = ("-m", "tests.web.hives.business_server", str(folder), database, penstock.url)
        with serving(*serve, *reach, "--stop-with-stdin") as site, serving(*pages) as dashboards:
            yield Place(site, dashboards, database, opens, ends, peak, now.date())


@pytest.fixture
def visitor(browser: Browser, place: Place) -> Iterator[Page]:
    with looking(browser, place.site, timezone_id=BROWSER, locale="en-GB") as page:
        yield page


@pytest.fixture
def ada(browser: Browser, place: Place) -> Iterator[Page]:
    with looking(browser, place.dashboards, timezone_id=BROWSER, locale="en-GB") as page:
        page.goto("/hives")
        page.get_by_label("Name").fill(ADA)
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Sign in").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Places")
        yield page


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def test_all_say_when_a_closed_place_opens_and_none_that_it_is_quiet(
    place: Place, visitor: Page, ada: Page
) -> None:
    told = place.read(f"/hives/{CLOSED}")
    assert (told["open_now"], moment(told["changes_at"])) == (False, place.opens)
    assert place.read("/hives?sort=quiet")["items"][-1]["id"] == CLOSED
    opens = f"opens {place.opens:%a} 08:30"
    html = httpx.get(place.site, timeout=60).text
    [card] = re.findall(rf'<li class="place" data-hive="{CLOSED}".*?</li>', html)
    badge = httpx.get(f"{place.site}/badge/{CLOSED}.svg", timeout=60).text
    said = [re.sub("<[^>]+>", " ", card), badge]
    for path, shown in (("/", f"[data-hive='{CLOSED}']"), (f"/#/hive/{CLOSED}", ".hero")):
        visitor.goto(path)
        expect(visitor.locator(shown)).to_contain_text(opens)
        said.append(visitor.locator(shown).inner_text())
    name = told["name"]
    said.append(ada.get_by_role("row", name=name).inner_text())
    ada.goto(f"/hives/place/{CLOSED}")
    expect(ada.get_by_role("heading", level=1)).to_have_text(name)
    said.append(ada.locator(".h-head").inner_text())
    for text in said:
        assert opens in text
        assert not re.search(r"\bquiet\b|%|\binside\b", text.lower())


def test_all_say_how_full_a_place_is(place: Place, visitor: Page, ada: Page) -> None:
    told = place.read("/hives/1/occupancy")
    assert (told["occupancy"], told["percent"], told["level"]) == (4, 12.5, "quiet")
    [listed] = [each for each in place.read("/hives")["items"] if each["id"] == 1]
    [live] = place.read("/live?hives=1")["figures"]
    assert {each["version"] for each in (told, listed["occupancy"], live)} == {told["version"]}
    badge = httpx.get(f"{place.site}/badge/1.svg", timeout=60).text
    html = httpx.get(place.site, timeout=60).text
    [card] = re.findall(r'<li class="place" data-hive="1".*?</li>', html)
    said = [badge, re.sub("<[^>]+>", " ", card)]
    for path, shown in (("/", "[data-hive='1']"), ("/#/hive/1", ".hero")):
        visitor.goto(path)
        expect(visitor.locator(shown)).to_contain_text("Quiet")
        said.append(visitor.locator(shown).inner_text())
    for text in said:
        assert re.search(r"\b13\s*%", text)
        assert "Quiet" in text
    expect(visitor.get_by_text("4 people inside")).to_be_visible()
    for path in ("/hives", "/hives/place/1"):
        ada.goto(path)
        expect(ada.locator("[data-inside='1']")).to_have_text("4 of 32")
        expect(ada.locator("[data-level='1']")).to_have_text("quiet")


def test_all_say_how_often_a_deal_was_shown_and_opened(place: Place, ada: Page) -> None:
    given = {"login": ADA, "password": PASSWORD}
    answer = httpx.post(f"{place.site}/v1/identity/sign-in", json=given, timeout=60)
    token = {"Authorization": f"Bearer {answer.json()['id_token']}"}
    [deal] = [each for each in place.read("/deals")["items"] if each["hive_id"] == 1]
    effect = httpx.get(f"{place.site}/v1/deals/{deal['id']}/effect", headers=token, timeout=60)
    shown, opened = effect.json()["shown"], effect.json()["opened"]
    assert shown > opened > 0
    for path in ("/hives/deals", "/hives/place/1"):
        ada.goto(path)
        row = ada.get_by_role("row", name=deal["title"]).first
        expect(row).to_contain_text(f"{opened} of {shown}")
    ada.goto(f"/hives/deals/{deal['id']}")
    for number, name in ((shown, "times shown"), (opened, "times opened")):
        figure = ada.locator(".p-figure", has_text=name)
        expect(figure.locator(".p-figure-value")).to_have_text(str(number))


def test_all_say_when_a_deal_ends(place: Place, visitor: Page, ada: Page) -> None:
    [deal] = [each for each in place.read("/deals")["items"] if each["hive_id"] == 1]
    assert moment(deal["expires_at"]) == place.ends
    assert moment(place.read("/hives/1")["deals"][0]["expires_at"]) == place.ends
    said = []
    for path in ("/#/deals", f"/#/deal/{deal['id']}", "/#/hive/1"):
        visitor.goto(path)
        card = visitor.locator(".deal", has=visitor.locator(f"a[href='#/deal/{deal['id']}']"))
        expect(card).to_contain_text("until")
        said.append(card.inner_text())
    for path in ("/hives/deals", "/hives/place/1"):
        ada.goto(path)
        row = ada.get_by_role("row", name=deal["title"]).first
        expect(row).to_be_visible()
        said.append(row.inner_text())
    for text in said:
        assert f"{place.ends:%-d %b} 00:30" in text.replace(",", "")
    ada.goto(f"/hives/deals/{deal['id']}")
    expect(ada.get_by_label("Until")).to_have_value(f"{place.ends:%Y-%m-%d}T00:30")


def test_all_count_the_visits_of_the_place_s_own_day(
    place: Place, visitor: Page, ada: Page
) -> None:
    def entries(slots: Any) -> int:
        zone = ZoneInfo(ZONE)
        return sum(
            row["entries"]
            for row in slots
            if row["slot"].astimezone(zone).date() == place.today
            and row["slot"] <= datetime.now(UTC)
        )

    of_hive = "SELECT slot, entries FROM occupancy_hour WHERE hive_id = %s"
    of_account = """
        SELECT o.slot, o.entries FROM occupancy_hour o JOIN hive h ON h.id = o.hive_id
        WHERE h.account_id = (SELECT account_id FROM hive WHERE id = 1)
    """
    counted = entries(place.rows(of_hive, 1))
    assert counted > 0
    assert sum(each["entries"] for each in place.read("/hives/1/today")["hours"]) == counted
    visitor.goto("/#/hive/1")
    cells = visitor.locator("table:has(caption) tbody tr td:nth-child(3)")
    expect(visitor.locator("svg.chart .dot").first).to_be_visible()
    counts = [text.removesuffix(" so far") for text in cells.all_text_contents()]
    shown = [int(text) for text in counts if text.isdecimal()]
    assert sum(shown) == counted
    day = f"from={place.today}&to={place.today + timedelta(days=1)}"
    file = ada.request.get(f"/hives/export/1?{day}").text().splitlines()[1:]
    assert sum(int(line.split(",")[1]) for line in file) == counted
    today = f"{entries(place.rows(of_account)):,}"
    expect(ada.locator("[data-figure=today]")).to_have_text(today)

    week = "SELECT sum(visits)::int AS n FROM kpi_day WHERE hive_id = ANY (%s) AND day >= %s"
    week += " AND day < %s"
    ids = [
        row["id"]
        for row in place.rows(
            "SELECT id FROM hive WHERE account_id = (SELECT account_id FROM hive WHERE id = 1)"
        )
    ]
    begin = place.today - timedelta(days=7)
    [whole] = place.rows(week, ids, begin, place.today)
    expect(ada.locator("[data-figure=week]")).to_have_text(f"{whole['n']:,}")
    ada.goto(f"/hives/analytics?hives=1&from={begin}&to={place.today}")
    [one] = place.rows(week, [1], begin, place.today)
    name = place.read("/hives/1")["name"]
    expect(ada.get_by_role("row", name=name)).to_contain_text(f"{one['n']:,}")

    monday = begin - timedelta(days=7 + begin.weekday())
    [reported] = place.rows(week, ids, monday, monday + timedelta(days=7))
    ada.goto(f"/hives/report?week={monday}")
    expect(ada.locator("[data-figure=report-visits]")).to_have_text(f"{reported['n']:,}")
    ada.goto(f"/hives/analytics?hives=1&from={monday}&to={monday + timedelta(days=7)}")
    [compared] = place.rows(week, [1], monday, monday + timedelta(days=7))
    expect(ada.get_by_role("row", name=name)).to_contain_text(f"{compared['n']:,}")


def test_all_say_when_it_is_expected_to_be_busiest(place: Place, visitor: Page, ada: Page) -> None:
    assert moment(place.read("/hives/1/forecast")["peak"]["starts_at"]) == place.peak
    visitor.goto("/#/hive/1")
    expect(visitor.get_by_text("to be busiest from 17:00 to 19:00")).to_be_visible()
    ada.goto("/hives/place/1")
    expect(ada.get_by_text("Expected peak from 17:00 to 19:00.")).to_be_visible()


def test_both_sides_say_when_a_code_was_used(place: Place, visitor: Page, ada: Page) -> None:
    given = {"login": "guest@bees.example", "password": PASSWORD}
    answer = httpx.post(f"{place.site}/v1/identity/sign-up", json=given, timeout=60)
    token = {"Authorization": f"Bearer {answer.json()['id_token']}"}
    [deal] = [each for each in place.read("/deals")["items"] if each["hive_id"] == 1]
    redeem = f"{place.site}/v1/deals/{deal['id']}/redeem"
    code = httpx.post(redeem, headers=token, timeout=60).json()["code"]
    ada.goto("/hives/deals")
    for shown in ("Valid:", "was used on"):
        ada.get_by_label("Code").fill(code)
        ada.get_by_role("button", name="Verify").click()
        expect(ada.get_by_text(shown)).to_be_visible()
    [row] = place.rows("SELECT verified_at FROM deal_redemption WHERE code = %s", code)
    used = row["verified_at"].astimezone(ZoneInfo(ZONE))
    expect(ada.get_by_text(f"was used on {used:%Y-%m-%d %H:%M}")).to_be_visible()
    visitor.goto(f"/#/sign-in?to=deal/{deal['id']}")
    visitor.get_by_label("E-mail address").fill(given["login"])
    visitor.get_by_label("Password").fill(PASSWORD)
    visitor.get_by_label("Password").press("Enter")
    expect(visitor.locator(".ticket")).to_contain_text(f"Used {used:%-d %b}, {used:%H:%M}")
