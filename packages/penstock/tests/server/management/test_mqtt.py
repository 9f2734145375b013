"""MQTT sessions and retained messages over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from penstock.core.config import BrokerSettings
from penstock.server import Broker
from tests.server.management.conftest import As
from tests.server.management.given import user


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Broker]:
    settings = BrokerSettings(listen=["mqtt://127.0.0.1:0", "http://127.0.0.1:0"])
    async with Broker(settings, data=tmp_path / "data") as broker:
        yield broker


@pytest.fixture
async def sensor(served: Broker) -> AsyncIterator[paho.Client]:
    """A client with a session of one hour and a subscription."""
    client = paho.Client(CallbackAPIVersion.VERSION2, "sensor 1", protocol=paho.MQTTv5)
    client.username_pw_set("guest", "guest")
    expiry = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    expiry.SessionExpiryInterval = 3600
    address = urlsplit(served.addresses[0])
    await asyncio.to_thread(
        client.connect, str(address.hostname), address.port or 0, properties=expiry
    )
    client.loop_start()
    client.subscribe("commands/+/set", 1)
    yield client
    client.disconnect()
    client.loop_stop()


async def found(api: httpx.AsyncClient, so: Callable[[Any], object], path: str) -> Any:
    async with asyncio.timeout(30):
        while True:
            rows = (await api.get(path)).json()
            if so(rows):
                return rows
            await asyncio.sleep(0.02)


async def test_a_session_is_listed_with_its_subscriptions(
    api: httpx.AsyncClient, as_user: As, sensor: paho.Client
) -> None:
    [row] = await found(api, lambda rows: rows and rows[0]["subscriptions"], "/mqtt/sessions")
    assert (row["name"], row["user"], row["connected"]) == ("sensor 1", "guest", True)
    assert row["expiry_interval"] == 3600
    assert [(one["filter"], one["qos"]) for one in row["subscriptions"]] == [("commands/+/set", 1)]

    await user(api, "ada", "management")
    assert (await as_user("ada", "ada").get("/mqtt/sessions")).json() == []

    sensor.disconnect()
    [row] = await found(api, lambda rows: not rows[0]["connected"], "/mqtt/sessions/%2F")
    assert row["disconnected_at"] > 0
    body = {"properties": {"delivery_mode": 2}, "routing_key": "commands.1.set", "payload": "on"}
    await api.post("/exchanges/%2F/amq.topic/publish", json={**body, "payload_encoding": "string"})
    [row] = (await api.get("/mqtt/sessions")).json()
    assert row["messages_waiting"] == 1
    waiting = (await api.get(f"/queues/%2F/{row['queue']}/messages")).json()["messages"]
    assert [one["payload"] for one in waiting] == ["on"]
    moved = await api.post(f"/queues/%2F/{row['queue']}/redrive", json={"to": {"queue": "x"}})
    assert moved.status_code == 400
    assert (await api.delete(f"/queues/%2F/{row['queue']}")).status_code == 204
    assert (await api.get("/mqtt/sessions")).json() == []


async def test_subscriptions_are_a_list_of_their_own(
    api: httpx.AsyncClient, as_user: As, sensor: paho.Client
) -> None:
    sensor.subscribe([("alarms/#", 2), ("$share/pool/jobs", 1)])
    rows = await found(api, lambda rows: len(rows) == 3, "/mqtt/subscriptions?sort=filter")
    assert [(row["filter"], row["qos"]) for row in rows] == [
        ("$share/pool/jobs", 1),
        ("alarms/#", 2),
        ("commands/+/set", 1),
    ]
    assert {(row["client_id"], row["user"], row["vhost"]) for row in rows} == {
        ("sensor 1", "guest", "/")
    }
    page = (await api.get("/mqtt/subscriptions/%2F?page=1&page_size=2&name=s")).json()
    assert (page["total_count"], page["filtered_count"], page["item_count"]) == (3, 3, 2)
    page = (await api.get("/mqtt/subscriptions?page=1&name=alarms")).json()
    assert [row["filter"] for row in page["items"]] == ["alarms/#"]
    assert (await api.get("/mqtt/subscriptions/%2F?client_id=another")).json() == []

    path = "/mqtt/sessions/%2F/sensor%201"
    one = (await api.get(path)).json()
    assert (one["subscription_count"], len(one["subscriptions"])) == (3, 3)
    assert (await api.get(f"{path}?columns=name,subscription_count")).json() == {
        "name": "sensor 1",
        "subscription_count": 3,
    }
    assert (await api.get("/mqtt/sessions/%2F/another")).status_code == 404
    assert (await api.get("/mqtt/sessions?page=1&name=sensor")).json()["items"][0] == one
    await user(api, "ada", "management")
    ada = as_user("ada", "ada")
    assert (await ada.get("/mqtt/subscriptions")).json() == []
    assert (await ada.get(path)).status_code == 404


async def test_retained_messages_are_listed_read_and_removed(
    api: httpx.AsyncClient, as_user: As, sensor: paho.Client
) -> None:
    for topic, payload in (("rooms/1/light", "on"), ("rooms/2/light", "off"), ("a.b/c", "x")):
        sensor.publish(topic, payload, 1, retain=True)
    path = "/mqtt/retained/%2F"
    rows = await found(api, lambda rows: len(rows) == 3, f"{path}?sort=name")
    assert [row["name"] for row in rows] == ["a.b/c", "rooms/1/light", "rooms/2/light"]
    page = (await api.get(f"{path}?page=1&page_size=1&sort=name&filter=rooms/%23")).json()
    assert (page["total_count"], page["items"][0]["name"]) == (2, "rooms/1/light")
    assert (await api.get(f"{path}/rooms%2F2%2Flight")).json()["payload"] == "off"

    await user(api, "ada", "management")
    ada = as_user("ada", "ada")
    topics = {"exchange": "amq.topic", "read": r"^rooms\.1", "write": "^$"}
    await api.put("/topic-permissions/%2F/ada", json=topics)
    assert [row["name"] for row in (await ada.get(path)).json()] == ["rooms/1/light"]
    assert (await ada.get(f"{path}/rooms%2F2%2Flight")).status_code == 404
    assert (await ada.delete(f"{path}/rooms%2F1%2Flight")).status_code == 401

    assert (await api.delete(f"{path}/rooms%2F1%2Flight")).status_code == 204
    assert (await api.delete(f"{path}/rooms%2F1%2Flight")).status_code == 404
    assert len((await api.get(path)).json()) == 2
