"""The console in Chromium: one overlay of brokers and one browser for all tests."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

pytest.importorskip("playwright", reason="playwright is not installed; `make test` installs it")

from playwright.sync_api import Browser, Locator, Page, Route, expect

from penstock.cli.overlay import BROKERS
from tests.web.browsing import NARROW, PATIENCE, looking, serving
from tests.web.contrast import faint

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]
expect.set_options(timeout=PATIENCE)

HOSTILE = "<img src=x onerror=alert(1)>"
DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.dead"}


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    command = ("-m", "penstock", "overlay", "demo", "--listen", "http://127.0.0.1:0")
    with serving(*command, "--stop-with-stdin") as ready:
        yield ready.partition("/#")[0]


@pytest.fixture(scope="module")
def api(url: str) -> Iterator[httpx.Client]:
    """With queues, dead letters and a user without permissions."""
    with httpx.Client(base_url=f"{url}/api", auth=("guest", "guest"), timeout=60) as client:
        for number in range(60):
            client.put(f"/queues/%2F/bulk-{number:02}", json={})
        client.put("/queues/%2F/orders", json={"durable": True, "arguments": DEAD})
        client.put("/queues/%2F/orders.dead", json={"durable": True})
        client.put(f"/queues/%2F/{quote(HOSTILE, safe='')}", json={})
        for number in range(3):
            publish(client, "orders", {"n": number, "total": number * 100})
        reject = {"count": 3, "ackmode": "reject_requeue_false", "encoding": "auto"}
        client.post("/queues/%2F/orders/get", json=reject)
        client.put("/users/ada", json={"password": "ada", "tags": "management"})
        nothing = {"configure": "^$", "write": "^$", "read": "^$"}
        client.put("/permissions/%2F/ada", json=nothing)
        yield client


def publish(api: httpx.Client, key: str, payload: object) -> None:
    body: dict[str, Any] = {"properties": {"delivery_mode": 2}, "payload_encoding": "string"}
    body |= {"routing_key": key, "payload": json.dumps(payload)}
    api.post("/exchanges/%2F/amq.default/publish", json=body).raise_for_status()


@pytest.fixture
def page(browser: Browser, url: str, api: httpx.Client) -> Iterator[Page]:
    with looking(browser, url) as opened:
        sign_in(opened)
        expect(opened.get_by_role("heading", level=1)).to_have_text("Overview")
        yield opened


def sign_in(page: Page, user: str = "guest", password: str = "guest") -> None:
    page.goto("/")
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()


def go(page: Page, place: str, title: str) -> None:
    page.evaluate("place => { location.hash = place; }", f"#/{place}")
    expect(page.get_by_role("heading", level=1)).to_have_text(title)


def press(page: Page | Locator, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def submit(page: Page, name: str) -> None:
    press(page.get_by_role("dialog"), name)
    expect(page.get_by_role("dialog")).to_have_count(0)


def messages(api: httpx.Client, queue: str) -> list[Any]:
    found = api.get(f"/queues/%2F/{queue}/messages").json()["messages"]
    return [json.loads(row["payload"]) for row in found]


def test_an_address_that_changes_before_the_sign_in_is_finished_is_shown_after_it(
    browser: Browser, url: str, api: httpx.Client
) -> None:
    with looking(browser, url) as page:
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(error.message))

        def move(route: Route) -> None:
            page.evaluate("""() => new Promise(done => {
              addEventListener("hashchange", () => setTimeout(done), { once: true });
              location.hash = "#/queues";
            })""")
            route.continue_()

        page.route("**/api/whoami", move, times=1)
        sign_in(page)
        expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
        assert errors == []


def test_a_wrong_password_is_refused_and_the_right_one_shows_live_figures(
    browser: Browser, url: str, api: httpx.Client
) -> None:
    with looking(browser, url) as page:
        sign_in(page, password="wrong")
        expect(page.get_by_role("alert")).to_have_text("Login failed")
        sign_in(page)
        figure = page.locator("a.tile", has_text="messages in queues").locator("b")
        before = int(figure.inner_text().replace(",", ""))
        publish(api, "bulk-59", 1)
        expect(figure).to_have_text(f"{before + 1:,}")
        expect(page.locator(".chart").first).to_be_visible()
        press(page, "Sign out")
        expect(page.get_by_role("button", name="Sign in")).to_be_visible()


def test_lists_are_paged_sorted_and_filtered_by_the_broker(page: Page, api: httpx.Client) -> None:
    names = sorted(row["name"] for row in api.get("/queues?columns=name").json())
    page.keyboard.press("g")
    page.keyboard.press("q")
    expect(page.locator("tbody tr")).to_have_count(50)
    expect(page.locator(".pager")).to_contain_text(f"1–50 of {len(names)}")
    expect(page.locator("td.name").first).to_have_text(HOSTILE)
    press(page, "Next ›")
    expect(page.locator("tbody tr")).to_have_count(len(names) - 50)
    page.locator("th button", has_text="Name").click()
    expect(page.locator("td.name").first).to_have_text(names[-1])
    page.locator("h1").click()
    page.keyboard.press("/")
    page.keyboard.type("bulk-0")
    expect(page.locator("tbody tr")).to_have_count(10)
    page.reload()  # the filter is in the address
    expect(page.locator("tbody tr")).to_have_count(10)


def test_a_queue_is_declared_bound_filled_browsed_moved_and_deleted(
    page: Page, api: httpx.Client
) -> None:
    go(page, "queues", "Queues")
    press(page, "Declare queue")
    page.get_by_label("Name", exact=True).fill("new")
    page.get_by_label("Add to Arguments").select_option("x-max-length")
    submit(page, "Declare")
    expect(page.get_by_role("heading", level=1)).to_have_text("new")
    press(page, "Bind")
    page.get_by_label("Routing key").fill("prices.#")
    submit(page, "Bind")
    expect(page.locator("code", has_text="prices.#")).to_be_visible()
    for total in (5, 500):
        press(page, "Publish")
        page.get_by_label("Payload", exact=True).fill(json.dumps({"total": total}))
        submit(page, "Publish")
    page.get_by_role("link", name="Browse").click()
    expect(page.locator(".message")).to_have_count(2)
    page.get_by_label("Content").fill("[total,>,100]")
    press(page, "Browse")
    expect(page.locator(".message")).to_have_count(1)
    press(page, "Redrive")
    page.get_by_role("dialog").get_by_label("To", exact=True).select_option("queue")
    page.get_by_label("Name of the queue").fill("bulk-00")
    submit(page, "Redrive")
    expect(page.locator(".empty")).to_have_text("No messages")
    assert messages(api, "bulk-00") == [{"total": 500}]
    assert messages(api, "new") == [{"total": 5}]
    go(page, "queue/%2F/new", "new")
    press(page, "Purge")
    submit(page, "Purge")
    expect(page.locator("dl.facts")).to_contain_text("Ready0")
    press(page, "Delete")
    submit(page, "Delete")
    expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
    assert api.get("/queues/%2F/new").status_code == 404


def test_dead_letters_have_a_history_and_are_redriven_edited_or_unchanged(
    page: Page, api: httpx.Client
) -> None:
    go(page, "dead-letters", "Dead letters")
    page.get_by_role("link", name="orders.dead").click()
    expect(page.locator(".message")).to_have_count(3)
    expect(page.locator(".message").first).to_contain_text("rejected")
    press(page.locator(".message").nth(1), "Edit")
    page.get_by_label(re.compile("^Payload")).fill('{"n": 1, "total": 111}')
    submit(page, "Redrive")
    expect(page.locator(".message")).to_have_count(2)
    page.get_by_label(re.compile("^Select message")).first.check()
    press(page, "Redrive")
    submit(page, "Redrive")
    expect(page.locator(".message")).to_have_count(1)
    assert messages(api, "orders") == [{"n": 1, "total": 111}, {"n": 0, "total": 0}]
    press(page, "Discard")
    submit(page, "Discard")
    expect(page.locator(".message")).to_have_count(0)


def test_the_user_s_permissions_apply(browser: Browser, url: str, api: httpx.Client) -> None:
    with looking(browser, url) as page:
        sign_in(page, "ada", "ada")
        expect(page.get_by_role("link", name="Queues", exact=True)).to_be_visible()
        expect(page.get_by_role("link", name="Users", exact=True)).to_have_count(0)
        go(page, "queue/%2F/orders", "orders")
        press(page, "Purge")
        press(page.get_by_role("dialog"), "Purge")
        expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("access to queue")
        go(page, "messages/%2F/orders", "Error")
        expect(page.locator("main").get_by_role("alert")).to_contain_text("access to queue")


def test_users_and_policies_are_administered(page: Page, api: httpx.Client) -> None:
    go(page, "users", "Users")
    press(page, "Add user")
    page.get_by_label("Name", exact=True).fill("ben")
    page.get_by_label("Password").fill("secret")
    submit(page, "Save")
    expect(page.get_by_role("heading", level=1)).to_have_text("ben")
    page.get_by_role("button", name="Set").first.click()
    page.get_by_label("write", exact=True).fill("^orders")
    submit(page, "Save")
    expect(page.locator("code", has_text="^orders")).to_be_visible()
    press(page.locator(".head"), "Edit")  # without a new password the old one stays
    page.get_by_label("Tag monitoring").check()
    submit(page, "Save")
    expect(page.locator(".head .pill", has_text="monitoring")).to_be_visible()
    who = httpx.get(f"{api.base_url}whoami", auth=("ben", "secret")).json()
    assert sorted(who["tags"]) == ["management", "monitoring"]
    go(page, "policies", "Policies")
    page.get_by_role("button", name="Add", exact=True).first.click()
    page.get_by_label("Name", exact=True).fill("short")
    page.get_by_label("Pattern of names").fill("^bulk")
    page.get_by_label("Add to Definition").select_option("max-length")
    submit(page, "Save")
    expect(page.locator("td.name", has_text="short")).to_be_visible()
    assert api.get("/queues/%2F/bulk-01").json()["policy"] == "short"


#: The size of the picture, and where brokers are.
PLACES = """() => {
  const picture = document.querySelector(".map svg");
  const circles = [...picture.querySelectorAll(".broker circle:not(.client)")];
  return [picture.clientWidth, picture.clientHeight,
    ...circles.map(one => [one.cx.baseVal.value, one.cy.baseVal.value])];
}"""


def broker(page: Page, name: str) -> Locator:
    return page.locator(f"[data-broker={name}]")


def test_the_overlay_is_drawn_in_seven_layouts(page: Page) -> None:
    go(page, "overlay", "Overlay")
    expect(page.locator(".head").first).to_contain_text("6 brokers, 5 links")
    expect(page.locator(".broker text")).to_have_text(sorted(BROKERS))
    choice = page.get_by_role("combobox", name="Layout")
    layouts = choice.locator("option").all_inner_texts()
    drawn = set()
    for layout in layouts:
        choice.select_option(layout)
        width, height, *places = page.evaluate(PLACES)
        assert len(places) == len(BROKERS)
        for number, (x, y) in enumerate(places):
            assert 17 <= x <= width - 17, layout
            assert 17 <= y <= height - 17, layout
            assert all(abs(x - a) + abs(y - b) > 40 for a, b in places[:number]), layout
        drawn.add(json.dumps(places))
    assert len(drawn) == len(layouts) == 7


def test_a_publication_is_injected_and_its_hops_are_marked(page: Page) -> None:
    go(page, "overlay", "Overlay")
    expect(page.locator(".head").first).to_contain_text("6 brokers")
    broker(page, "Oslo").focus()
    page.keyboard.press("Enter")
    expect(page.locator("aside h2")).to_have_text("Oslo")
    press(page.locator("aside"), "Inject")
    page.get_by_label("Messages, one per line").fill("[class,quote],[symbol,'IBM'],[price,7]")
    submit(page, "Inject")
    card = page.locator(".card", has_text="Trace of a message")
    for place in ("Berlin", "London", "Paris", "Rome", "Rome-ada", "Rome-ben"):
        expect(card.get_by_role("cell", name=place, exact=True).first).to_be_visible()
    expect(page.locator(".link.hop")).to_have_count(4)


def test_messages_of_a_file_are_injected_one_at_a_time_and_a_trace_is_found_again(
    page: Page, tmp_path: Path
) -> None:
    lines = tmp_path / "quotes.txt"
    quotes = ("[class,quote],[symbol,'IBM'],[price,7]", "", "[class,quote],[symbol,'X'],[price,8]")
    lines.write_text("\n".join(quotes))
    go(page, "overlay", "Overlay")
    expect(page.locator(".head").first).to_contain_text("6 brokers")
    press(page.locator(".head").first, "Inject")
    page.get_by_label("At", exact=True).select_option("Oslo")
    page.get_by_label("Or a file of them").set_input_files(lines)
    page.get_by_label("One at a time").check()
    press(page.get_by_role("dialog"), "Inject")
    rest = page.get_by_label("Messages, one per line")
    expect(rest).to_have_value("[class,quote],[symbol,'X'],[price,8]")
    trace = page.get_by_label("Id of a trace")
    first = trace.input_value()
    submit(page, "Inject")
    expect(trace).not_to_have_value(first)
    trace.fill(first)
    trace.press("Enter")
    card = page.locator(".card", has_text="Trace of a message")
    expect(card.get_by_role("cell", name="Berlin", exact=True).first).to_be_visible()
    trace.fill("absent")
    trace.press("Enter")
    expect(card).to_contain_text("no trace 'absent'")
    press(page.locator(".head").first, "Inject")
    press(page.get_by_role("dialog"), "Inject")
    expect(page.get_by_role("dialog").get_by_role("alert")).to_have_text("No message is given")


def test_a_broker_is_stopped_its_failure_logged_and_resumed(page: Page) -> None:
    go(page, "overlay", "Overlay")
    aside = page.locator("aside")
    press(aside, "Paris")
    press(aside, "Heartbeat")
    page.get_by_label("Interval").fill("0.2")
    page.get_by_label("Timeout").fill("0.2")
    submit(page, "Save")
    expect(aside).to_contain_text("every 0.2 s")
    press(aside, "All brokers")
    press(aside, "Madrid")
    press(aside, "Stop")
    failures = page.locator(".card", has_text="Failures")
    expect(failures).to_contain_text("detected")
    press(aside, "Resume")
    expect(failures).to_contain_text("cleared")


def test_a_link_is_disconnected_and_connected_again(page: Page) -> None:
    go(page, "overlay", "Overlay")
    aside, head = page.locator("aside"), page.locator(".head").first
    expect(head).to_contain_text("6 brokers, 5 links")
    press(aside, "Berlin")
    address = aside.locator("dl.facts code").first.inner_text()
    press(aside, "All brokers")
    press(aside, "London")
    press(aside, "Disconnect")
    page.get_by_label("From").select_option("Berlin")
    submit(page, "Disconnect")
    expect(head).to_contain_text("4 links")
    press(aside, "Connect")
    page.get_by_label("Address").fill(address)
    submit(page, "Connect")
    expect(head).to_contain_text("6 brokers, 5 links")
    expect(page.locator(".link.down")).to_have_count(0)


@pytest.mark.parametrize("shade", ["light", "dark"])
def test_it_fits_a_phone_and_can_be_read(
    browser: Browser, url: str, api: httpx.Client, shade: str
) -> None:
    with looking(browser, url, NARROW, shade) as page:
        sign_in(page)
        expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        for place, title in (
            *(("overview", "Overview"), ("queues", "Queues"), ("overlay", "Overlay")),
            *(("queue/%2F/orders", "orders"), ("messages/%2F/orders", "Messages of orders")),
            *(("mqtt", "MQTT clients and sessions"), ("user/guest", "guest")),
        ):
            go(page, place, title)
            assert page.evaluate("document.documentElement.scrollWidth") <= NARROW[0], place
            assert faint(page) == [], place
        press(page, "Menu")
        page.get_by_role("link", name="Connections").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Connections")
        expect(page.get_by_role("link", name="Exchanges", exact=True)).not_to_be_visible()
