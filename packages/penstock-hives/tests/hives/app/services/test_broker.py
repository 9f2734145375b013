"""Sensors at a real broker: let in as themselves and nobody else, told by retained messages."""

from __future__ import annotations

import asyncio
import uuid

import pytest

from penstock.client import BrokerUnreachable, connect
from penstock.core.errors import AccessRefused, PenstockError
from penstock_hives.errors import NotConfigured
from penstock_hives.sensors.broker import SensorBroker
from tests.peers import Penstock, free_port


@pytest.fixture
def serial() -> str:
    return uuid.uuid4().hex[:10]


def admin(penstock: Penstock) -> str:
    return f"http://guest:guest@127.0.0.1:{penstock.http_port}"


def as_sensor(penstock: Penstock, user: str, password: str) -> str:
    return f"mqtt://{user}:{password}@127.0.0.1:{penstock.mqtt_port}?client_id={user}"


async def test_a_sensor_hears_what_it_was_told_before_it_came(
    penstock: Penstock, serial: str
) -> None:
    broker = SensorBroker(penstock.mqtt_url, admin(penstock))
    try:
        await broker.create_user(serial, f"sensor-{serial}", "secret")
        await broker.publish_retained(f"commands/sensor/{serial}", b"configuration")
    finally:
        await broker.close()

    url = as_sensor(penstock, f"sensor-{serial}", "secret")
    async with connect(url) as fabric:
        async with fabric.subscribe(f"commands/sensor/{serial}") as orders:
            told = await orders.receive()
        assert told.body == b"configuration"
        await fabric.publish(f"sensors/{serial}/report", b"a report")


async def test_a_sensor_cannot_speak_for_another_or_listen_to_its_orders(
    penstock: Penstock, serial: str
) -> None:
    broker = SensorBroker(penstock.mqtt_url, admin(penstock))
    await broker.create_user(serial, f"sensor-{serial}", "secret")

    async with connect(as_sensor(penstock, f"sensor-{serial}", "secret")) as fabric:
        with pytest.raises(PenstockError):
            await fabric.publish("sensors/another/report", b"a lie")
        with pytest.raises(PenstockError):
            async with fabric.subscribe("commands/sensor/another"):
                pass


async def test_a_sensor_that_was_dismissed_does_not_get_in(penstock: Penstock, serial: str) -> None:
    broker = SensorBroker(penstock.mqtt_url, admin(penstock))
    await broker.create_user(serial, f"sensor-{serial}", "secret")
    await broker.delete_user(f"sensor-{serial}")
    await broker.delete_user(f"sensor-{serial}")  # again, it changes nothing

    with pytest.raises(AccessRefused):
        async with connect(as_sensor(penstock, f"sensor-{serial}", "secret")):
            pass


async def test_a_broker_that_is_away_is_said_to_be() -> None:
    port = free_port()
    broker = SensorBroker(f"mqtt://127.0.0.1:{port}", f"http://127.0.0.1:{port}")

    with pytest.raises(BrokerUnreachable):
        await broker.publish_retained("commands/sensor/x", b"")
    with pytest.raises(BrokerUnreachable):
        await broker.create_user("x", "sensor-x", "secret")


async def test_an_installation_without_a_broker_says_so() -> None:
    broker = SensorBroker(None, None)

    with pytest.raises(NotConfigured):
        await broker.publish_retained("commands/sensor/x", b"")
    with pytest.raises(NotConfigured):
        await broker.create_user("x", "sensor-x", "secret")


async def test_a_redirect_is_refused_and_the_password_stays_here() -> None:
    heard: list[bytes] = []

    async def elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.readline())
        writer.close()

    async with await asyncio.start_server(elsewhere, "127.0.0.1", 0) as other:
        port = other.sockets[0].getsockname()[1]

        async def redirect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            location = f"Location: http://127.0.0.1:{port}/"
            writer.write(f"HTTP/1.0 302 Found\r\n{location}\r\n\r\n".encode())
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(redirect, "127.0.0.1", 0) as server:
            asked = server.sockets[0].getsockname()[1]
            broker = SensorBroker(None, f"http://guest:guest@127.0.0.1:{asked}")
            with pytest.raises(AccessRefused, match="302"):
                await broker.delete_user("sensor-x")
    assert heard == []
