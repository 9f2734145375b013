"""The life of a connection: what may come when, when it must wait, and how it ends."""

from __future__ import annotations

import pytest

from penstock.wire.mqtt.fields import PINGRESP
from penstock.wire.mqtt.packets import encode_auth
from penstock.wire.mqtt.reason_codes import ReasonCode
from tests import mqtt_wire
from tests.protocols.mqtt.broker import Caller, MqttTestBroker

# Keeping alive.


async def test_silence_beyond_what_was_agreed_ends_the_connection(house: MqttTestBroker) -> None:
    caller = await house.connected(keep_alive=10)
    house.clock.advance(14.9)
    assert not caller.cable.closing
    house.clock.advance(0.2)
    assert await caller.until_closed() == ReasonCode.KEEP_ALIVE_TIMEOUT


async def test_a_keep_alive_may_be_shorter_than_the_handshake_timeout(
    house: MqttTestBroker,
) -> None:
    caller = await house.connected(keep_alive=2)
    house.clock.advance(2.9)
    assert not caller.cable.closing
    house.clock.advance(0.2)
    assert await caller.until_closed() == ReasonCode.KEEP_ALIVE_TIMEOUT


async def test_without_a_keep_alive_silence_is_allowed(house: MqttTestBroker) -> None:
    caller = await house.connected(keep_alive=0)
    house.clock.advance(100)
    assert not caller.cable.closing


async def test_any_packet_is_a_sign_of_life(house: MqttTestBroker) -> None:
    caller = await house.connected(keep_alive=10)
    for _ in range(5):
        house.clock.advance(14)
        caller.publish("a")
    assert not caller.cable.closing


async def test_a_ping_is_answered(house: MqttTestBroker) -> None:
    caller = await house.connected()
    caller.say(mqtt_wire.PINGREQ)
    assert caller.of(PINGRESP)


async def test_who_is_not_read_from_is_not_taken_for_dead(house: MqttTestBroker) -> None:
    caller = await house.connected(keep_alive=10)
    caller.publish("a")
    house.alarms.set("disk", "full")
    assert not caller.cable.reading
    house.clock.advance(100)
    assert not caller.cable.closing
    house.alarms.clear("disk")
    house.clock.advance(7)
    assert not caller.cable.closing, "it has just become possible to hear it"


# Out of place.


@pytest.mark.parametrize(
    "packet",
    [b"\x20\x03\x00\x00\x00", b"\x90\x04\x00\x01\x00\x00", b"\xd0\x00", encode_auth(0x18)],
    ids=["CONNACK", "SUBACK", "PINGRESP", "AUTH"],
)
async def test_packets_that_are_not_a_clients_end_the_connection(
    house: MqttTestBroker, packet: bytes
) -> None:
    caller = await house.connected()
    caller.say(packet)
    assert await caller.until_closed() == ReasonCode.PROTOCOL_ERROR


async def test_3_1_1_is_closed_without_a_word(house: MqttTestBroker) -> None:
    caller = await house.connected(version=4)
    written = len(caller.cable.written)
    caller.say(b"\xd0\x00")
    await caller.until_closed()
    assert len(caller.cable.written) == written


async def test_a_client_that_does_not_want_reasons_gets_none(house: MqttTestBroker) -> None:
    caller = await house.connected(request_problem_information=0)
    caller.say(b"\xd0\x00")
    await caller.until_closed()
    assert caller.packets[-1] == (0xE0, bytes((ReasonCode.PROTOCOL_ERROR,)))


# Alarms.


async def test_publishers_wait_while_an_alarm_sounds(house: MqttTestBroker) -> None:
    writer, reader = await house.connected("writer"), await house.connected("reader")
    writer.publish("a")
    house.alarms.set("memory", "full")
    assert not writer.cable.reading
    assert reader.cable.reading
    assert house.kernel.metrics.blocked == 1
    house.alarms.clear("memory")
    assert writer.cable.reading
    assert house.kernel.metrics.blocked == 0


async def test_who_begins_to_publish_during_an_alarm_waits_from_then_on(
    house: MqttTestBroker,
) -> None:
    caller = await house.connected()
    house.alarms.set("disk", "full")
    caller.publish("a")
    assert not caller.cable.reading


async def test_one_that_goes_while_it_waits_is_not_counted_any_more(house: MqttTestBroker) -> None:
    caller = await house.connected()
    caller.publish("a")
    house.alarms.set("disk", "full")
    await caller.cut()
    assert house.kernel.metrics.blocked == 0


# Management.


async def test_a_connection_is_described_at_every_stage(house: MqttTestBroker) -> None:
    caller = house.caller()
    assert caller.terminal.describe()["state"] == "starting"
    await caller.connect("c")
    described = caller.terminal.describe()
    assert (described["state"], described["protocol"]) == ("running", "MQTT 5.0")
    assert described["client_properties"] == {"client_id": "c"}
    assert caller.terminal.describe_consumers() == []
    caller.subscribe("a")
    (consumer,) = caller.terminal.describe_consumers()
    assert consumer["queue"]["name"] == "mqtt-subscription-c"
    await caller.cut()
    caller.terminal.describe()


async def test_an_operator_may_end_a_connection(house: MqttTestBroker) -> None:
    caller = await house.connected()
    caller.terminal.end("because")
    assert await caller.until_closed() == ReasonCode.ADMINISTRATIVE_ACTION


async def test_a_peer_that_does_not_read_its_goodbye_is_cut_off(
    house: MqttTestBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    caller = await house.connected()
    aborted: list[Caller] = []
    monkeypatch.setattr(caller.cable, "close", lambda: None)
    monkeypatch.setattr(caller.cable, "abort", lambda: aborted.append(caller))
    caller.terminal.end("because")
    house.clock.advance(5)
    assert aborted == [caller]
    caller.cable.cut()
