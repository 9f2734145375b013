"""What people do with the app, in a browser: alerts, deals, push, map, badge."""

from __future__ import annotations

import io
import json
import re
from calendar import day_name
from datetime import UTC, datetime
from typing import Any

import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, Route, expect

from penstock_hives.places.models import WEEKDAYS
from tests.hives.app.push.services import Browser as PushKeys
from tests.hives.app.push.services import PushService
from tests.web.browsing import NARROW, PATIENCE
from tests.web.hives.public_site import HIVES, PASSWORD, Site, heading, sign_in, signed_in, until
from tests.web.hives.screens import SCREENS, looking

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(600),
    pytest.mark.parametrize("screen", SCREENS, indirect=True, scope="session"),
]
expect.set_options(timeout=PATIENCE)

PAST = "2026-01-02T03:04:05Z"
HOSTILE = """<img src=x onerror="document.title='owned'">"""


def test_an_alert_is_set_by_weekday_and_hours_and_what_it_tells_is_read(
    browser: Browser, site: Site
) -> None:
    with signed_in(browser, site) as (page, _, token):
        page.goto("/#/hive/1")
        page.get_by_role("link", name="Tell me when it is quieter").click()
        page.get_by_label("Limit").fill("35")
        page.get_by_label("Monday").check()
        page.get_by_label("Tuesday").check()
        page.get_by_label("Between", exact=True).fill("17:00")
        page.get_by_label("and", exact=True).fill("20:00")
        page.get_by_label("Quiet from").fill("22:00")
        page.get_by_role("button", name="Save").click()
        expect(page.get_by_text("must be given together with quiet_to")).to_be_visible()
        page.get_by_label("to", exact=True).fill("07:00")
        page.get_by_role("button", name="Save").click()
        alert = page.locator(".note", has_text="Amber Café is quieter than 35 %")
        expect(alert).to_contain_text("Mon, Tue · 17:00–20:00 · quiet 22:00–07:00")
        page.get_by_label("New deals at my favourites").check()
        expect(page.locator(".note")).to_have_count(2)
        page.get_by_label("Daily deals").check()
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#notice")).to_have_text("Saved.")
        assert site.call("GET", "/me/deal-preferences", token)["kinds"] == ["daily"]
        alert.get_by_role("button", name="Try").click()
        expect(page.locator("#notice")).to_have_text("Sent to your inbox.")
        page.reload()
        expect(page.locator("#unread")).to_have_text("1")
        page.get_by_role("link", name="Inbox, 1 unread").click()
        expect(page.locator(".note[data-unread=true]")).to_contain_text("Test notification")
        page.get_by_role("button", name="Mark as read").click()
        expect(page.locator(".note[data-unread=true]")).to_have_count(0)
        expect(page.locator("#unread")).to_be_hidden()


def test_directions_open_in_the_map_application_of_a_phone(browser: Browser, site: Site) -> None:
    agents = {
        "Mozilla/5.0 (Linux; Android 15; Pixel 9)": "geo:",
        "Mozilla/5.0 (iPhone)": "https://maps.apple.com/",
    }
    for agent, beginning in agents.items():
        with looking(browser, site.url, user_agent=agent, has_touch=True) as page:
            page.goto("/#/hive/1")
            directions = page.get_by_role("link", name="Directions")
            expect(directions).to_have_attribute("href", re.compile(f"^{beginning}"))


#: Chromium's own push service is not on this machine: the test is it.
SUBSCRIBE = """([endpoint, keys]) => {
  PushManager.prototype.subscribe = async (options) => {
    window.serverKey = btoa(String.fromCharCode(...new Uint8Array(options.applicationServerKey)));
    return { toJSON: () => ({ endpoint, keys }) };
  };
}"""


def test_a_push_is_encrypted_for_the_browser_and_shown_by_it(browser: Browser, site: Site) -> None:
    keys = PushKeys()
    with PushService() as service, signed_in(browser, site) as (page, _, token):
        page.context.grant_permissions(["notifications"], origin=site.url)
        page.evaluate("navigator.serviceWorker.ready.then(() => true)")
        page.evaluate(SUBSCRIBE, [f"{service.url}/push/1", keys.keys])
        given = {"kind": "occupancy_below", "hive_id": 1, "threshold": 30, "unit": "percent"}
        alert = site.call("POST", "/me/notification-settings", token, json=given)
        page.goto("/#/alerts")
        page.get_by_role("button", name="Turn on").click()
        expect(page.get_by_text("Notifications arrive on this device.")).to_be_visible()
        published = site.call("GET", "/push/key")["key"]
        used = page.evaluate("window.serverKey.replaceAll('+', '-').replaceAll('/', '_')")
        assert used.rstrip("=") == published
        site.call("POST", f"/alerts/{alert['id']}/test", token)
        assert site.send_pushes() == 1
        (received,) = service.received
        assert f"k={published}" in received.headers["authorization"]
        told = keys.read(received.body)
        shown = deliver(page, site.url, told)
        assert shown == [("Test notification", "Your alert will look like this.")]
        page.get_by_role("button", name="Turn off").click()
        expect(page.get_by_role("button", name="Turn on")).to_be_visible()
        assert site.call("GET", "/push/devices", token) == []


def deliver(page: Page, origin: str, document: Any) -> list[tuple[str, str]]:
    """Hand a push to the page's service worker, as the browser does; what it shows then."""
    session = page.context.new_cdp_session(page)
    registrations: list[str] = []
    session.on(
        "ServiceWorker.workerRegistrationUpdated",
        lambda event: registrations.extend(
            each["registrationId"] for each in event["registrations"]
        ),
    )
    session.send("ServiceWorker.enable")
    page.wait_for_function("true")
    assert registrations
    given = {"origin": origin, "registrationId": registrations[0], "data": json.dumps(document)}
    session.send("ServiceWorker.deliverPushMessage", given)
    look = "navigator.serviceWorker.ready.then((ready) => ready.getNotifications())"
    found = until(
        lambda: page.evaluate(f"{look}.then((all) => all.map((n) => [n.title, n.body]))") or None
    )
    return [(title, body) for title, body in found]


def test_a_redeemed_deal_has_a_code_that_the_business_verifies_once(
    browser: Browser, site: Site
) -> None:
    login, token = site.person()
    staff = site.call("GET", "/me", token)["id"]
    site.rows(
        "INSERT INTO account_member SELECT account_id, %s, 'account_member' FROM hive WHERE id = 1",
        staff,
    )
    with (
        looking(browser, site.url, service_workers="block") as guest,
        looking(browser, site.url, NARROW) as counter,
    ):
        guest.goto("/#/deal/1")
        guest.locator("main").get_by_role("link", name="Sign in").click()
        guest_login, guest_token = site.person()
        guest.get_by_label("E-mail address").fill(guest_login)
        guest.get_by_label("Password").fill(PASSWORD)
        guest.get_by_label("Password").press("Enter")
        guest.get_by_role("button", name="Redeem").click()
        code = guest.locator(".ticket .code").inner_text()
        assert re.fullmatch(r"\w{4} \w{4}", code)
        sign_in(counter, login)
        counter.get_by_role("link", name="Check a code").click()
        counter.get_by_label("Code", exact=True).fill(code.lower())
        counter.get_by_role("button", name="Check").click()
        expect(counter.locator(".outcome")).to_contain_text("Valid")
        counter.get_by_label("Code", exact=True).fill(code)
        counter.get_by_role("button", name="Check").click()
        expect(counter.locator(".outcome")).to_contain_text("was used on")
        guest.reload()
        expect(guest.locator(".ticket")).to_contain_text("Used")

        def ended(route: Route) -> None:
            found = route.fetch().json()
            route.fulfill(
                json=[{**each, "verified_at": None, "expires_at": PAST} for each in found]
            )

        guest.route("**/v1/me/redemptions", ended)
        guest.route("**/v1/deals/1", lambda route: route.fulfill(status=404, json={}))
        guest.reload()
        expect(guest.locator(".ticket")).to_contain_text("Ended")
        expect(guest.locator(".ticket")).to_have_attribute("data-done", "true")
        guest.unroute_all()
        guest.goto("/#/hive/1")
        guest.get_by_label("4", exact=True).check(force=True)
        guest.get_by_label("What was it like?").fill(HOSTILE)
        guest.get_by_role("button", name="Send").click()
        expect(guest.locator("#notice")).to_contain_text("Thank you")
        messages = site.call("GET", "/messages", guest_token)["items"]
        assert [(each["rating"], each["content"]) for each in messages] == [(4, HOSTILE)]
        guest.goto("/#/inbox")
        expect(guest.get_by_text(HOSTILE)).to_be_visible()


def test_usage_is_sent_in_batches_without_cookies_and_not_after_an_opt_out(
    browser: Browser, site: Site
) -> None:
    def counted() -> int | None:
        found = site.rows(
            "SELECT count(*) AS n FROM user_analytics WHERE user_id IS NULL AND hive_id = 8 "
            "AND action = 'view'"
        )
        return int(found[0]["n"]) or None

    with looking(browser, site.url, service_workers="block") as page:
        posts: list[Any] = []
        page.on("request", lambda it: posts.append(it) if it.url.endswith("/v1/events") else None)
        page.clock.install()
        page.goto("/#/hive/8")
        expect(page.locator(".hero")).to_be_visible()
        page.goto("/#/deal/2")
        expect(page.locator(".deal")).to_be_visible()
        page.clock.fast_forward(11_000)
        assert until(counted) == 1
        assert len(posts) == 1
        actions = [each["action"] for each in posts[0].post_data_json["events"]]
        assert {"view", "deal_show", "deal_open"} <= set(actions)
        assert page.context.cookies() == []
        opened = (
            "SELECT id FROM deal_event WHERE deal_id = 2 AND kind = 'opened' AND user_id IS NULL"
        )
        assert len(site.rows(opened)) == 1
        page.goto("/#/privacy")
        page.get_by_label("Count what I view and search").uncheck()
        page.goto("/#/hive/8")
        expect(page.locator(".hero")).to_be_visible()
        page.clock.fast_forward(30_000)
        page.reload()
        expect(page.locator(".hero")).to_be_visible()
        assert len(posts) == 1


def test_a_place_shows_today_beside_the_forecast_and_the_best_time(
    browser: Browser, site: Site
) -> None:
    site.rows(
        """INSERT INTO occupancy_hour (hive_id, slot, entries, peak)
           SELECT 2, date_trunc('hour', now()), 17, 9 ON CONFLICT DO NOTHING"""
    )
    holiday = """{"2099-12-25": [], "2020-12-25": []}"""
    site.rows("UPDATE hive SET opening_hours = opening_hours || %s::jsonb WHERE id = 2", holiday)
    until(lambda: site.call("GET", "/hives/2/today")["hours"] or None)  # the next snapshot has it
    until(lambda: "2099-12-25" in site.call("GET", "/hives/2")["opening_hours"] or None)
    with looking(browser, site.url) as page:
        page.goto("/#/hive/2")
        expect(page.locator("svg.chart .dot").last).to_contain_text("17 today")
        expect(page.locator("svg.chart .line").first).to_be_visible()
        expect(page.get_by_text("All sensors report.")).to_be_visible()
        expect(page.locator(".hours tr")).to_have_count(8)  # days, and the holiday to come
        expect(page.locator(".hours tr").last).to_contain_text("closed")
        day = page.locator(".week .chip[aria-pressed=false]").first
        day.click()
        expect(page.locator(".advice")).to_have_text(re.compile(r"Best time to come: \d+:00 to"))
        expect(page.get_by_role("link", name="Directions")).to_have_attribute(
            "href", re.compile("openstreetmap")
        )


def test_hours_of_which_nothing_is_known_yet_are_not_drawn_as_empty(
    browser: Browser, site: Site
) -> None:
    """The sensors were heard last at ten: of the hours since then nothing is drawn."""
    noon = datetime.now(UTC).replace(hour=12, minute=30, second=0, microsecond=0)
    ten = noon.replace(hour=10, minute=5)
    with looking(browser, site.url, service_workers="block") as page:

        def told(route: Route) -> None:
            found = route.fetch().json()
            if route.request.url.endswith("/today"):
                found["hours"] = [{"slot": ten.replace(hour=8, minute=0).isoformat(), "entries": 7}]
            else:
                found["time_zone"] = "UTC"
                found["occupancy"]["as_of"] = ten.isoformat()
            route.fulfill(json=found)

        page.clock.set_fixed_time(noon)
        page.route("**/v1/live*", lambda route: route.abort())
        page.route("**/v1/hives/3", told)
        page.route("**/v1/hives/3/today", told)
        page.goto("/#/hive/3")
        dots = page.locator("svg.chart .dot")
        expect(dots.last).to_contain_text("10:00 · 0 today")
        assert "8:00 · 7 today" in dots.all_text_contents()


def test_an_hour_that_is_not_over_is_no_part_of_the_line_of_today(
    browser: Browser, site: Site
) -> None:
    now = datetime.now(UTC).replace(hour=12, minute=10, second=0, microsecond=0)
    with looking(browser, site.url, service_workers="block") as page:

        def told(route: Route) -> None:
            found = route.fetch().json()
            if route.request.url.endswith("/today"):
                slots = {10: 40, 11: 50, 12: 7}
                found["hours"] = [
                    {"slot": now.replace(hour=hour, minute=0).isoformat(), "entries": entries}
                    for hour, entries in slots.items()
                ]
            else:
                found["time_zone"] = "UTC"
                found["occupancy"]["as_of"] = now.isoformat()
            route.fulfill(json=found)

        page.clock.set_fixed_time(now)
        page.route("**/v1/live*", lambda route: route.abort())
        page.route("**/v1/hives/3", told)
        page.route("**/v1/hives/3/today", told)
        page.goto("/#/hive/3")
        dots = page.locator("svg.chart .dot")
        expect(dots.last).to_have_class("dot partial")
        expect(dots.last).to_have_text("12:00 · 7 today so far")
        expect(page.locator("svg.chart .dot.partial")).to_have_count(1)
        line = page.locator("svg.chart .line.counted").get_attribute("points") or ""
        assert len(line.split()) == dots.count() - 1 >= 2
        table = page.get_by_role("table").filter(has_text="Counted today")
        expect(table.locator("tr", has_text="12:00")).to_contain_text("7 so far")
        expect(page.locator(".key")).to_contain_text("this hour so far")


def test_a_weekday_on_which_a_place_is_closed_says_so(browser: Browser, site: Site) -> None:
    closed = (datetime.now(UTC).weekday() + 3) % 7  # nowhere today
    with looking(browser, site.url, service_workers="block") as page:

        def told(route: Route) -> None:
            found = route.fetch().json()
            if route.request.url.endswith("/typical-week"):
                found["hours"] = [each for each in found["hours"] if each["weekday"] != closed]
            else:
                found["opening_hours"][WEEKDAYS[closed]] = []
            route.fulfill(json=found)

        page.route("**/v1/hives/3", told)
        page.route("**/v1/hives/3/typical-week", told)
        page.goto("/#/hive/3")
        page.get_by_role("button", name=day_name[closed]).click()
        expect(page.get_by_text(f"Closed on {day_name[closed]}")).to_be_visible()
        expect(page.locator("svg.chart")).to_have_count(0)


def test_a_place_shows_its_cover_and_its_other_pictures(browser: Browser, site: Site) -> None:
    _, token = site.person()
    staff = site.call("GET", "/me", token)["id"]
    site.rows(
        "INSERT INTO account_member SELECT account_id, %s, 'account_admin' FROM hive WHERE id = 5",
        staff,
    )
    for colour, caption in (("teal", "The front"), ("olive", "The yard"), ("navy", "The bar")):
        picture = io.BytesIO()
        Image.new("RGB", (80, 60), colour).save(picture, "PNG")
        given = {"files": {"file": ("a.png", picture.getvalue())}, "data": {"caption": caption}}
        site.call("POST", "/hives/5/images", token, **given)
    until(lambda: len(site.call("GET", "/hives/5")["images"]) == 3 or None)
    with looking(browser, site.url) as page:
        page.goto("/#/hive/5")
        expect(page.locator("img.cover")).to_have_attribute("alt", "The front")
        others = page.get_by_role("group", name="Pictures").get_by_role("img")
        expect(others).to_have_count(2)
        for name in ("The front", "The yard", "The bar"):
            shown = page.get_by_role("img", name=name)
            shown.scroll_into_view_if_needed()
            expect(shown).to_have_js_property("complete", True)
            assert shown.evaluate("(found) => found.naturalWidth") > 0


def test_a_map_shows_places_on_a_background_of_its_own(browser: Browser, site: Site) -> None:
    with looking(browser, site.url) as page:
        page.goto("/#/map/1")
        expect(page.locator(".leaflet-popup")).to_contain_text("Amber Café")
        expect(page.locator("path.land")).to_have_count(1)
        page.get_by_role("link", name="Amber Café").click()
        expect(heading(page)).to_have_text("Amber Café")
        page.goto("/#/map")
        expect(page.locator(".pin").first).to_be_visible()
        numbers = page.locator(".pin.many").all_inner_texts()
        assert sum(map(int, numbers)) + page.locator(".pin:not(.many)").count() == HIVES


def test_a_badge_is_embedded_if_the_business_allows_it(browser: Browser, site: Site) -> None:
    _, token = site.person()
    staff = site.call("GET", "/me", token)["id"]
    site.rows(
        "INSERT INTO account_member SELECT account_id, %s, 'account_admin' FROM hive WHERE id = 7",
        staff,
    )
    given = {"badge": True, "name": f"{HOSTILE} & Sons"}
    site.call("PATCH", "/hives/7", token, json=given)
    until(lambda: site.call("GET", "/hives/7")["badge"] or None)
    site.tell(7, 9, percent=22.0, level="quiet", as_of=datetime.now(UTC).isoformat())
    with looking(browser, site.url) as page:
        assert page.request.get("/badge/1.svg").status == 404
        badge = page.request.get("/badge/7.svg")
        assert badge.headers["content-type"] == "image/svg+xml"
        page.goto("/badge/7.svg")
        expect(page.locator("text").first).to_have_text(f"{HOSTILE} & Sons"[:27] + "…")
        until(lambda: "Quiet" in page.request.get("/badge/7.svg").text() or None)
        german = page.request.get("/badge/7.svg", headers={"accept-language": "de-AT,de;q=0.9"})
        assert "Ruhig" in german.text()
        until(lambda: "<img" in page.request.get("/v1/hives?limit=48&sort=name").text() or None)
        until(lambda: "&lt;img" in page.request.get("/").text() or None)
        for path in ("/", "/#/hive/7", "/#/map/7"):  # a hostile name is text everywhere
            page.goto(path)
            expect(page.get_by_text(HOSTILE).first).to_be_visible()
        page.goto("/#/hive/7")
        expect(page.get_by_text("On your own page")).to_be_visible()
        assert page.title() != "owned"
