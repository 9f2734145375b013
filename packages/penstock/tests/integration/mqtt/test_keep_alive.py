"""Keep alive: who says nothing for one and a half times as long is gone (section 3.1.2.10)."""

from __future__ import annotations

import time

from tests.fixtures import NewPenstock
from tests.integration.mqtt.building import PINGREQ
from tests.integration.mqtt.dialogue import Client, Connect
from tests.integration.mqtt.packets import Kind, Property, Will
from tests.integration.mqtt.statements import mosquitto_departs, mqtt_5


@mosquitto_departs("looks for them only every five seconds")
def test_who_falls_silent_is_closed_after_one_and_a_half_times_its_keep_alive(
    connect: Connect,
) -> None:
    client = connect(keep_alive=1)
    began = time.monotonic()

    last = client.end()

    assert time.monotonic() - began >= 1.4
    assert last is None or (last.kind, last.reason) == (Kind.DISCONNECT, 0x8D)


@mosquitto_departs("looks for them only every five seconds")
def test_its_will_is_sent(connect: Connect, client: Client, topic: str) -> None:
    client.subscribe(topic)

    silent = connect(keep_alive=1, will=Will(topic))

    assert client.receive(Kind.PUBLISH).payload == b"gone"
    silent.end()


@mosquitto_departs("looks for them only every five seconds")
def test_who_says_anything_in_time_is_not_closed(connect: Connect) -> None:
    client = connect(keep_alive=2)

    for _ in range(5):  # longer than it may be silent
        client.stay_silent(0.7)
        client.call(PINGREQ, Kind.PINGRESP)

    assert client.settle() == []


def test_without_a_keep_alive_nobody_is_closed(connect: Connect) -> None:
    client = connect(keep_alive=0)

    client.stay_silent(1.6)

    assert client.settle() == []


@mqtt_5
def test_the_keep_alive_of_the_client_holds_unless_the_broker_names_another(
    connect: Connect,
) -> None:
    client = connect(keep_alive=60)

    assert client.connack is not None
    assert client.connack.get(Property.SERVER_KEEP_ALIVE) is None


def test_the_keep_alive_of_the_broker_is_told_and_held(new_penstock: NewPenstock) -> None:
    shortest = {"PENSTOCK_BROKER__MQTT__KEEP_ALIVE": "1s"}
    server = new_penstock(mqtt=True, environment=shortest)

    with Client(server.mqtt_port) as client:
        told = client.connect(keep_alive=600).get(Property.SERVER_KEEP_ALIVE)
        client.expect_refusal(0x8D)

    assert told == 1
