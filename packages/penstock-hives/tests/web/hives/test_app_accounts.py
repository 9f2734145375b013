"""Accounts of the app in a browser: sign-up, Firebase, passwords, profile, plan; offline use."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.web.browsing import PATIENCE
from tests.web.hives.public_site import HIVES, PASSWORD, Site, heading, sign_in, signed_in
from tests.web.hives.screens import SCREENS, looking

pytestmark = [
    pytest.mark.peer,
    pytest.mark.timeout(600),
    pytest.mark.parametrize("screen", SCREENS, indirect=True, scope="session"),
]
expect.set_options(timeout=PATIENCE)

HOSTILE = """<img src=x onerror="document.title='owned'">"""


def test_favourites_of_the_browser_are_in_the_account_after_signing_up(
    browser: Browser, site: Site
) -> None:
    with looking(browser, site.url) as page:
        page.goto("/")
        page.get_by_role("button", name="Favourite: Cedar Supermarket").click()
        page.get_by_role("link", name="Sign in").first.click()
        page.get_by_role("link", name="Create an account").click()
        expect(heading(page)).to_have_text("Create an account")
        page.get_by_label("E-mail address").fill("nobody")
        page.get_by_label("New password").fill("short")
        page.get_by_role("button", name="Create an account").click()
        expect(page.get_by_label("E-mail address")).to_have_attribute("aria-invalid", "true")
        page.get_by_label("E-mail address").fill("new@bees.example")
        page.get_by_label("New password").fill("aaaaaaaaaaaa")
        page.get_by_role("button", name="Create an account").click()
        expect(page.get_by_text("must have at least five different characters")).to_be_visible()
        page.get_by_label("New password").fill(PASSWORD)
        page.get_by_role("button", name="Create an account").click()
        expect(heading(page)).to_have_text("Your account")
        page.get_by_role("button", name="Sign out").click()
        expect(page.locator(".heart[aria-pressed=true]")).to_have_count(0)
    with looking(browser, site.url) as elsewhere:
        sign_in(elsewhere, "new@bees.example")
        elsewhere.goto("/#/hive/1")
        expect(heading(elsewhere)).to_have_text("Amber Café")
        elsewhere.goto("/#/favourites")
        expect(elsewhere.locator(".place h2").first).to_have_text("Cedar Supermarket")
        expect(elsewhere.get_by_role("heading", name="Recommended for you")).to_be_visible()
        lately = elsewhere.locator("h2:text-is('Seen lately') + ul")
        expect(lately.locator("h2")).to_have_text(["Amber Café"])
        popular = elsewhere.locator("h2:text-is('Popular this week') + ul")
        expect(popular.locator(".place")).to_have_count(3)


def test_a_place_is_among_those_seen_lately_at_once_and_then_in_the_account(
    browser: Browser, site: Site
) -> None:
    login, token = site.person()
    names = [site.call("GET", f"/hives/{hive}")["name"] for hive in (1, 4)]
    held: list[Route] = []
    with looking(browser, site.url, service_workers="block") as page:
        page.goto("/#/hive/4")  # before the sign-in
        expect(heading(page)).to_have_text(names[1])
        page.route(  # the others wait for the first
            "**/v1/me/recent/*", lambda route: route.continue_() if held else held.append(route)
        )
        sign_in(page, login)
        page.goto("/#/hive/1")
        expect(heading(page)).to_have_text(names[0])
        page.goto("/#/favourites")
        lately = page.locator("h2:text-is('Seen lately') + ul")
        expect(lately.locator("h2")).to_have_text(names)
        assert site.call("GET", "/me/recent", token) == []
        with page.expect_response("**/v1/me/recent/1"):
            held[0].continue_()
        assert [each["name"] for each in site.call("GET", "/me/recent", token)] == names
        page.reload()
        expect(lately.locator("h2")).to_have_text(names)


def test_firebase_signs_people_in_where_it_is_configured(browser: Browser, site: Site) -> None:
    """With the same forms; the service is played by the test."""
    _, token = site.person()
    urls = [f"{site.url}/accounts", f"{site.url}/tokens"]
    config = {"key": "web-key", "providers": ["google.com"], "urls": urls}
    asked: list[tuple[str, Any]] = []

    def firebase(route: Route) -> None:
        url, body = route.request.url, route.request.post_data_json
        asked.append((url.partition("accounts:")[2], body))
        if "createAuthUri" in url:
            told = {"authUri": f"{site.url}/?code=c0de&state=s", "sessionId": "held"}
            route.fulfill(json=told)
        elif "signInWithPassword" in url and PASSWORD not in str(body):
            route.fulfill(status=400, json={"error": {"message": "INVALID_LOGIN_CREDENTIALS"}})
        else:
            person = {"idToken": token, "refreshToken": "r", "expiresIn": "3600", "localId": "u"}
            route.fulfill(json=person)

    with looking(browser, site.url, service_workers="block") as page:
        page.route("**/page.json", lambda route: route.fulfill(json={"firebase": config}))
        page.route("**/v1/identity", lambda route: route.fulfill(json={"issuer": "other"}))
        page.route("**/accounts/**", firebase)
        page.goto("/#/sign-in")
        page.get_by_label("E-mail address").fill("ada@bees.example")
        page.get_by_label("Password").fill("wrong")
        page.get_by_label("Password").press("Enter")
        expect(page.get_by_text("the login or the password is wrong")).to_be_visible()
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_label("Password").press("Enter")
        expect(page.get_by_role("button", name="Sign out")).to_be_visible()
        page.get_by_role("button", name="Sign out").click()
        page.goto("/#/sign-in")
        page.get_by_role("button", name="Continue with Google").click()
        expect(page.get_by_role("button", name="Sign out")).to_be_visible()
    names = [what.partition("?")[0] for what, _ in asked]
    assert names[-2:] == ["createAuthUri", "signInWithIdp"]
    assert asked[-1][1]["sessionId"] == "held"
    assert "code=c0de" in asked[-1][1]["postBody"]
    assert asked[-1][0].endswith("key=web-key")


def test_a_forgotten_password_is_set_again_by_the_mailed_link(browser: Browser, site: Site) -> None:
    login, _ = site.person()
    with looking(browser, site.url) as page:
        page.goto("/#/sign-in")
        page.get_by_label("E-mail address").fill(login)
        page.get_by_label("Password").fill("not this one")
        page.locator("form.form").get_by_role("button", name="Sign in").click()
        expect(page.get_by_text("the login or the password is wrong")).to_be_visible()
        page.get_by_role("link", name="Forgot your password?").click()
        expect(heading(page)).to_have_text("Forgot your password?")
        page.get_by_label("E-mail address").fill(login)
        page.get_by_role("button", name="Send me a link").click()
        expect(heading(page)).to_have_text("Look into your mail")
        link = re.search(r"http\S+(/#/reset/\S+)", site.letter(login))
        assert link is not None
        page.goto(link[1])
        expect(heading(page)).to_have_text("Set a new password")
        page.get_by_label("New password").fill("ten green bottles")
        page.get_by_role("button", name="Set password").click()
        expect(heading(page)).to_have_text("Sign in")
        sign_in(page, login, "ten green bottles")
        page.goto(link[1])
        page.get_by_label("New password").fill("eleven green bottles")
        page.get_by_role("button", name="Set password").click()
        expect(page.get_by_text("the link is invalid or has expired")).to_be_visible()


def test_profile_password_address_export_and_deletion(browser: Browser, site: Site) -> None:
    with signed_in(browser, site) as (page, login, _):
        page.get_by_label("Nickname").fill(HOSTILE[:40])
        page.get_by_role("button", name="Save").click()
        expect(page.locator("#notice")).to_have_text("Saved.")
        page.reload()
        expect(heading(page)).to_have_text(HOSTILE[:40])
        change = page.locator("form", has=page.get_by_label("Old password"))
        change.get_by_label("Old password").fill("not this one")
        change.get_by_label("New password").fill("ten green bottles")
        change.get_by_role("button").click()
        expect(change.get_by_text("is wrong")).to_be_visible()
        change.get_by_label("Old password").fill(PASSWORD)
        change.get_by_role("button").click()
        expect(page.locator("#notice")).to_contain_text("Other devices are signed out")
        move = page.locator("form", has=page.get_by_label("New address"))
        move.get_by_label("New address").fill(f"other-{login}")
        move.get_by_label("Password").fill("ten green bottles")
        move.get_by_role("button").click()
        link = re.search(r"http\S+(/#/confirm/\S+)", site.letter(f"other-{login}"))
        assert link is not None
        page.goto(link[1])
        page.get_by_role("button", name="Confirm").click()
        expect(page.get_by_text(f"other-{login}")).to_be_visible()
        with page.expect_download() as download:
            page.get_by_role("button", name="Export my data").click()
        exported = json.loads(Path(download.value.path()).read_text())
        assert exported["login"][0]["login"] == f"other-{login}"
        page.get_by_role("button", name="Delete my account").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="Delete my account").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete my account").click()
        expect(page.locator("#notice")).to_have_text("Your account is deleted.")
        assert site.rows("SELECT uid FROM credential WHERE login = %s", f"other-{login}") == []


def test_a_plan_is_bought_in_the_app_and_cancelled(browser: Browser, site: Site) -> None:
    with signed_in(browser, site) as (page, _, token):
        page.goto("/#/favourites")
        expect(page.get_by_text("are part of the plan premium")).to_be_visible()
        page.get_by_role("link", name="Plans").click()
        expect(heading(page)).to_have_text("Your plan")
        page.get_by_role("button", name="Choose Premium").click()
        held = page.locator(".note", has_text="Premium")
        expect(held).to_contain_text("Renews on")
        expect(page.get_by_text("Purchase · Premium · €4.99")).to_be_visible()
        assert site.call("GET", "/me", token)["plan"] == "premium"
        held.get_by_role("button", name="Cancel the plan").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel the plan").click()
        expect(held).to_contain_text("Ends on")
        page.goto("/#/favourites")
        expect(page.get_by_role("heading", name="Recommended for you")).to_be_visible()
        expect(page.get_by_text("are part of the plan premium")).to_be_hidden()


#: By the service worker, which takes over pages that are open.
CONTROLLED = """new Promise((done) => {
  const { serviceWorker } = navigator;
  if (serviceWorker.controller) done();
  else serviceWorker.addEventListener("controllerchange", () => done());
})"""


def test_without_a_connection_the_last_figures_are_shown_with_their_age(
    browser: Browser, site: Site
) -> None:
    with looking(browser, site.url) as page:
        page.goto("/")
        expect(page.locator(".place")).to_have_count(HIVES)
        page.evaluate(CONTROLLED)  # at the first visit
        page.goto("/#/hive/1")
        expect(page.locator(".hero")).to_be_visible()
        page.context.set_offline(True)
        page.reload()
        expect(heading(page)).to_have_text("Amber Café")
        expect(page.locator("#pulse")).to_contain_text("Offline")
        page.goto("/#/")
        expect(page.locator(".place")).to_have_count(HIVES)
        expect(page.locator(".place .age").first).to_be_visible()
        page.goto("/#/deals")  # which was not opened before
        expect(page.get_by_text("There is no connection")).to_be_visible()
        page.goto("/#/hive/4")
        expect(page.get_by_text("There is no connection")).to_be_visible()
        page.context.set_offline(False)
