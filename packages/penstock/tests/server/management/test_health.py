from __future__ import annotations

import httpx
import pytest

from penstock.core.addresses import parse_address
from penstock.server import Broker


@pytest.mark.parametrize(
    "check", ["alarms", "local-alarms", "virtual-hosts", "ready", "protocol-listener/amqp"]
)
async def test_a_healthy_broker_says_so(api: httpx.AsyncClient, check: str) -> None:
    answer = await api.get(f"/health/checks/{check}")

    assert (answer.status_code, answer.json()["status"]) == (200, "ok")


async def test_an_alarm_is_a_failed_check(api: httpx.AsyncClient, served: Broker) -> None:
    served.alarms.set("memory", "low on memory: all of it")

    for check in ("alarms", "local-alarms", "ready"):
        answer = await api.get(f"/health/checks/{check}")
        assert answer.status_code == 503
        assert answer.json()["reason"] == "low on memory: all of it"
    [node] = (await api.get("/nodes")).json()
    assert (node["mem_alarm"], node["disk_free_alarm"]) == (True, False)


async def test_a_port_is_listened_on_or_not(api: httpx.AsyncClient, served: Broker) -> None:
    ports = [parse_address(address).port for address in served.addresses]

    assert (await api.get(f"/health/checks/port-listener/{ports[0]}")).json() == {
        "status": "ok",
        "port": ports[0],
    }
    missing = await api.get("/health/checks/port-listener/1")
    assert missing.status_code == 503
    assert missing.json()["ports"] == ports
    assert (await api.get("/health/checks/port-listener/x")).status_code == 400


async def test_a_protocol_goes_by_several_names(api: httpx.AsyncClient) -> None:
    spoken = await api.get("/health/checks/protocol-listener/amqp091")
    unspoken = await api.get("/health/checks/protocol-listener/mqtt")

    assert spoken.json() == {"status": "ok", "protocol": "amqp"}
    assert (unspoken.status_code, unspoken.json()["missing"]) == (503, "mqtt")


async def test_a_message_goes_through(api: httpx.AsyncClient) -> None:
    assert (await api.get("/aliveness-test/%2F")).json() == {"status": "ok"}
    assert (await api.get("/queues/%2F/aliveness-test")).json()["messages"] == 0
