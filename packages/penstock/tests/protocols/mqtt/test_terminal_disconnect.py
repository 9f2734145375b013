"""After the last word: nothing a client sends behind its DISCONNECT, or behind a fault, counts."""

from __future__ import annotations

import pytest

from penstock.wire.mqtt.packets import SubscriptionRequest, encode_disconnect
from tests import mqtt_wire
from tests.protocols.mqtt.broker import MqttTestBroker, published


async def test_a_publication_behind_disconnect_is_not_taken(house: MqttTestBroker) -> None:
    queue = house.stand.queue()
    house.vhost.bind("amq.topic", queue, "#")
    caller = await house.connected()
    caller.publish("a", b"before")
    caller.say(encode_disconnect(0), published(5, "a", b"behind"))
    await caller.until_closed()
    assert queue.message_count == 1


async def test_a_subscription_behind_disconnect_leaves_nothing(house: MqttTestBroker) -> None:
    caller = await house.connected()
    asked = [SubscriptionRequest("a", 1)]
    caller.say(encode_disconnect(0), mqtt_wire.subscribe(5, 1, asked))
    await caller.until_closed()
    assert not house.vhost.queues
    assert not list(house.vhost.bindings())


async def test_a_subscription_behind_disconnect_binds_no_session_that_has_ended(
    house: MqttTestBroker,
) -> None:
    caller = await house.connected()
    caller.subscribe("a")
    asked = [SubscriptionRequest("b", 1)]
    caller.say(encode_disconnect(0), mqtt_wire.subscribe(5, 1, asked))
    await caller.until_closed()
    assert not list(house.vhost.bindings())


async def test_what_follows_a_refused_publication_before_mqtt_5_is_not_taken(
    house: MqttTestBroker,
) -> None:
    queue = house.stand.queue()
    house.vhost.bind("amq.topic", queue, "#")
    caller = await house.connected(version=4)
    caller.publish("a", b"before")
    caller.say(published(4, "$SYS/x", b"no", qos=1, number=1), published(4, "a", b"behind"))
    await caller.until_closed()
    assert queue.message_count == 1


async def test_a_large_publication_before_connect_closes_quietly(
    house: MqttTestBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caller = house.caller()
    caller.say(published(4, "a", b"." * 300_000))
    await caller.until_closed()
    assert not caller.cable.written
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
