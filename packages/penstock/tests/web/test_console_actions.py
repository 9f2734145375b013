"""Every action of the console in Chromium at one broker, with the mouse and by keys alone."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import paho.mqtt.client as paho
import pika
import pytest
from paho.mqtt.enums import CallbackAPIVersion

pytest.importorskip("playwright", reason="playwright is not installed; `make test` installs it")

from playwright.sync_api import Browser, Page, expect

from tests.fixtures import running
from tests.peers import START_SECONDS, Penstock
from tests.web.accessibility import serious_findings, tab_to
from tests.web.browsing import NARROW, PATIENCE, WIDE, looking
from tests.web.contrast import faint
from tests.web.test_console_pages import card, go, press, sign_in, submit

pytestmark = [pytest.mark.peer, pytest.mark.timeout(600)]
expect.set_options(timeout=PATIENCE)

QUEUES = 10_000
NOTHING = {"configure": "^$", "write": "^$", "read": "^$"}
#: Every page with its heading; details are of what the fixture `api` declares.
PAGES = {
    "overview": "Overview",
    "connections": "Connections",
    "channels": "Channels",
    "exchanges": "Exchanges",
    "exchange/%2F/amq.topic": "amq.topic",
    "queues": "Queues",
    "queue/%2F/work": "work",
    "messages/%2F/work": "Messages of work",
    "streams": "Streams",
    "dead-letters": "Dead letters",
    "delayed": "Delayed messages",
    "traces": "Tracing",
    "mqtt": "MQTT clients and sessions",
    "subscriptions": "MQTT subscriptions",
    "retained": "Retained messages",
    "overlay": "Overlay",
    "content": "Content console",
    "cluster": "Cluster",
    "users": "Users",
    "user/guest": "guest",
    "vhosts": "Virtual hosts",
    "policies": "Policies",
    "transfers": "Shovels and federation",
    "definitions": "Definitions",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Penstock]:
    with running(Penstock(tmp_path_factory.mktemp("actions"), mqtt=True)) as server:
        yield server


@pytest.fixture(scope="module")
def api(broker: Penstock) -> Iterator[httpx.Client]:
    """With ten thousand queues, a user without permissions and a retained message."""
    url = f"{broker.http_url}/api"
    with httpx.Client(base_url=url, auth=("guest", "guest"), timeout=120) as client:
        many = [{"name": f"many-{n:04}", "vhost": "/", "durable": False} for n in range(QUEUES)]
        client.post("/definitions", json={"queues": many}).raise_for_status()
        client.put("/queues/%2F/work", json={"durable": True}).raise_for_status()
        client.put("/users/ada", json={"password": "ada", "tags": "policymaker"})
        client.put("/permissions/%2F/ada", json=NOTHING)
        publish(client, "work", {"n": 1})
        yield client


@pytest.fixture
def page(browser: Browser, broker: Penstock, api: httpx.Client) -> Iterator[Page]:
    with looking(browser, broker.http_url) as opened:
        sign_in(opened)
        yield opened


def publish(
    api: httpx.Client, key: str, payload: object, exchange: str = "amq.default", **headers: object
) -> None:
    body: dict[str, Any] = {"properties": {"delivery_mode": 2, "headers": headers}}
    body |= {"routing_key": key, "payload": json.dumps(payload), "payload_encoding": "string"}
    api.post(f"/exchanges/%2F/{exchange}/publish", json=body).raise_for_status()


def payloads(api: httpx.Client, queue: str) -> list[Any]:
    found = api.get(f"/queues/%2F/{queue}/messages").json()["messages"]
    return [json.loads(row["payload"]) for row in found]


def test_an_exchange_is_declared_bound_published_to_unbound_and_deleted(
    page: Page, api: httpx.Client
) -> None:
    for name in ("shop.orders", "shop.audit"):
        api.put(f"/queues/%2F/{name}", json={})
    api.put("/exchanges/%2F/audit", json={"type": "fanout"})
    go(page, "exchanges", "Exchanges")
    press(page, "Declare exchange")
    page.get_by_label("Name", exact=True).fill("shop")
    page.get_by_label("Type", exact=True).select_option("topic")
    submit(page, "Declare")
    expect(page.get_by_role("heading", level=1)).to_have_text("shop")
    for to, kind, key in (("shop.orders", "q", "order.*"), ("audit", "e", "#")):
        press(page, "Bind")
        page.get_by_role("dialog").get_by_label("To", exact=True).select_option(kind)
        page.get_by_label("Name", exact=True).fill(to)
        page.get_by_label("Routing key").fill(key)
        submit(page, "Bind")
    out = card(page, "Bindings to queues and exchanges")
    expect(out.locator("tbody tr")).to_have_count(2)
    press(page, "Publish")
    page.get_by_label("Routing key").fill("order.1")
    page.get_by_label("Payload", exact=True).fill('"first"')
    page.get_by_label("Headers").fill('{"region": "eu"}')
    submit(page, "Publish")
    [row] = api.get("/queues/%2F/shop.orders/messages").json()["messages"]
    assert (row["routing_key"], row["properties"]["headers"]) == ("order.1", {"region": "eu"})
    press(page, "Publish")
    page.get_by_label("Routing key").fill("order.1")
    page.get_by_label("Headers").fill("not JSON")
    press(page.get_by_role("dialog"), "Publish")
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("Headers: not JSON")
    press(page.get_by_role("dialog"), "Cancel")
    press(out.locator("tbody tr", has_text="order.*"), "Remove")
    submit(page, "Remove")
    expect(out.locator("tbody tr")).to_have_count(1)
    go(page, "exchange/%2F/audit", "audit")
    expect(card(page, "Bindings from other exchanges").locator("tbody tr")).to_have_count(1)
    go(page, "exchange/%2F/shop", "shop")
    press(page, "Delete")
    submit(page, "Delete")
    expect(page.get_by_role("heading", level=1)).to_have_text("Exchanges")
    assert api.get("/exchanges/%2F/shop").status_code == 404


def test_messages_are_got_and_moved_from_the_page_of_a_queue(page: Page, api: httpx.Client) -> None:
    for name in ("source", "target"):
        api.put(f"/queues/%2F/{name}", json={})
    for number in range(3):
        publish(api, "source", number)
    go(page, "queue/%2F/source", "source")
    press(page, "Get")
    page.get_by_label("Messages", exact=True).fill("2")
    press(page.get_by_role("dialog"), "Get")
    got = page.get_by_role("dialog", name="Messages", exact=True)
    expect(got.locator(".message")).to_have_count(2)
    press(got, "Close")
    press(page, "Get")
    page.get_by_label("Then").select_option("ack_requeue_false")
    press(page.get_by_role("dialog"), "Get")
    expect(got.locator(".message .payload")).to_have_text("0")
    press(got, "Close")
    press(page, "Move")
    page.get_by_label("Name of the queue").fill("nowhere")
    press(page.get_by_role("dialog"), "Move")
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("nowhere")
    page.get_by_label("Name of the queue").fill("target")
    submit(page, "Move")
    expect(page.locator("dl.facts")).to_contain_text("Ready0")
    assert payloads(api, "target") == [1, 2]
    go(page, "queue/%2F/target", "target")
    press(page, "Move")
    page.get_by_role("dialog").get_by_label("To", exact=True).select_option("exchange")
    page.get_by_label("Name of the queue").fill("amq.topic")
    press(page.get_by_role("dialog"), "Move")
    alert = page.get_by_role("dialog").get_by_role("alert")
    expect(alert).to_contain_text("0 moved; 2 not: no queue is bound with this key")
    press(page.get_by_role("dialog"), "Cancel")
    assert payloads(api, "target") == [1, 2]


def test_messages_are_browsed_by_key_header_time_text_and_content(
    page: Page, api: httpx.Client
) -> None:
    api.put("/queues/%2F/browsed", json={"durable": True})
    api.post("/bindings/%2F/e/amq.topic/q/browsed", json={"routing_key": "b.#"})
    publish(api, "b.eu", {"n": 0, "total": 5}, "amq.topic", region="eu")
    publish(api, "b.us", {"n": 1, "total": 500}, "amq.topic", region="us")
    publish(api, "b.us.west", {"n": 2, "total": 50, "note": "late"}, "amq.topic", region="us")
    go(page, "messages/%2F/browsed", "Messages of browsed")
    shown = page.locator(".message")
    for field, text, expected in (
        ("Routing key", "b.*", 2),
        ("Headers", '{"region": "us"}', 2),
        ("Content", "[total,>,100]", 1),
        ("Text in the body", "late", 1),
        ("From", "2100-01-01T00:00:00Z", 0),
        ("To", "2100-01-01T00:00:00Z", 3),
    ):
        page.get_by_label(field, exact=True).fill(text)
        press(page, "Browse")
        expect(shown).to_have_count(expected)
        page.get_by_label(field, exact=True).fill("")
    page.get_by_label("Content").fill("[total,>")
    press(page, "Browse")
    expect(page.locator(".toast.bad")).to_contain_text("where")
    assert api.get("/queues/%2F/browsed").json()["messages_ready"] == 3


def test_all_dead_letters_return_unchanged_and_a_long_one_is_edited_whole(
    page: Page, api: httpx.Client
) -> None:
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "died"}
    api.put("/queues/%2F/lively", json={"durable": True, "arguments": dead})
    api.put("/queues/%2F/died", json={"durable": True})
    long = "x" * 30_000
    for payload in ("first", long):
        publish(api, "lively", payload)
    reject = {"count": 2, "ackmode": "reject_requeue_false", "encoding": "auto"}
    api.post("/queues/%2F/lively/get", json=reject)
    go(page, "dead-letters", "Dead letters")
    page.get_by_role("link", name="died").click()
    expect(page.locator(".message").nth(1)).to_contain_text("beginning only")
    press(page.locator(".message").nth(1), "Edit")
    text = page.get_by_label(re.compile("^Payload"))
    expect(text).to_have_value(json.dumps(long))
    text.fill(json.dumps(long + "y"))
    submit(page, "Redrive")
    expect(page.locator(".message")).to_have_count(1)
    press(page, "Redrive")
    submit(page, "Redrive")
    expect(page.locator(".message")).to_have_count(0)
    found = api.get("/queues/%2F/lively/messages?truncate=100000").json()["messages"]
    assert [json.loads(row["payload"]) for row in found] == [long + "y", "first"]


def test_messages_that_wait_are_listed_and_cancelled(page: Page, api: httpx.Client) -> None:
    exchange = {"type": "x-delayed-message", "arguments": {"x-delayed-type": "direct"}}
    api.put("/exchanges/%2F/later", json={**exchange, "durable": True}).raise_for_status()
    for number, name in enumerate(("reminder", "reminder", "invoice")):
        properties = {"message_id": name, "headers": {"x-delay": 3_600_000 + number}}
        body = {"properties": properties, "routing_key": "work", "payload": "x"}
        api.post("/exchanges/%2F/later/publish", json={**body, "payload_encoding": "string"})
    go(page, "delayed", "Delayed messages")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(3)
    press(rows.filter(has_text="invoice"), "Cancel")
    submit(page, "Delete")
    expect(page.locator(".head")).to_contain_text("2 wait")
    page.get_by_label("Message id").fill("invoice")
    page.get_by_label("Message id").press("Enter")
    expect(page.locator("main")).to_contain_text("No message with this id waits")
    page.get_by_label("Message id").fill("reminder")
    page.get_by_label("Message id").press("Enter")
    expect(rows).to_have_count(2)
    press(page, "Cancel all with this id")
    submit(page, "Delete")
    expect(page.locator(".head")).to_contain_text("0 wait")


def test_a_page_of_ten_thousand_queues_is_sorted_and_filtered(page: Page, api: Any) -> None:
    go(page, "queues", "Queues")
    expect(page.locator("tbody tr")).to_have_count(50)
    expect(page.locator(".pager")).to_contain_text("1–50 of 10,0")
    page.locator("th button", has_text="Total").click()
    page.locator("th button", has_text="Total").click()
    expect(page.locator("tbody tr").first).not_to_contain_text("many-")
    page.get_by_label("Filter by name").fill("many-99[0-4].$")
    page.get_by_label("Regex").check()
    expect(page.locator("tbody tr")).to_have_count(50)
    expect(page.locator(".pager")).to_contain_text("1–50 of 50 (10,0")
    page.get_by_label("Rows per page").select_option("25")
    expect(page.locator("tbody tr")).to_have_count(25)
    press(page, "Next ›")
    expect(page.locator(".pager")).to_contain_text("26–50 of 50")


def test_ten_thousand_bindings_and_consumers_are_paged_sorted_and_filtered(
    page: Page, api: httpx.Client, broker: Penstock
) -> None:
    many = [
        {
            "source": "amq.topic",
            "vhost": "/",
            "destination": f"many-{n:04}",
            "destination_type": "queue",
            "routing_key": f"key.{n:04}",
            "arguments": {},
        }
        for n in range(QUEUES)
    ]
    api.post("/definitions", json={"bindings": many}).raise_for_status()
    go(page, "exchange/%2F/amq.topic", "amq.topic")
    out = card(page, "Bindings to queues and exchanges")
    expect(out.locator("tbody tr")).to_have_count(50)
    expect(out.locator(".pager")).to_contain_text("1–50 of 10,0")
    for _ in range(2):
        out.locator("th button", has_text="Routing key").click()
    expect(out.locator("tbody tr").first).to_contain_text("key.9999")
    out.get_by_label("Filter bindings").fill("key.0042")
    expect(out.locator("tbody tr")).to_have_count(1)
    press(out, "Remove")
    submit(page, "Remove")
    expect(out).to_contain_text("Nothing matches the filter")
    expect(card(page, "Bindings from other exchanges")).to_contain_text("No bindings")
    client = pika.BlockingConnection(pika.URLParameters(broker.url))
    channel = client.channel()
    for number in range(30):
        tag = f"reader-{number:02}"
        channel.basic_consume("work", lambda *_: None, consumer_tag=tag)
    go(page, "queue/%2F/work", "work")
    consumers = card(page, "Consumers")
    expect(consumers.locator("tbody tr")).to_have_count(30)
    consumers.get_by_label("Rows per page").select_option("25")
    press(consumers, "Next ›")
    expect(consumers.locator(".pager")).to_contain_text("26–30 of 30")
    page.reload()  # each list keeps its page in the address
    expect(consumers.locator("tbody tr")).to_have_count(5)
    expect(card(page, "Bindings").locator("tbody tr")).to_have_count(1)
    client.close()
    expect(consumers).to_contain_text("No consumers")


def test_a_hidden_page_watches_nothing_until_it_is_shown(page: Page, api: httpx.Client) -> None:
    hide = (
        "hidden => Object.defineProperty(document, 'hidden', { value: hidden, configurable: true })"
    )
    tell = "document.dispatchEvent(new Event('visibilitychange'))"
    go(page, "queue/%2F/work", "work")
    facts = page.locator("dl.facts")
    before = api.get("/queues/%2F/work").json()["messages_ready"]
    expect(facts).to_contain_text(f"Ready{before}")
    page.evaluate(hide, True)
    page.evaluate(tell)
    publish(api, "work", {"n": 2})
    with page.expect_request(re.compile("/api/watch.*queues%2F%252F%2Fwork")):
        page.evaluate(hide, False)
        page.evaluate(tell)
    expect(facts).to_contain_text(f"Ready{before + 1}")


def test_several_pages_are_live_together(page: Page, api: httpx.Client) -> None:
    """A browser opens six connections to a server, for all pages together."""
    pages = [page, *(page.context.new_page() for _ in range(4))]
    for one in pages[1:]:
        sign_in(one)
    for one in pages:
        go(one, "queue/%2F/work", "work")
    before = api.get("/queues/%2F/work").json()["messages_ready"]
    for one in pages:
        expect(one.locator("dl.facts")).to_contain_text(f"Ready{before}")
    publish(api, "work", {"n": 3})
    for one in pages:
        expect(one.locator("dl.facts")).to_contain_text(f"Ready{before + 1}")
    for one in pages[1:]:
        one.close()


def test_a_connection_and_its_channel_are_shown_and_closed(page: Page, broker: Penstock) -> None:
    parameters = pika.URLParameters(broker.url)
    parameters.client_properties = {"connection_name": "till 4"}
    client = pika.BlockingConnection(parameters)
    channel = client.channel()
    channel.basic_qos(prefetch_count=7)
    channel.basic_consume("many-0001", lambda *_: None)
    go(page, "channels", "Channels")
    expect(page.locator("tbody tr")).to_contain_text("7")
    go(page, "connections", "Connections")
    row = page.locator("tbody tr", has_text="till 4")
    row.get_by_role("link").click()
    expect(card(page, "Consumers")).to_contain_text("many-0001")
    press(page, "Close connection")
    submit(page, "Close")
    expect(page.get_by_role("heading", level=1)).to_have_text("Connections")
    expect(row).to_have_count(0)
    with pytest.raises(pika.exceptions.AMQPError):
        client.process_data_events(time_limit=START_SECONDS)


def test_sessions_subscriptions_and_retained_messages_of_mqtt(page: Page, broker: Penstock) -> None:
    ready = threading.Event()
    client = paho.Client(CallbackAPIVersion.VERSION2, "lamp-7", protocol=paho.MQTTv5)

    def subscribe(*_: Any) -> None:
        client.subscribe("lamps/7/#", qos=1)

    def retain(*_: Any) -> None:
        client.publish("lamps/7/state", "on", qos=1, retain=True)

    client.username_pw_set("guest", "guest")
    client.on_connect = subscribe
    client.on_subscribe = retain
    client.on_publish = lambda *_: ready.set()
    client.connect("127.0.0.1", broker.mqtt_port)
    client.loop_start()
    try:
        assert ready.wait(START_SECONDS)
        go(page, "mqtt", "MQTT clients and sessions")
        row = page.locator("tbody tr", has_text="lamp-7")
        for text in ("connected", "guest", "MQTT 5"):
            expect(row).to_contain_text(text)
        go(page, "subscriptions", "MQTT subscriptions")
        expect(row).to_contain_text("lamps/7/#")
        go(page, "retained", "Retained messages")
        retained = page.locator("tbody tr", has_text="lamps/7/state")
        press(retained, "lamps/7/state")
        expect(page.get_by_role("dialog").locator(".payload")).to_have_text("on")
        press(page.get_by_role("dialog"), "Close")
        press(retained, "Delete")
        submit(page, "Delete")
        expect(retained).to_have_count(0)
        go(page, "mqtt", "MQTT clients and sessions")
        client.on_connect = None  # it may return, but does not subscribe again
        row.get_by_role("link", name="lamp-7").click()
        expect(card(page, "Subscriptions")).to_contain_text("lamps/7/#")
        press(page, "End session")
        submit(page, "End")
        expect(page.get_by_role("heading", level=1)).to_have_text("MQTT clients and sessions")
        go(page, "subscriptions", "MQTT subscriptions")
        expect(page.locator("code", has_text="lamps/7/#")).to_have_count(0)
    finally:
        client.disconnect()
        client.loop_stop()


def test_topic_permissions_limits_and_virtual_hosts(page: Page, api: httpx.Client) -> None:
    api.put("/users/cleo", json={"password": "cleo", "tags": ""})
    go(page, "user/cleo", "cleo")
    press(card(page, "Topic permissions"), "Set")
    page.get_by_label("write", exact=True).fill(r"^cleo\.")
    submit(page, "Save")
    expect(card(page, "Topic permissions")).to_contain_text(r"^cleo\.")
    press(card(page, "Limits"), "Set")
    page.get_by_role("combobox", name="Limit").select_option("max-channels")
    page.get_by_label("At most").fill("3")
    submit(page, "Save")
    assert api.get("/user-limits/cleo").json() == [{"user": "cleo", "value": {"max-channels": 3}}]
    [granted] = api.get("/users/cleo/topic-permissions").json()
    assert (granted["exchange"], granted["write"]) == ("amq.topic", r"^cleo\.")
    for title in ("Topic permissions", "Limits"):
        press(card(page, title), "Delete")
        submit(page, "Delete")
        expect(card(page, title).locator("tbody tr")).to_have_count(0)
    press(page.locator(".head"), "Delete")
    submit(page, "Delete")
    assert api.get("/users/cleo").status_code == 404
    go(page, "vhosts", "Virtual hosts")
    press(page, "Add virtual host")
    page.get_by_label("Name", exact=True).fill("staging")
    submit(page, "Add")
    staging = page.locator("tbody tr", has_text="staging")
    press(staging, "Limits")
    page.get_by_label("max-queues").fill("5")
    submit(page, "Save")
    expect(staging).to_contain_text("max-queues 5")
    press(staging, "Limits")
    page.get_by_label("max-queues").fill("")
    submit(page, "Save")
    expect(staging).not_to_contain_text("max-queues")
    press(staging, "Delete")
    submit(page, "Delete")
    expect(staging).to_have_count(0)


#: What the buttons of a page are refused with: page, heading, button, fields, button of the dialog.
REFUSED = [
    ("queues", "Queues", "Declare queue", {"Name": "mine"}, "Declare"),
    ("streams", "Streams", "Declare stream", {"Name": "mine"}, "Declare"),
    ("exchanges", "Exchanges", "Declare exchange", {"Name": "mine"}, "Declare"),
    ("queue/%2F/work", "work", "Publish", {}, "Publish"),
    ("queue/%2F/work", "work", "Get", {}, "Get"),
    ("queue/%2F/work", "work", "Bind", {}, "Bind"),
    ("queue/%2F/work", "work", "Move", {"Name of the queue or exchange": "work"}, "Move"),
    ("queue/%2F/work", "work", "Purge", {}, "Purge"),
    ("queue/%2F/work", "work", "Delete", {}, "Delete"),
    ("exchange/%2F/amq.topic", "amq.topic", "Publish", {}, "Publish"),
    ("exchange/%2F/amq.topic", "amq.topic", "Bind", {"Name": "work"}, "Bind"),
    ("exchange/%2F/amq.topic", "amq.topic", "Delete", {}, "Delete"),
]


def test_a_user_without_permissions_is_refused_every_action(
    browser: Browser, broker: Penstock, api: httpx.Client
) -> None:
    before = api.get("/queues/%2F/work").json()["messages_ready"]
    with looking(browser, broker.http_url) as page:
        sign_in(page, "ada")
        expect(page.get_by_role("link", name="Policies", exact=True)).to_be_visible()
        for hidden in ("Users", "Definitions", "Tracing", "Cluster"):
            expect(page.get_by_role("link", name=hidden, exact=True)).to_have_count(0)
        for place, title, action, fields, label in REFUSED:
            go(page, place, title)
            press(page, action)
            for name, value in fields.items():
                page.get_by_label(name, exact=True).fill(value)
            press(page.get_by_role("dialog"), label)
            alert = page.get_by_role("dialog").get_by_role("alert")
            expect(alert).to_contain_text("refused for user 'ada'")
            press(page.get_by_role("dialog"), "Cancel")
        go(page, "messages/%2F/work", "Error")
    assert api.get("/queues/%2F/work").json()["messages_ready"] == before
    assert api.get("/queues/%2F/mine").status_code == 404


def test_a_queue_is_declared_filled_browsed_and_deleted_by_keys_alone(
    browser: Browser, broker: Penstock, api: httpx.Client
) -> None:
    with looking(browser, broker.http_url) as page:
        page.goto("/")
        expect(page.get_by_label("User")).to_be_focused()
        page.keyboard.type("guest")
        page.keyboard.press("Tab")
        page.keyboard.type("guest\n")
        expect(page.get_by_role("heading", level=1)).to_have_text("Overview")
        page.keyboard.press("g")
        page.keyboard.press("s")
        expect(page.get_by_role("heading", level=1)).to_have_text("Streams")
        page.keyboard.press("g")
        page.keyboard.press("q")
        expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
        tab_to(page, "Declare queue")
        page.keyboard.press("Enter")
        tab_to(page, "Name")
        page.keyboard.type("by-keys\n")
        expect(page.get_by_role("heading", level=1)).to_have_text("by-keys")
        tab_to(page, "Publish")
        page.keyboard.press("Enter")
        tab_to(page, "Payload")
        page.keyboard.type("hello")
        tab_to(page, "Publish")
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_have_count(0)
        tab_to(page, "Browse")
        page.keyboard.press("Enter")
        expect(page.locator(".message .payload")).to_have_text("hello")
        tab_to(page, re.compile("^Select message"))
        page.keyboard.press("Space")
        expect(page.locator(".head")).to_contain_text("1 selected")
        tab_to(page, "Discard")
        page.keyboard.press("Enter")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        tab_to(page, "by-keys")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("by-keys")
        tab_to(page, "Delete")
        page.keyboard.press("Enter")
        tab_to(page, "Delete")
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("Queues")
    assert api.get("/queues/%2F/by-keys").status_code == 404


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["desktop", "phone"])
@pytest.mark.parametrize("shade", ["light", "dark"])
def test_every_page_fits_and_can_be_read(
    browser: Browser, broker: Penstock, api: httpx.Client, shade: str, size: tuple[int, int]
) -> None:
    with looking(browser, broker.http_url, size, shade) as page:
        sign_in(page)
        for place, title in PAGES.items():
            go(page, place, title)
            expect(page.get_by_text("Loading…").locator("visible=true")).to_have_count(0)
            assert page.evaluate("document.documentElement.scrollWidth") <= size[0], place
            assert faint(page) == [], place
            assert serious_findings(page) == [], place
