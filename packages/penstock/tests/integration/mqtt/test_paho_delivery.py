"""paho-mqtt: messages of each quality of service, in both versions, with its loops."""

from __future__ import annotations

import threading

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.integration.mqtt.clients_paho import MQTT_3, MQTT_5, Paho
from tests.peers import Penstock

PATIENCE = 60


@pytest.fixture(params=[MQTT_3, MQTT_5], ids=["3.1.1", "5.0"])
def version(request: pytest.FixtureRequest) -> MQTTProtocolVersion:
    chosen: MQTTProtocolVersion = request.param
    return chosen


@pytest.mark.parametrize("subscribed", [0, 1, 2])
@pytest.mark.parametrize("published", [0, 1, 2])
def test_a_message_arrives_with_the_lesser_of_both_qualities(
    port: int, name: str, version: MQTTProtocolVersion, published: int, subscribed: int
) -> None:
    with Paho(port, f"{name}.sub", version) as reader, Paho(port, f"{name}.pub", version) as writer:
        assert reader.subscribe(f"{name}/+", subscribed) == [subscribed]
        writer.publish(f"{name}/a", b"report", published)

        arrival = reader.receive()

        assert (arrival.topic, arrival.payload) == (f"{name}/a", b"report")
        assert (arrival.qos, arrival.dup, arrival.retain) == (
            min(published, subscribed),
            False,
            False,
        )


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_many_messages_arrive_once_and_in_order(
    port: int, name: str, version: MQTTProtocolVersion, qos: int
) -> None:
    sent = [b"%d" % number for number in range(500)]
    with Paho(port, f"{name}.sub", version) as reader, Paho(port, f"{name}.pub", version) as writer:
        reader.subscribe(f"{name}/#", qos)
        for payload in sent:
            writer.post(f"{name}/a", payload, qos)

        assert reader.receive_payloads(len(sent)) == sent
        assert reader.arrived() == []


def test_the_versions_understand_each_other(port: int, name: str) -> None:
    with Paho(port, f"{name}.3", MQTT_3) as old, Paho(port, f"{name}.5", MQTT_5) as new:
        old.subscribe(f"{name}/to-old", 2)
        new.subscribe(f"{name}/to-new", 2)
        new.publish(f"{name}/to-old", b"from new", 2, UserProperty=("unit", "m"))
        old.publish(f"{name}/to-new", b"from old", 2)

        assert old.receive().payload == b"from new"
        assert new.receive().payload == b"from old"


def test_an_empty_and_a_large_message_arrive(
    port: int, name: str, version: MQTTProtocolVersion
) -> None:
    sent = [b"", b"x" * 200_000, b"y" * 3_000_000, b"z"]
    with Paho(port, f"{name}.sub", version) as reader, Paho(port, f"{name}.pub", version) as writer:
        reader.subscribe(name, 1)
        for payload in sent:
            writer.post(name, payload, 1)

        assert reader.receive_payloads(len(sent)) == sent


def test_what_was_unsubscribed_arrives_no_more(
    port: int, name: str, version: MQTTProtocolVersion
) -> None:
    with Paho(port, name, version) as client:
        client.subscribe([f"{name}/a", f"{name}/b"], 1)
        client.unsubscribe(f"{name}/a")
        client.publish(f"{name}/a", b"a", 1)
        client.publish(f"{name}/b", b"b", 1)

        assert [arrival.payload for arrival in client.arrived()] == [b"b"]


def test_overlapping_subscriptions_give_a_message_once_with_the_best_quality(
    mqtt_penstock: Penstock, name: str
) -> None:
    """The standard also permits a message for each subscription: so does mosquitto."""
    with Paho(mqtt_penstock.mqtt_port, name) as client:
        client.subscribe(f"{name}/#", 0)
        client.subscribe(f"{name}/+", 2)
        client.subscribe(f"{name}/a", 1)
        client.publish(f"{name}/a", b"once", 2)

        assert [arrival.qos for arrival in client.arrived()] == [2]


def test_a_client_hears_itself_unless_it_asks_not_to(port: int, name: str) -> None:
    with Paho(port, name) as client:
        client.subscribe(f"{name}/heard", 1)
        client.subscribe(f"{name}/unheard", 1, noLocal=True)
        client.publish(f"{name}/unheard", b"", 1)
        client.publish(f"{name}/heard", b"", 1)

        assert [arrival.topic for arrival in client.arrived()] == [f"{name}/heard"]


def test_a_client_that_runs_its_own_loop(
    port: int, name: str, version: MQTTProtocolVersion
) -> None:
    """No thread: the program calls `loop` when it sees fit."""
    client = paho.Client(CallbackAPIVersion.VERSION2, name, protocol=version)
    client.username_pw_set("guest", "guest")
    arrived: list[bytes | bytearray] = []
    ready = threading.Event()

    def subscribe(*_: object) -> None:
        client.subscribe(name, 2)

    def publish(*_: object) -> None:
        for number in range(5):
            client.publish(name, b"%d" % number, 2)

    def note(_client: object, _data: object, message: paho.MQTTMessage) -> None:
        arrived.append(message.payload)
        if len(arrived) == 5:
            ready.set()

    client.on_connect = subscribe
    client.on_subscribe = publish
    client.on_message = note
    client.connect("127.0.0.1", port)
    while not ready.is_set():
        assert client.loop(PATIENCE) == paho.MQTT_ERR_SUCCESS
    client.disconnect()

    assert arrived == [b"%d" % number for number in range(5)]
