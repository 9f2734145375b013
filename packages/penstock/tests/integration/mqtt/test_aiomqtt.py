"""aiomqtt: everyday use of MQTT from asyncio programs."""

from __future__ import annotations

import asyncio
from typing import Any

import aiomqtt
import pytest
from aiomqtt import ProtocolVersion
from paho.mqtt.packettypes import PacketTypes

from tests.fixtures import NewPenstock
from tests.integration.mqtt.clients_properties import AN_HOUR, properties_of, values_of

PATIENCE = 60


@pytest.fixture(params=[ProtocolVersion.V311, ProtocolVersion.V5], ids=["3.1.1", "5.0"])
def version(request: pytest.FixtureRequest) -> ProtocolVersion:
    chosen: ProtocolVersion = request.param
    return chosen


def connect(
    port: int, client_id: str, version: ProtocolVersion = ProtocolVersion.V5, **options: Any
) -> aiomqtt.Client:
    return aiomqtt.Client(
        "127.0.0.1",
        port,
        identifier=client_id,
        protocol=version,
        username="guest",
        password="guest",
        timeout=PATIENCE,
        **options,
    )


async def payloads(client: aiomqtt.Client, count: int) -> list[Any]:
    found = []
    async with asyncio.timeout(PATIENCE):
        async for message in client.messages:
            found.append(message.payload)
            if len(found) == count:
                break
    return found


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_messages_come_by_the_iterator_in_order(
    port: int, name: str, version: ProtocolVersion, qos: int
) -> None:
    async with (
        connect(port, f"{name}.sub", version) as reader,
        connect(port, f"{name}.pub", version) as writer,
    ):
        await reader.subscribe(f"{name}/#", qos)
        for number in range(100):
            await writer.publish(f"{name}/{number % 3}", b"%d" % number, qos)

        assert await payloads(reader, 100) == [b"%d" % number for number in range(100)]


async def test_many_publishes_at_once_are_all_acknowledged(port: int, name: str) -> None:
    async with connect(port, name) as client:
        await client.subscribe(name, 1)
        async with asyncio.TaskGroup() as tasks:
            for number in range(300):
                tasks.create_task(client.publish(name, b"%d" % number, 1))

        assert {int(one) for one in await payloads(client, 300)} == set(range(300))


async def test_a_retained_message_and_its_properties(port: int, name: str) -> None:
    properties = properties_of(
        PacketTypes.PUBLISH, {"ContentType": "text/plain", "UserProperty": [("unit", "m")]}
    )
    async with connect(port, name) as client:
        await client.publish(name, "3.5", 1, retain=True, properties=properties)
        await client.subscribe(name, 1)
        async with asyncio.timeout(PATIENCE):
            message = await anext(aiter(client.messages))

    assert (message.payload, message.retain) == (b"3.5", True)
    assert values_of(message.properties) == {
        "ContentType": "text/plain",
        "UserProperty": [("unit", "m")],
    }


async def test_a_will_is_published_for_a_client_that_is_cut_off(
    port: int, name: str, version: ProtocolVersion
) -> None:
    async with connect(port, f"{name}.watch", version) as watcher:
        await watcher.subscribe(name, 1)
        will = aiomqtt.Will(name, b"gone", 1)
        client = connect(port, f"{name}.client", version, will=will)
        await client.__aenter__()
        async with connect(port, f"{name}.client", version):  # takes its place
            assert await payloads(watcher, 1) == [b"gone"]
            with pytest.raises(aiomqtt.MqttError):
                await payloads(client, 1)


async def test_a_wrong_password_raises(new_penstock: NewPenstock) -> None:
    broker = new_penstock(mqtt=True)
    with pytest.raises(aiomqtt.MqttError, match="Bad user name or password"):
        async with aiomqtt.Client("127.0.0.1", broker.mqtt_port, username="a", password="b"):
            pass


@pytest.mark.parametrize("end", ["stop", "kill"])
async def test_a_program_that_reconnects_goes_on_after_a_restart(
    new_penstock: NewPenstock, name: str, end: str
) -> None:
    """The loop aiomqtt's users write: connect again, and the session has what was missed."""
    broker = new_penstock(mqtt=True)
    session = properties_of(PacketTypes.CONNECT, {"SessionExpiryInterval": AN_HOUR})
    arrived: asyncio.Queue[Any] = asyncio.Queue()

    async def read() -> None:
        while True:
            try:
                async with connect(
                    broker.mqtt_port, name, properties=session, clean_start=False
                ) as reader:
                    await reader.subscribe(name, 1)
                    await arrived.put("subscribed")
                    async for message in reader.messages:
                        await arrived.put(message.payload)
            except aiomqtt.MqttError:
                await asyncio.sleep(0.05)

    async with asyncio.timeout(PATIENCE):
        reading = asyncio.create_task(read())
        assert await arrived.get() == "subscribed"
        async with connect(broker.mqtt_port, f"{name}.pub") as writer:
            await writer.publish(name, b"before", 1)
        assert await arrived.get() == b"before"

        await asyncio.to_thread(getattr(broker, end))
        await asyncio.to_thread(broker.start)
        async with connect(broker.mqtt_port, f"{name}.pub") as writer:
            await writer.publish(name, b"after", 1)

        assert {await arrived.get() for _ in range(2)} == {"subscribed", b"after"}
        reading.cancel()
