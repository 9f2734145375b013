"""Clients of both versions for the broker under test, closed when the test ends.

A test runs on Penstock and on mosquitto, with MQTT 3.1.1 and with 5.0, unless it is marked with
one of `statements.py`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.mqtt.clients_users import Users
from tests.integration.mqtt.dialogue import Client, Connect
from tests.integration.mqtt.packets import MQTT_3, MQTT_5
from tests.peers import MqttBroker, Penstock


@pytest.fixture(params=[MQTT_3, MQTT_5], ids=["3.1.1", "5.0"])
def version(request: pytest.FixtureRequest) -> int:
    number: int = request.param
    return number


@pytest.fixture
def port(mqtt_broker: MqttBroker) -> int:
    return mqtt_broker.mqtt_port


@pytest.fixture
def users(mqtt_penstock: Penstock) -> Iterator[Users]:
    users = Users(mqtt_penstock)
    yield users
    users.close()


@pytest.fixture
def dial(mqtt_broker: MqttBroker, version: int) -> Iterator[Connect]:
    """Open a connection on which nothing has been said; without a client id it gets one."""
    opened: list[Client] = []

    def open_one(client_id: str | None = None, *, version: int = version) -> Client:
        chosen = uuid.uuid4().hex[:16] if client_id is None else client_id
        exact = mqtt_broker.name == "penstock"
        client = Client(mqtt_broker.mqtt_port, version, chosen, exact=exact)
        opened.append(client)
        return client

    yield open_one
    for client in opened:
        client.close()


@pytest.fixture
def connect(dial: Connect, version: int) -> Connect:
    """Open a connection and have it accepted; fields are those of `connect_bytes`."""

    def connect_one(
        client_id: str | None = None, *, version: int = version, **fields: Any
    ) -> Client:
        client = dial(client_id, version=version)
        assert client.connect(**fields).reason == 0
        return client

    return connect_one


@pytest.fixture
def client(connect: Connect) -> Client:
    return connect()


@pytest.fixture
def publisher(connect: Connect) -> Client:
    return connect()


@pytest.fixture
def topic() -> str:
    """A topic nobody else uses: one broker serves all tests."""
    return f"test/{uuid.uuid4().hex}"
