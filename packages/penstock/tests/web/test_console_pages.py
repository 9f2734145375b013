"""Pages of the console in Chromium at one broker: tracing, streams, definitions, shovels and
federation."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("playwright", reason="playwright is not installed; `make test` installs it")

from playwright.sync_api import Browser, Locator, Page, expect

from tests.fixtures import running
from tests.peers import Penstock
from tests.web.accessibility import serious_findings, tab_to
from tests.web.browsing import NARROW, PATIENCE, looking
from tests.web.contrast import faint

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]
expect.set_options(timeout=PATIENCE)

DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "traced.dead"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Penstock]:
    with running(Penstock(tmp_path_factory.mktemp("console"), mqtt=True)) as server:
        yield server


@pytest.fixture(scope="module")
def api(broker: Penstock) -> Iterator[httpx.Client]:
    url = f"{broker.http_url}/api"
    with httpx.Client(base_url=url, auth=("guest", "guest"), timeout=60) as client:
        client.put("/queues/%2F/traced", json={"durable": True, "arguments": DEAD})
        client.put("/queues/%2F/traced.dead", json={"durable": True})
        client.put("/users/ada", json={"password": "ada", "tags": "management"})
        client.put("/permissions/%2F/ada", json={"configure": ".*", "write": ".*", "read": ".*"})
        yield client


@pytest.fixture
def page(browser: Browser, broker: Penstock, api: httpx.Client) -> Iterator[Page]:
    with looking(browser, broker.http_url) as opened:
        sign_in(opened)
        yield opened


def sign_in(page: Page, user: str = "guest") -> None:
    page.goto("/")
    page.get_by_label("User").fill(user)
    page.get_by_label("Password").fill(user)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Overview")


def go(page: Page, place: str, title: str) -> None:
    page.evaluate("place => { location.hash = place; }", f"#/{place}")
    expect(page.get_by_role("heading", level=1)).to_have_text(title)


def press(page: Page | Locator, name: str) -> None:
    page.get_by_role("button", name=name, exact=True).click()


def submit(page: Page, name: str) -> None:
    press(page.get_by_role("dialog"), name)
    expect(page.get_by_role("dialog")).to_have_count(0)


def card(page: Page, title: str) -> Locator:
    heading = page.get_by_role("heading", name=title, exact=True)
    return page.locator("section.card", has=heading)


def publish(api: httpx.Client, key: str, payload: str = "x", exchange: str = "amq.default") -> None:
    body: dict[str, Any] = {"properties": {"delivery_mode": 2}, "payload_encoding": "string"}
    body |= {"routing_key": key, "payload": payload}
    api.post(f"/exchanges/%2F/{exchange}/publish", json=body).raise_for_status()


def take(api: httpx.Client, queue: str, ackmode: str) -> None:
    body = {"count": 1, "ackmode": ackmode, "encoding": "auto"}
    api.post(f"/queues/%2F/{queue}/get", json=body).raise_for_status()


def test_a_trace_is_started_followed_filtered_and_stopped(page: Page, api: httpx.Client) -> None:
    page.keyboard.press("g")
    page.keyboard.press("t")
    expect(page.get_by_role("heading", level=1)).to_have_text("Tracing")
    expect(page.locator(".head")).to_contain_text("not recording")
    press(page, "Start trace")
    page.get_by_label("Routing keys, one pattern per line").fill("traced\ntraced.*")
    page.get_by_label("Sample in percent").fill("0")
    press(page.get_by_role("dialog"), "Start")
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("sample: a share")
    page.get_by_label("Sample in percent").fill("100")
    submit(page, "Start")
    expect(card(page, "Recording")).to_contain_text("traced.*")
    expect(card(page, "Recording")).to_contain_text("every message")
    assert api.get("/message-traces/%2F").json()["rules"]["keys"] == ["traced", "traced.*"]

    publish(api, "traced")
    publish(api, "traced.nowhere")
    publish(api, "other")  # not selected
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(rows.first).to_contain_text("unroutable")
    page.get_by_label("Queue", exact=True).fill("traced")
    press(page, "Filter")
    expect(rows).to_have_count(1)
    page.reload()  # the filter is in the address
    expect(rows).to_have_count(1)
    rows.first.get_by_role("link").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Timeline")
    events = page.locator(".timeline b")
    expect(events).to_have_text(["published", "routed", "stored"])
    take(api, "traced", "reject_requeue_false")  # the page is live
    take(api, "traced.dead", "ack_requeue_false")
    expect(events).to_have_text(
        [
            *("published", "routed", "stored", "delivered", "rejected", "dead-lettered"),
            *("republished", "routed", "stored", "delivered", "acknowledged"),
        ]
    )
    dead = page.locator(".timeline li", has_text="dead-lettered")
    expect(dead).to_contain_text("rejected")
    expect(dead.get_by_role("link", name="traced", exact=True)).to_be_visible()
    page.get_by_role("link", name="Tracing").last.click()
    expect(rows).to_have_count(2)
    page.get_by_label("Event", exact=True).select_option("dead-lettered")
    press(page, "Filter")
    expect(rows).to_have_count(1)
    press(page, "Clear")
    expect(rows).to_have_count(2)
    press(page, "Stop trace")
    expect(page.locator(".head")).to_contain_text("not recording")
    expect(rows).to_have_count(2)
    assert api.get("/message-traces/%2F").json()["rules"] is None
    press(page, "Switch firehose on")
    submit(page, "Switch on")
    expect(card(page, "Recording")).to_contain_text("amq.rabbitmq.trace")
    press(page, "Switch firehose off")
    expect(page.get_by_role("button", name="Switch firehose on")).to_be_visible()


def test_tracing_is_for_administrators(browser: Browser, broker: Penstock, api: Any) -> None:
    with looking(browser, broker.http_url) as page:
        sign_in(page, "ada")
        expect(page.get_by_role("link", name="Queues", exact=True)).to_be_visible()
        expect(page.get_by_role("link", name="Tracing")).to_have_count(0)
        go(page, "traces", "Tracing")
        expect(card(page, "Recording")).to_contain_text("Not administrator user")
        expect(page.get_by_role("button", name="Start trace")).to_have_count(0)


@pytest.mark.parametrize("shade", ["light", "dark"])
def test_tracing_fits_a_phone_can_be_read_and_used_by_keys(
    browser: Browser, broker: Penstock, api: httpx.Client, shade: str
) -> None:
    api.put("/message-traces/%2F", json={}).raise_for_status()
    publish(api, "traced")
    take(api, "traced", "reject_requeue_false")
    [row] = api.get("/message-timelines/%2F").json()
    with looking(browser, broker.http_url, NARROW, shade) as page:
        sign_in(page)
        go(page, "traces", "Tracing")
        expect(page.locator("tbody tr")).to_have_count(1)
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW[0]
        assert faint(page) == []
        assert serious_findings(page) == []
        tab_to(page, "Stop trace")
        page.keyboard.press("Enter")
        expect(page.locator(".head")).to_contain_text("not recording")
        go(page, f"trace/%2F/{row['trace_id']}", "Timeline")
        expect(page.locator(".timeline li", has_text="dead-lettered")).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW[0]
        assert faint(page) == []
        assert serious_findings(page) == []


def test_a_stream_is_declared_filled_browsed_copied_and_deleted(
    page: Page, api: httpx.Client
) -> None:
    go(page, "streams", "Streams")
    press(page, "Declare stream")
    page.get_by_label("Name", exact=True).fill("readings")
    submit(page, "Declare")
    expect(page.get_by_role("heading", level=1)).to_have_text("readings")
    expect(page.get_by_role("button", name="Purge")).to_have_count(0)
    press(page, "Bind")
    page.get_by_label("Routing key").fill("readings.#")
    submit(page, "Bind")
    expect(page.locator("code", has_text="readings.#")).to_be_visible()
    for value in (1, 20):
        publish(api, "readings.north", json.dumps({"value": value}), "amq.topic")
    expect(page.locator("dl.facts")).to_contain_text("0 to 2")
    go(page, "messages/%2F/readings?offset=first", "Messages of readings")
    expect(page.locator(".message")).to_have_count(2)
    page.get_by_label("Content").fill("[value,>,10]")
    press(page, "Browse")
    expect(page.locator(".message")).to_have_count(1)
    api.put("/queues/%2F/copies", json={})
    press(page, "Copy")
    page.get_by_role("dialog").get_by_label("To", exact=True).select_option("queue")
    page.get_by_label("Name of the queue").fill("copies")
    submit(page, "Copy")
    [copy] = api.get("/queues/%2F/copies/messages").json()["messages"]
    assert copy["payload"] == '{"value": 20}'
    go(page, "streams", "Streams")
    row = page.locator("tbody tr", has_text="readings")
    expect(row).to_contain_text("2")
    row.get_by_role("link").click()
    press(page, "Delete")
    submit(page, "Delete")
    expect(page.get_by_role("heading", level=1)).to_have_text("Streams")
    assert api.get("/queues/%2F/readings").status_code == 404


def test_definitions_are_exported_and_imported(
    page: Page, api: httpx.Client, tmp_path: Path
) -> None:
    api.put("/queues/%2F/exported", json={"durable": True})
    go(page, "definitions", "Definitions")
    press(page, "Export")
    with page.expect_download() as downloaded:
        submit(page, "Export")
    file = tmp_path / "definitions.json"
    downloaded.value.save_as(file)
    found = json.loads(file.read_text())
    assert "exported" in [queue["name"] for queue in found["queues"]]
    assert "guest" in [user["name"] for user in found["users"]]
    api.delete("/queues/%2F/exported")
    press(page, "Import")
    page.get_by_label("File").set_input_files(file)
    submit(page, "Import")
    assert api.get("/queues/%2F/exported").status_code == 200
    file.write_text("not JSON")
    press(page, "Import")
    page.get_by_label("File").set_input_files(file)
    press(page.get_by_role("dialog"), "Import")
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("is not JSON")


def test_a_shovel_and_an_upstream_are_added_watched_and_removed(
    page: Page, api: httpx.Client, broker: Penstock
) -> None:
    for name in ("from", "to"):
        api.put(f"/queues/%2F/{name}", json={"durable": True})
    go(page, "transfers", "Shovels and federation")
    press(page, "Add")
    page.get_by_label("Name", exact=True).fill("mover")
    value = {"src-protocol": "amqp091", "src-uri": broker.url, "src-queue": "from"}
    value |= {"dest-protocol": "amqp091", "dest-uri": broker.url, "dest-queue": "to"}
    page.get_by_label("Value", exact=True).fill(json.dumps(value))
    submit(page, "Save")
    shovel = card(page, "Shovels").locator("tbody tr", has_text="mover")
    expect(shovel).to_contain_text("running")
    press(page, "Add")
    page.get_by_label("Component").select_option("federation-upstream")
    page.get_by_label("Name", exact=True).fill("north")
    page.get_by_label("Value", exact=True).fill(json.dumps({"uri": broker.url}))
    submit(page, "Save")
    rows = card(page, "Configuration").locator("tbody tr")
    expect(rows).to_have_count(2)
    for name in ("mover", "north"):
        press(rows.filter(has_text=name), "Delete")
        submit(page, "Delete")
        expect(rows.filter(has_text=name)).to_have_count(0)
    expect(card(page, "Shovels")).to_contain_text("None")
