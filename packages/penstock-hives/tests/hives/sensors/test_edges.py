"""A fleet on a real broker: its frames arrive, and it does what it is told."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

from penstock.client import Fabric, MessageReceiver, NoReply, connect
from penstock.core.errors import PreconditionFailed
from penstock_hives.sensors.configurator import configure_sensor
from penstock_hives.sensors.fleet import Fleet
from penstock_hives.sensors.protocol import (
    ByteOrder,
    FirmwareProfile,
    SensorConfiguration,
    SensorTopic,
    StatusMessage,
)
from penstock_hives.sensors.protocol.topic import ALL_SENSOR_TOPICS, COMMAND_TOPICS
from penstock_hives.sensors.publisher import (
    RECEIVED_AT_HEADER,
    FramePublisher,
    is_mqtt_url,
    to_broker_address,
)
from penstock_hives.sensors.simulation import serve_commands
from tests.peers import Penstock

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
PATIENCE = 60.0

Answer = Callable[[int], bytes | None]

#: Brokers are shared, and retain: no two tests may mean the same configuration.
identities = itertools.count(1000)


@pytest.fixture
async def fabric(url: str) -> AsyncIterator[Fabric]:
    async with connect(url) as fabric:
        yield fabric


@asynccontextmanager
async def obeying(fleet: Fleet, fabric: Fabric, url: str) -> AsyncIterator[None]:
    sender = FramePublisher(fabric, url, stamped=False)
    async with fabric.subscribe(to_broker_address(COMMAND_TOPICS, is_mqtt_url(url))) as orders:
        work = asyncio.create_task(serve_commands(orders, fleet, sender))
        yield
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def test_frames_arrive_in_order_and_say_when_they_are_from(fabric: Fabric, url: str) -> None:
    frames = list(Fleet(start=NOON, hives=5).frames(NOON + timedelta(hours=1)))
    sender = FramePublisher(fabric, url, stamped=True)
    seen: dict[str, list[tuple[bytes, str]]] = defaultdict(list)
    async with fabric.subscribe(to_broker_address(ALL_SENSOR_TOPICS, is_mqtt_url(url))) as inflow:
        for frame in frames:
            await sender.send(frame)
        await sender.flush()
        async with asyncio.timeout(PATIENCE):
            for _ in frames:
                message = await inflow.receive()
                topic = SensorTopic.parse(message.address).topic
                seen[topic].append((message.body, message.headers[RECEIVED_AT_HEADER]))
    sent = defaultdict(list)
    for frame in frames:
        sent[frame.topic].append((frame.body, str(frame.at)))
    assert seen == sent
    assert sender.sent == len(frames)


@pytest.mark.parametrize("order", ByteOrder)
async def test_a_sensor_acknowledges_its_configuration(
    fabric: Fabric, url: str, order: ByteOrder
) -> None:
    fleet = Fleet(start=NOON, hives=20)
    sensor = next(s for s in fleet.sensors if s.profile.byte_order is order)
    wanted = SensorConfiguration(next(identities), event_threshold=9)
    async with obeying(fleet, fabric, url):
        status = await configure_sensor(
            *(fabric, sensor.serial, wanted, sensor.profile),
            mqtt=is_mqtt_url(url),
            timeout=PATIENCE,
        )
    assert status.configuration_id == wanted.configuration_id


@pytest.mark.parametrize(("theirs", "ours"), [("little", "big"), ("big", "little")])
async def test_a_sensor_that_misread_its_configuration_is_told_of(
    mqtt_penstock: Penstock, theirs: str, ours: str
) -> None:
    fleet = Fleet(start=NOON, hives=20)
    sensor = next(s for s in fleet.sensors if s.profile.byte_order == theirs)
    wanted = SensorConfiguration(next(identities))
    url = mqtt_penstock.url
    async with connect(url) as fabric, obeying(fleet, fabric, url):
        with pytest.raises(PreconditionFailed, match=f"--byte-order {theirs}"):
            await configure_sensor(
                *(fabric, sensor.serial, wanted, FirmwareProfile(ByteOrder(ours))),
                mqtt=False,
                timeout=PATIENCE,
            )


async def test_a_sensor_that_was_away_finds_its_configuration(mqtt_url: str) -> None:
    fleet = Fleet(start=NOON, hives=1)
    sensor = fleet.sensors[0]
    wanted = SensorConfiguration(next(identities))
    async with connect(mqtt_url) as fabric:
        with pytest.raises(NoReply, match="retained, and the sensor receives it"):
            await configure_sensor(
                fabric, sensor.serial, wanted, sensor.profile, mqtt=True, timeout=0.0
            )
        async with fabric.subscribe(f"sensors/{sensor.serial}/status") as statuses:
            async with obeying(fleet, fabric, mqtt_url), asyncio.timeout(PATIENCE):
                message = await statuses.receive()
    assert (
        StatusMessage.decode(message.body, sensor.profile).configuration_id
        == wanted.configuration_id
    )


@pytest.mark.parametrize(
    ("answer", "advice"),
    [
        (lambda wanted: None, "is it switched on"),
        (lambda wanted: b"nonsense", "is no status"),
        (lambda wanted: status_of(3).encode(FirmwareProfile()), "still has configuration 3"),
        (
            lambda wanted: status_of(wanted).encode(FirmwareProfile(ByteOrder.LITTLE)),
            "use --byte-order little",
        ),
    ],
)
async def test_who_waits_in_vain_is_told_what_to_check(
    mqtt_penstock: Penstock, answer: Answer, advice: str
) -> None:
    wanted = next(identities)
    serial = f"away-{wanted}"

    async def misunderstand(orders: MessageReceiver, fabric: Fabric) -> None:
        """A device that answers in its own way, which is not the right one."""
        async for _ in orders:
            if (body := answer(wanted)) is not None:
                await fabric.publish(f"sensors.{serial}.status", body)

    async with (
        connect(mqtt_penstock.url) as fabric,
        fabric.subscribe(f"commands.sensor.{serial}") as orders,
    ):
        device = asyncio.create_task(misunderstand(orders, fabric))
        with pytest.raises(NoReply, match=advice):
            await configure_sensor(
                *(fabric, serial, SensorConfiguration(wanted), FirmwareProfile()),
                mqtt=False,
                timeout=1.0,
            )
        device.cancel()
        await asyncio.gather(device, return_exceptions=True)


def status_of(configuration: int) -> StatusMessage:
    return StatusMessage(0, 0, 0, 0, 0, (0, 0, 0, 0), configuration)
