"""A subscriber requests past messages of a topic that a stream stores, and continues live."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from penstock.client import connect
from penstock.core.config import BrokerSettings
from penstock.protocols.mqtt.history import covers
from penstock.server import Broker

LISTEN = ["amqp://127.0.0.1:0", "mqtt://127.0.0.1:0"]


class Subscriber:
    def __init__(self, port: int) -> None:
        self.arrived: queue.Queue[Any] = queue.Queue()
        self.granted: queue.Queue[Any] = queue.Queue()
        self._client = mqtt.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        self._client.username_pw_set("guest", "guest")
        self._client.on_message = lambda _c, _d, packet: self.arrived.put(packet)
        self._client.on_subscribe = lambda _c, _d, _mid, codes, properties: self.granted.put(
            (codes[0].value, getattr(properties, "ReasonString", ""))
        )
        self._client.connect("127.0.0.1", port)
        self._client.loop_start()

    def subscribe(self, topic: str, qos: int = 1, **wanted: str) -> tuple[int, str]:
        properties = Properties(PacketTypes.SUBSCRIBE)  # type: ignore[no-untyped-call]
        properties.UserProperty = [
            (f"x-{key}".replace("_", "-"), each) for key, each in wanted.items()
        ]
        self._client.subscribe(topic, options=SubscribeOptions(qos=qos), properties=properties)
        granted: tuple[int, str] = self.granted.get(timeout=20)
        return granted

    def bodies(self, count: int) -> list[str]:
        return [self.arrived.get(timeout=20).payload.decode() for _ in range(count)]

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


@pytest.fixture
def opened() -> Iterator[list[Subscriber]]:
    subscribers: list[Subscriber] = []
    yield subscribers
    for subscriber in subscribers:
        subscriber.close()


def expected(*numbers: int) -> list[str]:
    return [f"report {number}" for number in numbers]


@pytest.mark.parametrize("qos", [0, 1])
async def test_history_and_then_live_without_gap_or_duplicate(
    tmp_path: Path, opened: list[Subscriber], qos: int
) -> None:
    async with Broker(BrokerSettings(listen=LISTEN), data=tmp_path) as broker:
        port = int(broker.addresses[1].rpartition(":")[2])
        url = broker.addresses[0].replace("://", "://guest:guest@")
        async with connect(url) as fabric:
            stream = fabric.stream("history", subjects=["sensors.#"])
            await stream.send("appended to the stream itself")
            for number in range(300):
                await fabric.publish(f"sensors.{number % 2}", f"report {number}")
            publishing = asyncio.create_task(publish_more(fabric))
            reader = await asyncio.to_thread(Subscriber, port)
            opened.append(reader)
            code, _ = await asyncio.to_thread(
                reader.subscribe, "sensors/1", qos, stream_offset="first"
            )
            assert code == qos
            await publishing
            assert await asyncio.to_thread(reader.bodies, 250) == expected(*range(1, 500, 2))

            since = (datetime.now(UTC) - timedelta(hours=1)).isoformat()
            for start, first in (("101", 100), ("1h", 0), (since, 0), ("next", 500)):
                reader = await asyncio.to_thread(Subscriber, port)
                opened.append(reader)
                await asyncio.to_thread(
                    reader.subscribe, "sensors/+", 1, stream_offset=start, stream="history"
                )
                found = await asyncio.to_thread(reader.bodies, 500 - first)
                assert found == expected(*range(first, 500))
            packet = await live(fabric, reader)
            assert packet.topic == "sensors/7"

            for wanted, reason in (
                ({"stream_offset": "soon"}, "none of first, last"),
                ({"stream_offset": "first", "stream": "none"}, "no queue 'none'"),
            ):
                refused = await asyncio.to_thread(reader.subscribe, "sensors/+", 1, **wanted)
                assert refused[0] == 0x80
                assert reason in refused[1]
            refused = await asyncio.to_thread(reader.subscribe, "other/#", 1, stream_offset="first")
            assert "no stream is bound" in refused[1]
            share = "$share/g/sensors/#"
            refused = await asyncio.to_thread(reader.subscribe, share, 1, stream_offset="first")
            assert "no history" in refused[1]


async def publish_more(fabric: Any) -> None:
    for number in range(300, 500):
        await fabric.publish(f"sensors.{number % 2}", f"report {number}")


async def live(fabric: Any, reader: Subscriber) -> Any:
    await fabric.publish("sensors.7", "live")
    return await asyncio.to_thread(reader.arrived.get, timeout=20)


@pytest.mark.parametrize(
    ("wide", "narrow", "whether"),
    [
        ("#", "a.#", True), ("a.#", "a", True), ("a.#", "a.*.c", True), ("a.*", "a.b", True),
        ("a.*", "a.#", False), ("a.b", "a.*", False), ("#.c", "a.b.c", True), ("a.b", "a.b", True),
        ("*.#", "#", False), ("a.#.z", "a.*.*.z", True), ("a", "a.b", False),
    ],
)  # fmt: skip
def test_a_binding_covers_a_filter(wide: str, narrow: str, whether: bool) -> None:
    assert covers(wide, narrow) is whether
