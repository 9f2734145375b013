"""Wills: sent when a client goes without taking leave (sections 3.1.2.5 and 3.1.3.2)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.integration.mqtt.building import publish_bytes
from tests.integration.mqtt.dialogue import Client, Connect, lasting
from tests.integration.mqtt.packets import MQTT_5, Kind, Property, Will
from tests.integration.mqtt.statements import mosquitto_departs, mqtt_3, mqtt_5


@pytest.fixture
def witness(connect: Connect, topic: str) -> Client:
    """A client that sees the will."""
    witness = connect()
    witness.subscribe(topic, options=2)
    return witness


def delayed(topic: str, seconds: int, expiry: int, **fields: Any) -> dict[str, Any]:
    """Fields of a CONNECT with a will that waits, in a session that lasts so long."""
    will = Will(topic, properties=[(Property.WILL_DELAY, seconds)])
    return {"will": will, "properties": [(Property.SESSION_EXPIRY, expiry)], **fields}


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_it_is_sent_when_the_connection_breaks(
    connect: Connect, witness: Client, topic: str, qos: int
) -> None:
    connect(will=Will(topic, b"gone", qos)).close()

    will = witness.receive(Kind.PUBLISH)
    assert (will.payload, will.qos, will.retain) == (b"gone", qos, False)


def test_it_is_not_sent_while_the_connection_lasts(
    connect: Connect, witness: Client, topic: str
) -> None:
    connect(will=Will(topic)).settle()

    assert witness.settle() == []


def test_it_is_not_sent_after_a_leave(connect: Connect, witness: Client, topic: str) -> None:
    connect(will=Will(topic)).disconnect()

    assert witness.settle() == []


@mqtt_5
def test_it_is_sent_after_a_leave_that_asks_for_it(
    connect: Connect, witness: Client, topic: str
) -> None:
    connect(will=Will(topic)).disconnect(0x04)

    assert witness.receive(Kind.PUBLISH).payload == b"gone"


@mqtt_5
@mosquitto_departs("takes any leave but that for a normal one")
@pytest.mark.parametrize("reason", [0x80, 0x82, 0x99])
def test_it_is_sent_after_a_leave_in_anger(
    connect: Connect, witness: Client, topic: str, reason: int
) -> None:
    connect(will=Will(topic)).disconnect(reason)

    assert witness.receive(Kind.PUBLISH).payload == b"gone"


def test_it_is_sent_when_the_broker_has_to_close(
    connect: Connect, witness: Client, version: int, topic: str
) -> None:
    broken = connect(will=Will(topic))

    broken.send(publish_bytes("not/+/allowed", version=version))

    assert witness.receive(Kind.PUBLISH).payload == b"gone"


def test_it_is_sent_when_another_connection_takes_over(
    connect: Connect, witness: Client, topic: str
) -> None:
    old = connect(will=Will(topic))

    connect(old.client_id)

    assert witness.receive(Kind.PUBLISH).payload == b"gone"


def test_it_is_sent_once(connect: Connect, witness: Client, version: int, topic: str) -> None:
    mortal = connect(will=Will(topic), **lasting(version))
    mortal.close()
    witness.receive(Kind.PUBLISH)

    connect(mortal.client_id, **lasting(version)).close()
    connect(mortal.client_id, **lasting(version)).disconnect()

    assert witness.settle() == []


def test_a_client_without_a_will_leaves_none(
    connect: Connect, witness: Client, version: int, topic: str
) -> None:
    """Not even the one it had the last time."""
    careful = connect(will=Will(topic), **lasting(version))
    careful.disconnect()

    careless = connect(careful.client_id, **lasting(version))
    careless.close()
    connect(careful.client_id, **lasting(version)).disconnect()

    assert witness.settle() == []


def test_a_will_may_be_empty(connect: Connect, witness: Client, topic: str) -> None:
    connect(will=Will(topic, b"")).close()

    assert witness.receive(Kind.PUBLISH).payload == b""


@pytest.mark.parametrize("retain", [True, False])
def test_it_is_retained_if_it_says_so(
    connect: Connect, witness: Client, topic: str, retain: bool
) -> None:
    connect(will=Will(topic, retain=retain)).close()
    assert not witness.receive(Kind.PUBLISH).retain

    late = connect()
    late.subscribe(topic)

    assert [packet.retain for packet in late.settle()] == ([True] if retain else [])


@mqtt_5
def test_its_properties_come_with_it(connect: Connect, witness: Client, topic: str) -> None:
    properties = [
        (Property.PAYLOAD_FORMAT, 1),
        (Property.MESSAGE_EXPIRY, 100),
        (Property.CONTENT_TYPE, "text/plain"),
        (Property.RESPONSE_TOPIC, "answers/here"),
        (Property.CORRELATION_DATA, b"\x00\xff"),
        (Property.USER_PROPERTY, ("b", "1")),
        (Property.USER_PROPERTY, ("a", "2")),
        (Property.USER_PROPERTY, ("b", "3")),
    ]

    connect(will=Will(topic, properties=properties)).close()

    will = witness.receive(Kind.PUBLISH)
    for name in {name for name, _ in properties}:
        assert will.all(name) == [value for other, value in properties if other is name]
    assert will.get(Property.WILL_DELAY) is None


@mqtt_5
def test_it_waits_for_its_delay(connect: Connect, witness: Client, topic: str) -> None:
    client = connect(**delayed(topic, 1, 60))
    began = time.monotonic()
    client.close()

    assert witness.receive(Kind.PUBLISH).payload == b"gone"
    assert time.monotonic() - began > 0.8


@mqtt_5
def test_who_comes_back_in_time_is_not_mourned(
    connect: Connect, witness: Client, topic: str
) -> None:
    first = connect(**delayed(topic, 3, 60))
    first.close()

    connect(first.client_id, **lasting(MQTT_5))

    witness.stay_silent(3.5)


@mqtt_5
def test_who_takes_over_in_time_is_not_mourned(
    connect: Connect, witness: Client, topic: str
) -> None:
    first = connect(**delayed(topic, 1, 60))

    connect(first.client_id, **lasting(MQTT_5))

    witness.stay_silent(1.5)


@mqtt_5
def test_it_does_not_wait_longer_than_the_session(
    connect: Connect, witness: Client, topic: str
) -> None:
    connect(**delayed(topic, 60, 1)).close()

    assert witness.receive(Kind.PUBLISH).payload == b"gone"


@mqtt_5
@mosquitto_departs("waits for the delay")
def test_it_does_not_wait_at_all_when_the_session_ends_with_the_connection(
    connect: Connect, witness: Client, topic: str
) -> None:
    connect(**delayed(topic, 60, 0)).close()

    assert witness.receive(Kind.PUBLISH).payload == b"gone"


@mqtt_5
@mosquitto_departs("forgets the will")
def test_it_does_not_wait_when_a_clean_start_ends_the_session(
    connect: Connect, witness: Client, topic: str
) -> None:
    first = connect(**delayed(topic, 60, 60))

    connect(first.client_id, clean=True)

    assert witness.receive(Kind.PUBLISH).payload == b"gone"


@mqtt_5
def test_a_leave_cancels_a_delayed_one_too(connect: Connect, witness: Client, topic: str) -> None:
    connect(**delayed(topic, 1, 60)).disconnect()

    witness.stay_silent(1.5)


@mqtt_3
def test_an_old_will_gives_way_to_the_new_one(
    connect: Connect, witness: Client, topic: str
) -> None:
    first = connect(will=Will(topic, b"old"))
    first.disconnect()

    connect(first.client_id, will=Will(topic, b"new")).close()

    assert witness.receive(Kind.PUBLISH).payload == b"new"
