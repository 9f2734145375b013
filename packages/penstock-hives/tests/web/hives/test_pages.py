"""What a business and the operators do with the dashboard in a browser, and who may."""

from __future__ import annotations

import csv
import io
import re
import time
from io import StringIO
from itertools import count
from pathlib import Path

import pytest
from PIL import Image
from playwright.sync_api import Browser, FilePayload, Page, expect

from penstock.client.blocking_client import connect
from penstock_hives.occupancy.publisher import EXCHANGE
from penstock_store import Database
from tests.databases import copy_of
from tests.hives.app.public.snapshots import document
from tests.peers import Penstock
from tests.web.browsing import PATIENCE, serving, sign_out
from tests.web.hives.business import BOB, PASSWORD, Business, sign_in
from tests.web.hives.screens import SCREENS, looking

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(600),
    pytest.mark.parametrize("screen", SCREENS, indirect=True, scope="session"),
]
expect.set_options(timeout=PATIENCE)


_INVITE = """
    INSERT INTO account_invitation (account_id, user_id, role, created_at, expires_at)
    SELECT h.account_id, u.id, 'account_member', now(), now() + interval '1 day'
    FROM hive h, app_user u WHERE h.id = 1 AND u.nickname = 'Bob'
"""
#: Metrics are part of a plan.
_SUBSCRIBE = """
    INSERT INTO subscription (account_id, subscription_type_id, provider, provider_ref, status)
    SELECT h.account_id, t.id, 'manual', 'of-the-test', 'active'
    FROM hive h, subscription_type t WHERE h.id = 1 AND t.code = 'business' AND NOT EXISTS (
        SELECT FROM subscription s WHERE s.account_id = h.account_id AND s.status = 'active')
"""
_LEAVE = """
    WITH bob AS (UPDATE app_user SET role = 'user' WHERE nickname = 'Bob' RETURNING id)
    DELETE FROM account_member WHERE user_id IN (SELECT id FROM bob)
"""


def test_who_comes_first_signs_in_and_is_where_they_wanted_to_be(stranger: Page) -> None:
    sign_in(stranger, "/hives/deals")
    expect(stranger.get_by_role("heading", level=1)).to_have_text("Deals")


def test_the_overview_shows_figures_places_and_what_stands_out(page: Page) -> None:
    page.goto("/hives")
    expect(page.get_by_text("people inside now")).to_be_visible()
    expect(page.get_by_role("link", name="Amber Café")).to_be_visible()
    expect(page.get_by_text("Tuesdays after three are quiet")).to_be_visible()
    closed = page.get_by_role("row", name="Cedar Supermarket")
    expect(closed).to_contain_text(re.compile(r"–\s*closed\s*opens \w+ 08:30\s*$"))


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
    page.get_by_role("button", name="Negative", exact=True).click()
    expect(page.get_by_text("The new terrace is lovely")).to_be_hidden()
    expect(page.get_by_text("Far too loud on Saturday")).to_be_visible()
    page.get_by_label("Answer to message").fill("We will do better.")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("Sent", exact=True)).to_be_visible()


def test_deals_and_sensors_have_pages_of_their_own(page: Page, business: Business) -> None:
    with Database(business.database) as database:
        database.execute(
            "INSERT INTO sensor_alert (sensor_id, kind, detail, since) "
            "VALUES (2, 'silence', 'no data for more than 60 min', now())"
        )
    page.goto("/hives/deals")
    expect(page.get_by_text("1 of 2")).to_be_visible()  # opened, of those it was shown to
    expect(page.get_by_text("+14 %")).to_be_visible()  # what came on top, by the nights
    page.goto("/hives/sensors")
    expect(page.get_by_text("door-2")).to_be_visible()
    alert = page.get_by_role("row", name="no data for more than 60 min")
    expect(alert).to_contain_text("No data")
    alert.get_by_role("link", name="side door").click()
    expect(page.get_by_text("no data for more than 60 min")).to_be_visible()


def test_a_places_hours_can_be_taken_away_as_a_file(page: Page) -> None:
    page.goto("/hives/place/1")
    with page.expect_download() as taken:
        page.get_by_role("link", name="Export CSV").click()
    rows = list(csv.DictReader(StringIO(Path(taken.value.path()).read_text())))
    assert len(rows) > 24
    assert int(rows[0]["entries"]) > 0


HOSTILE = "<img src=x onerror=alert(1)> & Co"


def test_with_a_plan_a_place_is_created_corrected_and_closed(page: Page) -> None:
    page.goto("/hives/plan")
    page.get_by_role("button", name="Choose").click()
    expect(page.get_by_text("29.00 EUR", exact=True)).to_be_visible()
    expect(page.get_by_role("cell", name="Purchase")).to_be_visible()
    page.goto("/hives")
    page.get_by_role("link", name="Add a place").click()
    page.get_by_label("Capacity").fill("0")
    page.get_by_label("Monday", exact=True).fill("9-17")
    page.get_by_role("button", name="Create the place").click()
    expect(page.get_by_text("must be hours such as 09:00-17:30")).to_be_visible()
    page.get_by_label("Monday", exact=True).fill("09:00-12:00, 13:00-18:00")
    page.get_by_role("button", name="Create the place").click()
    expect(page.get_by_text("must be given")).to_be_visible()  # beside the name
    expect(page.get_by_text("must be greater than or equal to 1")).to_be_visible()
    page.get_by_label("Name").fill(HOSTILE)
    page.get_by_label("Type", exact=True).click()
    page.get_by_role("option", name="Restaurant", exact=True).click()
    page.get_by_label("Street").fill("Comb Lane 6")
    page.get_by_label("Town").fill("Beeston")
    page.get_by_label("Capacity").fill("40")
    page.get_by_role("button", name="Add an exception").click()
    page.get_by_label("Date").fill("2030-12-25")
    page.get_by_role("button", name="Create the place").click()
    expect(page.get_by_role("heading", level=1)).to_have_text(f"Edit {HOSTILE}")
    expect(page.get_by_label("Monday", exact=True)).to_have_value("09:00-12:00, 13:00-18:00")
    expect(page.get_by_label("Date")).to_have_value("2030-12-25")
    expect(page.get_by_label("Street")).to_have_value("Comb Lane 6")
    expect(page.get_by_label("Town")).to_have_value("Beeston")
    expect(page.get_by_label("Type", exact=True)).to_have_value("Restaurant")

    picture = io.BytesIO()
    Image.new("RGB", (64, 48), "orange").save(picture, "PNG")
    files = [("a.png", picture.getvalue()), ("b.png", b"<svg onload=alert(1)>")]
    for name, content in files:
        with page.expect_file_chooser() as choosing:
            page.get_by_role("button", name="Add pictures").click()
        file: FilePayload = {"name": name, "mimeType": "image/png", "buffer": content}
        choosing.value.set_files(file)
        expect(page.get_by_text("cover", exact=True)).to_be_visible()  # a.png has arrived
    expect(page.locator(".q-notification").first).to_be_visible()  # b.png is no picture

    page.get_by_role("button", name="Close the place").click()
    page.get_by_role("dialog").get_by_role("button", name="Close the place").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Places")
    expect(page.get_by_text(HOSTILE)).to_be_hidden()


def test_heads_are_counted_at_a_place(page: Page, business: Business) -> None:
    page.goto("/hives/place/1")
    page.get_by_role("button", name="Count heads").click()
    page.get_by_label("People", exact=True).fill("17")
    page.get_by_role("button", name="Count", exact=True).click()
    expect(page.get_by_text("applies within a minute")).to_be_visible()
    with Database(business.database) as database:
        assert database.rows("SELECT counted FROM manual_count") == [{"counted": 17}]


def test_a_deal_is_drafted_published_verified_and_withdrawn(page: Page, business: Business) -> None:
    page.goto("/hives/deals/new?hive=1")
    page.get_by_label("Title").fill("Soup")
    page.get_by_label("Until").fill("2020-01-01T10:00")
    page.get_by_role("button", name="Create the deal").click()
    expect(page.get_by_text("must be after starts_at")).to_be_visible()
    page.get_by_label("Until").fill("2040-01-01T10:00")
    page.get_by_role("button", name="Create the deal").click()
    expect(page.get_by_text("must be within a year of starts_at")).to_be_visible()
    page.get_by_label("From").fill("2039-12-24T10:00")
    page.get_by_label("Status").click()
    page.get_by_role("option", name="Draft").click()
    page.get_by_role("button", name="Create the deal").click()
    page.get_by_role("link", name="Soup").click()
    expect(page.get_by_label("From")).to_have_value("2039-12-24T10:00")
    page.get_by_label("Limit").fill("3")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("draft", exact=True)).to_be_visible()

    with Database(business.database) as database, database.transaction() as connection:
        connection.execute("""
            INSERT INTO deal_redemption (code, deal_id, user_id)
            SELECT 'ABCD2345', id, (SELECT min(id) FROM app_user) FROM deal WHERE title = 'Soup'
        """)
    for shown in ("Valid: “Soup”", "was used on"):
        page.get_by_label("Code").fill("abcd-2345")
        page.get_by_role("button", name="Verify").click()
        expect(page.get_by_text(shown)).to_be_visible()
    page.get_by_role("link", name="Soup").click()
    page.get_by_role("button", name="Withdraw").click()
    page.get_by_role("dialog").get_by_role("button", name="Withdraw").click()
    expect(page.get_by_text("withdrawn", exact=True)).to_be_visible()


def test_a_sensor_is_added_gets_credentials_and_is_replaced(page: Page) -> None:
    page.goto("/hives/sensors/new?hive=1")
    page.get_by_label("Serial").fill("not a serial")
    page.get_by_role("button", name="Add the sensor").click()
    expect(page.get_by_text("is not valid")).to_be_visible()
    page.get_by_label("Serial").fill("door-9")
    page.get_by_label("Name").fill("back door")
    page.get_by_role("button", name="Add the sensor").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("back door")
    page.get_by_role("button", name="Create credentials").click()
    expect(page.locator("[data-access]")).to_contain_text("sensor-door-9")
    expect(page.locator("[data-access]")).to_contain_text("commands/sensor/door-9")
    page.evaluate("window.print = () => { window.isPrinted = true; }")
    page.get_by_role("button", name="Print").click()
    page.wait_for_function("window.isPrinted")
    page.get_by_role("switch", name="Numbers its events").click()
    page.get_by_label("Protocol").click()
    page.get_by_role("option", name="Single events").click()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Saved")).to_be_visible()
    page.get_by_label("Report every").fill("10")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("gets it when it connects")).to_be_visible()
    page.get_by_label("Serial of the new device").fill("door-10")
    page.get_by_role("button", name="Replace").click()
    expect(page.get_by_text("door-10")).to_be_visible()


def test_somebody_is_invited_by_mail_and_joins(
    page: Page, stranger: Page, business: Business
) -> None:
    page.goto("/hives/members")
    page.get_by_label("E-mail address").fill("bob")
    page.get_by_role("button", name="Invite").click()
    expect(page.get_by_text("must be an e-mail address")).to_be_visible()
    page.get_by_label("E-mail address").fill(BOB)
    page.get_by_role("button", name="Invite").click()
    expect(page.get_by_role("cell", name=BOB)).to_be_visible()
    letters = list((business.folder / "hives" / "identity" / "letters").iterdir())
    text = "".join(each.read_text() for each in letters).replace("=\n", "").replace("=3D", "=")
    code = text.partition("code=")[2].split()[0]
    sign_in(stranger, f"/hives/invitations?code={code}", BOB)
    stranger.get_by_role("button", name="Accept").click()
    expect(stranger.get_by_role("link", name="Amber Café")).to_be_visible()
    page.reload()
    page.get_by_label("Role of Bob").click()
    with page.expect_navigation():  # the page opens again when the role is stored
        page.get_by_role("option", name="admin").click()
    expect(page.get_by_role("row", name="Bob").get_by_label("Role of Bob")).to_have_value("admin")
    page.get_by_role("row", name="Bob").get_by_role("button", name="Remove").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.get_by_role("row", name="Bob")).to_be_hidden()


def test_followers_are_written_to(page: Page, business: Business) -> None:
    with Database(business.database) as database, database.transaction() as connection:
        connection.execute("""
            INSERT INTO user_hive (user_id, hive_id, favourite)
            SELECT id, 1, true FROM app_user WHERE nickname IS NOT NULL ON CONFLICT DO NOTHING
        """)
    page.goto("/hives/followers")
    page.get_by_label("Title").fill(HOSTILE)
    page.get_by_label("Message").fill("Come in.")
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_text("2 recipients")).to_be_visible()
    expect(page.get_by_text(HOSTILE)).to_be_visible()


def test_places_are_compared_over_any_period_and_charts_are_exported(page: Page) -> None:
    page.goto("/hives/analytics?hives=1,6,99,x&from=2020-01-01&to=2019-01-01")
    expect(page.get_by_role("row", name="Amber Café")).to_contain_text("2 of 7")
    expect(page.get_by_role("row", name="Cedar Supermarket")).to_be_visible()
    expect(page.locator("[data-chart=visits] svg")).to_be_visible()
    with page.expect_download() as taken:
        page.get_by_role("button", name="Export as CSV: Visits by day").click()
    rows = list(csv.reader(Path(taken.value.path()).read_text("utf-8-sig").splitlines()))
    assert rows[0] == ["", "Amber Café", "Cedar Supermarket"]
    assert len(rows) == 29
    assert int(rows[-1][1]) > 0
    with page.expect_download() as taken:
        page.get_by_role("button", name="Export as PNG: Visits by day").click()
    assert Image.open(taken.value.path()).size[0] > 300
    page.get_by_role("button", name="7 days").click()
    expect(page.get_by_text("7 days beside the 7 before")).to_be_visible()


def test_a_metric_is_built_in_a_form(page: Page, business: Business) -> None:
    with Database(business.database) as database, database.transaction() as connection:
        connection.execute(_SUBSCRIBE)
    page.goto("/hives/metrics")
    page.get_by_label("Name").fill("Sold")
    page.get_by_label("Formula").fill("visits / wasps")
    page.get_by_role("button", name="Create the metric").click()
    expect(page.get_by_text("wasps").last).to_be_visible()
    page.get_by_label("Formula").fill("")
    page.get_by_role("button", name="deal_opens").click()
    page.get_by_role("button", name="Create the metric").click()
    expect(page.get_by_text("deal_opens, over 7 days")).to_be_visible()


def test_a_webhook_gets_a_secret_and_the_week_is_reported(page: Page) -> None:
    page.goto("/hives/webhooks")
    page.get_by_label("URL").fill("ftp://example.org")
    page.get_by_role("button", name="Create the webhook").click()
    expect(page.get_by_text("must be an https URL")).to_be_visible()
    page.get_by_label("URL").fill("https://example.org/hook")
    page.get_by_role("button", name="Create the webhook").click()
    expect(page.locator("[data-secret]")).to_contain_text("whsec_")
    page.get_by_role("button", name="Done").click()
    page.get_by_role("button", name="Send a test").click()
    expect(page.get_by_text("pending", exact=True)).to_be_visible()
    page.goto("/hives/report")
    expect(page.locator("[data-figure=report-visits]")).not_to_have_text("0")
    page.get_by_role("link", name="The week before").click()
    expect(page.get_by_role("link", name="The week after")).to_be_visible()


def test_operators_have_pages_that_others_do_not(
    page: Page, stranger: Page, business: Business
) -> None:
    page.goto("/operator/users")
    expect(page.get_by_text("needs the role")).to_be_visible()
    with Database(business.database) as database:
        database.execute("UPDATE app_user SET role = 'admin' WHERE nickname = 'Bob'")
        try:
            sign_in(stranger, "/operator/businesses", BOB)
            held = stranger.get_by_role("row", name="29.00 EUR a month").get_by_role("cell").last
            before = int(held.inner_text())
            stranger.get_by_role("button", name="Grant").click()
            expect(held).to_have_text(str(before + 1))
            _appoint(stranger, "operator")
            _appoint(stranger, "user")
            stranger.goto("/operator/audit")
            expect(stranger.get_by_role("row", name="role: operator")).to_contain_text("appoint")
            stranger.goto("/operator/support")
            expect(stranger.get_by_text("Where do I find my code?")).to_be_visible()
            stranger.get_by_label("Answer to message").fill("In your inbox.")
            stranger.get_by_role("button", name="Send").click()
            expect(stranger.get_by_text("Sent", exact=True)).to_be_visible()
        finally:
            database.execute("UPDATE app_user SET role = 'user' WHERE nickname = 'Bob'")


def _appoint(page: Page, role: str) -> None:
    """Ada, by an admin."""
    page.goto("/operator/users")
    page.get_by_role("row", name="Ada").get_by_label("Role of user").click()
    page.get_by_role("option", name=role, exact=True).click()
    expect(page.get_by_text("Saved")).to_be_visible()


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


@pytest.mark.usefixtures("screen")
def test_an_empty_database_is_set_up_to_its_first_report(
    browser: Browser, embedded_template: str, penstock: Penstock, tmp_path: Path
) -> None:
    server = "tests.web.hives.business_server"
    management = penstock.http_url.replace("://", "://guest:guest@")
    with (
        copy_of(embedded_template) as database,
        serving("-m", server, str(tmp_path), database, penstock.url, management) as url,
        looking(browser, url) as page,
    ):
        page.goto("/")
        page.get_by_label("E-mail address").fill("root@example.org")
        page.get_by_label("Password").fill("short")
        page.get_by_role("button", name="Create").click()
        expect(page.get_by_text("must have 10 to 256 characters")).to_be_visible()
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Create").click()
        page.get_by_label("Name of the business").fill("Ada & Sons")
        page.get_by_role("button", name="Create the business").click()
        page.get_by_role("link", name="Add a place").click()
        page.get_by_label("Name").fill("The Comb")
        page.get_by_role("button", name="Create the place").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Edit The Comb")
        page.goto("/hives/start")
        page.get_by_role("link", name="Add a sensor").click()
        page.get_by_label("Serial").fill("door-1")
        page.get_by_role("button", name="Add the sensor").click()
        page.get_by_role("button", name="Create credentials").click()
        expect(page.locator("[data-access]")).to_contain_text("sensor-door-1")
        page.goto("/hives/start")
        expect(page.get_by_text("Waiting;")).to_be_visible()
        with Database(database) as opened:
            opened.execute(
                "INSERT INTO sensor_state (sensor_id, received_at, at, batch) "
                "SELECT id, now(), now(), 1 FROM sensor"
            )
        expect(page.get_by_text("door-1 has reported")).to_be_visible()
        sign_out(page)
        expect(page.get_by_role("button", name="Sign in")).to_be_visible()


def test_a_place_of_another_business_is_not_there(page: Page) -> None:
    page.goto("/hives/place/2")
    expect(page.get_by_text("hive 2 not found")).to_be_visible()
