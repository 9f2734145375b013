"""The overlay over HTTP: which brokers there are, and what they are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.client.padres import PadresClient
from penstock.core.config import BrokerSettings, OverlaySettings
from penstock.server import Broker
from tests.overlay.house import allow_links
from tests.padres import SECONDS
from tests.server.management.conftest import As

Brokers = dict[str, dict[str, Any]]


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Broker]:
    """Broker1 with a neighbour, B2."""
    one = BrokerSettings(
        listen=["padres://127.0.0.1:0", "http://127.0.0.1:0"],
        overlay=OverlaySettings(accept_links_from=["B2"]),
    )
    allow_links(tmp_path / "one")
    async with Broker(one, data=tmp_path / "one") as first:
        overlay = OverlaySettings(
            id="B2",
            neighbours=[f"{first.addresses[0]}/Broker1"],
            accept_commands_from=["Broker1"],
            user="links",
            password="links",
            retry_pause=0.05,
        )
        two = BrokerSettings(listen=["padres://127.0.0.1:0"], overlay=overlay, drain_seconds=0.2)
        async with Broker(two, data=tmp_path / "two"):
            yield first


async def seen(api: httpx.AsyncClient, so: Callable[[Brokers], object]) -> Brokers:
    """The brokers, when they are so."""
    async with asyncio.timeout(SECONDS):
        while True:
            answer = await api.get("/overlay")
            assert answer.status_code == 200, answer.text
            found = {one["brokerID"]: one for one in answer.json()}
            if so(found):
                return found
            await asyncio.sleep(0.02)


async def test_all_brokers_are_seen_with_their_links(api: httpx.AsyncClient) -> None:
    found = await seen(api, lambda brokers: len(brokers) == 2)

    assert found["B2"]["links"] == {"Broker1": True}
    assert found["Broker1"]["links"] == {"B2": True}
    assert found["B2"]["status"] == "RUNNING"
    assert found["B2"]["age"] >= 0


async def test_clients_are_shown_and_nothing_of_the_broker_s_own(
    api: httpx.AsyncClient, served: Broker
) -> None:
    async with PadresClient(served.addresses[0], id="ada"):
        found = await seen(api, lambda brokers: len(brokers) == 2)
    assert found["Broker1"]["clients"] == ["Broker1-ada"]


async def test_what_clients_say_of_brokers_is_not_believed(
    api: httpx.AsyncClient, served: Broker
) -> None:
    await seen(api, lambda brokers: len(brokers) == 2)
    async with PadresClient(served.addresses[0]) as client:
        await client.advertise("[class,eq,BROKER_INFO],[brokerID,isPresent,'']")
        for broker in ("B2", "B3"):
            await client.publish(f"[class,BROKER_INFO],[brokerID,{broker}]", b"no JSON")

    found = await seen(api, lambda brokers: True)
    assert sorted(found) == ["B2", "Broker1"]


@pytest.mark.parametrize("name", ["Broker1", "B2"])
async def test_a_broker_is_stopped_and_resumed(api: httpx.AsyncClient, name: str) -> None:
    await seen(api, lambda brokers: len(brokers) == 2)
    for command, status in (("STOP", "STOPPED"), ("RESUME", "RUNNING")):
        told = await api.post("/overlay", json={"broker": name, "command": command})
        assert told.status_code == 204
        await seen(api, lambda brokers: brokers[name]["status"] == status)  # noqa: B023 - at once


async def test_heartbeats_are_switched_for_all(api: httpx.AsyncClient) -> None:
    await seen(api, lambda brokers: len(brokers) == 2)
    assert (await api.put("/overlay/heartbeats", json={"enabled": True})).status_code == 204

    await seen(api, lambda brokers: all(one["heartbeats"] for one in brokers.values()))


@pytest.mark.parametrize("body", [{}, {"broker": "B2"}, {"broker": 5, "command": "STOP"}])
async def test_what_makes_no_sense_is_refused(api: httpx.AsyncClient, body: Any) -> None:
    assert (await api.post("/overlay", json=body)).status_code == 400
    assert (await api.put("/overlay/heartbeats", json={"enabled": "soon"})).status_code == 400


async def test_who_monitors_may_look_and_not_touch(served: Broker, as_user: As) -> None:
    served.users.add("monitor", "monitor", ("monitoring",))
    monitor = as_user("monitor", "monitor")

    assert (await monitor.get("/overlay")).status_code == 200
    told = await monitor.post("/overlay", json={"broker": "B2", "command": "STOP"})
    assert told.status_code == 401


async def test_a_publication_is_injected_and_traced_hop_by_hop(
    api: httpx.AsyncClient, served: Broker
) -> None:
    await seen(api, lambda brokers: len(brokers) == 2)
    rule = {"kind": "advertise", "message": "[class,eq,stock],[price,>,0]", "name": "a1"}
    assert (await api.post("/overlay/inject/B2", json=rule)).status_code == 200
    async with PadresClient(served.addresses[0], id="ada") as ada:
        await ada.subscribe("[class,eq,stock],[price,>,0]")
        async with asyncio.timeout(SECONDS):
            hops: list[Any] = []
            while len(hops) < 2:
                body = {"message": "[class,stock],[price,5]"}
                trace = (await api.post("/overlay/inject/B2", json=body)).json()["trace"]
                await asyncio.sleep(0.1)
                hops = (await api.get(f"/overlay/traces/{trace}")).json()
    assert [(hop["from"], hop["to"]) for hop in hops] == [
        ("B2", "Broker1"),
        ("Broker1", "Broker1-ada"),
    ]
    gone = await api.post("/overlay/inject/B2", json={"kind": "unadvertise", "message": "a1"})
    assert gone.status_code == 200
    assert (await api.get("/overlay/traces/absent")).status_code == 404


@pytest.mark.parametrize(
    "body", [{}, {"message": "[class"}, {"message": "[class,a]", "kind": "shout"}, {"message": 5}]
)
async def test_what_is_no_message_is_not_injected(api: httpx.AsyncClient, body: Any) -> None:
    assert (await api.post("/overlay/inject/B2", json=body)).status_code == 400


async def test_heartbeats_of_one_broker_are_set_and_failures_are_logged(
    api: httpx.AsyncClient,
) -> None:
    await seen(api, lambda brokers: len(brokers) == 2)
    fast = {"enabled": True, "interval": 0.05, "timeout": 0.05, "threshold": 2}
    assert (await api.put("/overlay/heartbeats/Broker1", json=fast)).status_code == 204
    found = await seen(api, lambda brokers: brokers["Broker1"]["heartbeat"] == fast)
    assert not found["B2"]["heartbeat"]["enabled"]
    assert found["Broker1"]["own"]

    await api.post("/overlay", json={"broker": "B2", "command": "STOP"})
    found = await seen(api, lambda brokers: brokers["Broker1"]["failures"])
    first = found["Broker1"]["failures"][0]
    assert (first["neighbour"], first["type"]) == ("B2", "FAILURE_DETECTED")
    await api.post("/overlay", json={"broker": "B2", "command": "RESUME"})
    await seen(
        api,
        lambda brokers: brokers["Broker1"]["failures"][-1]["type"] == "FAILURE_CLEARED",
    )
    for wrong in ({"interval": "soon"}, {"threshold": 0}):
        answer = await api.put("/overlay/heartbeats/Broker1", json={"enabled": True, **wrong})
        assert answer.status_code == 400


async def test_a_link_is_removed_and_connected_again(
    api: httpx.AsyncClient, served: Broker
) -> None:
    found = await seen(api, lambda brokers: len(brokers) == 2 and brokers["Broker1"]["links"])
    body = {"broker": "Broker1", "command": "OVERLAY-DISCONNECT", "other": "B2"}
    assert (await api.post("/overlay", json=body)).status_code == 204
    await seen(api, lambda brokers: brokers["Broker1"]["links"] == {})
    uri = found["B2"]["uri"].replace("://", "://links:secret@")
    body = {"broker": "Broker1", "command": "OVERLAY-CONNECT", "other": uri}
    assert (await api.post("/overlay", json=body)).status_code == 204
    found = await seen(api, lambda brokers: brokers["Broker1"]["refused"] or True)
    assert "secret" not in str(found["Broker1"])
