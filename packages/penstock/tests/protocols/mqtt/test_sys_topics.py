"""`$SYS`: the broker's figures as topics."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.wire.mqtt.reason_codes import ReasonCode
from tests.protocols.mqtt.broker import Caller, MqttTestBroker


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[MqttTestBroker]:
    house = MqttTestBroker(tmp_path, mqtt={"sys_interval": 10.0})
    yield house
    await house.close()


def figures(caller: Caller) -> dict[str, str]:
    """The last of each."""
    return {
        message.topic.decode().removeprefix("$SYS/broker/"): message.payload.decode()
        for message in caller.got
    }


async def test_the_last_values_are_there_for_whoever_subscribes(house: MqttTestBroker) -> None:
    caller = await house.connected()
    caller.subscribe("$SYS/broker/version")
    (message,) = caller.got
    assert message.payload.startswith(b"penstock ")
    assert message.retain


async def test_values_come_at_every_interval(house: MqttTestBroker) -> None:
    caller = await house.connected()
    caller.subscribe("$SYS/broker/clients/connected", retain_handling=2)
    house.clock.advance(10)
    await house.connected("other")
    house.clock.advance(10)
    assert caller.payloads == [b"1", b"2"]
    assert not caller.got[-1].retain


async def test_nothing_is_published_when_the_interval_is_zero(tmp_path: Path) -> None:
    house = MqttTestBroker(tmp_path, mqtt={"sys_interval": 0.0})
    caller = await house.connected()
    caller.subscribe("$SYS/#")
    house.clock.advance(100)
    assert not caller.got
    await house.close()


@pytest.mark.parametrize("pattern", ["#", "+/broker/uptime", "+/#"])
async def test_a_wildcard_in_front_does_not_see_them(house: MqttTestBroker, pattern: str) -> None:
    caller = await house.connected()
    caller.subscribe(pattern)
    house.clock.advance(10)
    assert not caller.got


async def test_a_queue_that_takes_everything_is_not_disturbed(house: MqttTestBroker) -> None:
    queue = house.stand.queue()
    house.vhost.bind("amq.topic", queue, "#")
    caller = await house.connected()
    caller.subscribe("$SYS/#")
    house.clock.advance(10)
    assert caller.got
    assert queue.message_count == 0


async def test_clients_are_counted_here_and_away(house: MqttTestBroker) -> None:
    away = await house.connected("away", expiry=100)
    await away.cut()
    caller = await house.connected()
    caller.subscribe("$SYS/#")
    house.clock.advance(10)
    found = figures(caller)
    assert found["clients/connected"] == "1"
    assert found["clients/disconnected"] == "1"
    assert found["clients/total"] == "2"
    assert found["uptime"] == "10 seconds"


async def test_subscriptions_are_counted_of_clients_here_and_away(house: MqttTestBroker) -> None:
    away = await house.connected("away", expiry=100)
    away.subscribe("a", "b")
    await away.cut()
    caller = await house.connected()
    caller.subscribe("$SYS/#")
    house.clock.advance(10)
    assert figures(caller)["subscriptions/count"] == "3"


async def test_loads_are_per_minute_and_grow_towards_the_rate(house: MqttTestBroker) -> None:
    caller = await house.connected()
    caller.subscribe("$SYS/broker/load/messages/received/1min")
    house.clock.advance(10)
    for _ in range(10):
        caller.publish("a")
    house.clock.advance(10)
    before = float(caller.payloads[-1])
    assert 0 < before < 60
    house.clock.advance(600)
    assert float(caller.payloads[-1]) < before


async def test_clients_do_not_publish_there(house: MqttTestBroker) -> None:
    caller = await house.connected()
    caller.publish("$SYS/broker/version", b"forged", qos=1, number=1)
    ((number, reason),) = caller.acknowledgements(4)
    assert (number, reason) == (1, ReasonCode.NOT_AUTHORIZED)
    caller.subscribe("$SYS/broker/version")
    assert b"forged" not in caller.payloads


async def test_a_share_may_take_them(house: MqttTestBroker) -> None:
    caller = await house.connected()
    caller.subscribe("a")
    assert caller.subscribe("$share/g/$SYS/broker/uptime") == [0]
    house.clock.advance(10)
    assert caller.payloads == [b"10 seconds"]


async def test_a_deleted_virtual_host_is_not_told_any_more(house: MqttTestBroker) -> None:
    other = house.stand.open_vhost("other")
    house.vhosts["other"] = other
    house.mqtt.sessions(other)
    del house.vhosts["other"]
    other.delete()
    house.clock.advance(10)
    assert len(other.retained) == 0
