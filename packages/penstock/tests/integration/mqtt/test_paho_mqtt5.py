"""paho-mqtt: what MQTT 5 adds, as far as a client of it can see."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.integration.mqtt.clients_paho import MQTT_3, MQTT_5, WITHOUT_A_WORD, Paho, Will
from tests.peers import MqttBroker, Penstock

BAD_USER_NAME_OR_PASSWORD = 0x86
KEEP_ALIVE_TIMEOUT = 0x8D
NO_SUBSCRIPTION_EXISTED = 0x11
TOPIC_FILTER_INVALID = 0x8F


@pytest.mark.parametrize(
    ("property_name", "value"),
    [
        ("ContentType", "text/plain"),
        ("ContentType", "text/ü"),
        ("ContentType", "x" * 1000),
        ("PayloadFormatIndicator", 1),
        ("ResponseTopic", "answers/to/7"),
        ("ResponseTopic", "answers.with.dots/and/x*"),
        ("CorrelationData", b"request-1"),
        ("CorrelationData", bytes(range(256))),
        ("CorrelationData", b""),
        ("UserProperty", [("unit", "m"), ("site", "north"), ("unit", "cm")]),
        ("UserProperty", [("", ""), ("ü", "x" * 3000)]),
        ("UserProperty", [("n" * 300, "a name longer than AMQP can have")]),
        ("UserProperty", [("x-mqtt-publish-qos", "mine"), ("x-reply-to-topic", "mine too")]),
    ],
)
@pytest.mark.parametrize("retained", [False, True], ids=["live", "retained"])
def test_a_property_of_a_message_arrives_unaltered(
    port: int, name: str, property_name: str, value: Any, retained: bool
) -> None:
    with Paho(port, name) as client:
        if not retained:
            client.subscribe(name, 2)
        client.publish(name, b"report", 2, retained, **{property_name: value})
        if retained:
            client.subscribe(name, 2)

        assert client.receive().properties == {property_name: value}


def test_a_message_says_how_long_it_has_still_to_live(port: int, name: str) -> None:
    with Paho(port, name, keep=True) as client:
        client.subscribe(name, 1)
    with Paho(port, f"{name}.pub") as writer:
        writer.publish(name, b"short", 1, MessageExpiryInterval=1)
        writer.publish(name, b"long", 1, MessageExpiryInterval=100)
    time.sleep(2.1)  # time itself is what is tested: brokers count whole seconds

    with Paho(port, name, keep=True) as client:
        (arrival,) = client.arrived()

    assert arrival.payload == b"long"
    assert 90 <= arrival.properties["MessageExpiryInterval"] <= 98


def test_a_request_is_answered_where_it_says(port: int, name: str) -> None:
    with Paho(port, f"{name}.asks") as asks, Paho(port, f"{name}.answers") as answers:
        asks.subscribe(f"{name}/answers/7", 1)
        answers.subscribe(f"{name}/requests", 1)
        asks.publish(
            f"{name}/requests",
            b"how deep?",
            1,
            ResponseTopic=f"{name}/answers/7",
            CorrelationData=b"\x00\xff1",
        )
        asked = answers.receive().properties
        answers.publish(asked["ResponseTopic"], b"3 m", 1, CorrelationData=asked["CorrelationData"])
        answer = asks.receive()

    assert (answer.payload, answer.properties) == (b"3 m", {"CorrelationData": b"\x00\xff1"})


def test_a_topic_may_be_named_by_an_alias(port: int, name: str) -> None:
    with Paho(port, name) as client:
        client.subscribe(f"{name}/#", 1)
        client.publish(f"{name}/a", b"1", 1, TopicAlias=1)
        client.publish(f"{name}/b", b"2", 1, TopicAlias=2)
        client.publish("", b"3", 1, TopicAlias=1)
        client.publish(f"{name}/c", b"4", 1, TopicAlias=1)
        client.publish("", b"5", 1, TopicAlias=1)

        arrivals = client.arrived()

    assert [arrival.topic.removeprefix(name) for arrival in arrivals] == [
        "/a",
        "/b",
        "/a",
        "/c",
        "/c",
    ]


def test_a_message_names_the_subscriptions_it_came_by(mqtt_penstock: Penstock, name: str) -> None:
    """mosquitto sends one message for each subscription, with one identifier each."""
    with Paho(mqtt_penstock.mqtt_port, name) as client:
        client.subscribe(f"{name}/a", 1, identifier=1)
        client.subscribe(f"{name}/+", 1, identifier=268_435_455)
        client.subscribe(f"{name}/b", 1)
        client.publish(f"{name}/a", b"", 1)

        (arrival,) = client.arrived()

    assert sorted(arrival.properties["SubscriptionIdentifier"]) == [1, 268_435_455]


@pytest.mark.parametrize("qos", [1, 2])
def test_no_more_is_under_way_than_a_client_can_take(
    mqtt_penstock: Penstock, name: str, qos: int
) -> None:
    """mosquitto 2.0.11 holds to it until the first answer, then sends more than it may."""
    port = mqtt_penstock.mqtt_port
    client = Paho(port, name, manual=True, ReceiveMaximum=3)
    client.open()
    client.subscribe(name, qos)
    with Paho(port, f"{name}.pub") as writer:
        for number in range(10):
            writer.publish(name, b"%d" % number, qos)

    for first in range(0, 9, 3):
        window = [client.receive() for _ in range(3)]
        assert [arrival.payload for arrival in window] == [b"%d" % (first + n) for n in range(3)]
        assert client.pending() == []
        for arrival in window:
            client.acknowledge(arrival)
    assert client.receive().payload == b"9"
    client.close()


def test_a_message_too_large_for_a_client_passes_it_by(port: int, name: str) -> None:
    with (
        Paho(port, f"{name}.small", MaximumPacketSize=300) as small,
        Paho(port, f"{name}.any") as any_size,
    ):
        for client in (small, any_size):
            client.subscribe(name, 1)
        for payload in (b"a", b"b" * 400, b"c"):
            any_size.publish(name, payload, 1)

        assert [arrival.payload for arrival in small.arrived()] == [b"a", b"c"]
        assert len(any_size.arrived()) == 3


@pytest.mark.parametrize("version", [MQTT_3, MQTT_5], ids=["3.1.1", "5.0"])
def test_a_wrong_password_is_refused_and_said_so(
    mqtt_penstock: Penstock, name: str, version: Any
) -> None:
    """paho translates what 3.1.1 says into the codes of MQTT 5."""
    for login in (("guest", "wrong"), ("nobody", "guest")):
        client = Paho(mqtt_penstock.mqtt_port, name, version, login=login)

        assert client.open().reason == BAD_USER_NAME_OR_PASSWORD
        client.ended()
        client.client.loop_stop()


def test_unsubscribing_from_what_was_not_subscribed_is_told(port: int, name: str) -> None:
    with Paho(port, name) as client:
        assert client.unsubscribe(name) == [NO_SUBSCRIPTION_EXISTED]


def test_the_connack_says_what_the_broker_can_do(mqtt_penstock: Penstock, name: str) -> None:
    """What is not said is available: so the standard has it."""
    client = Paho(mqtt_penstock.mqtt_port, name)
    said = client.open().properties
    client.close()

    assert said.get("MaximumQoS", 2) == 2
    for ability in (
        "RetainAvailable",
        "WildcardSubscriptionAvailable",
        "SubscriptionIdentifierAvailable",
        "SharedSubscriptionAvailable",
    ):
        assert said.get(ability, 1) == 1
    assert said["TopicAliasMaximum"] > 0
    assert said.get("ReceiveMaximum", 65535) > 0


@pytest.mark.parametrize("version", [MQTT_3, MQTT_5], ids=["3.1.1", "5.0"])
def test_a_client_that_falls_silent_is_closed_and_its_will_published(
    mqtt_broker: MqttBroker, name: str, version: Any
) -> None:
    port = mqtt_broker.mqtt_port
    silent = Paho(port, f"{name}.silent", version, keep_alive=1, will=Will(name, b"silent", 1))
    with Paho(port, f"{name}.watch", version) as watcher:
        watcher.subscribe(name, 1)
        silent.open()
        silent.client.loop_stop()  # nobody sends PINGREQ any more
        began = time.monotonic()
        assert watcher.receive().payload == b"silent"
        waited = time.monotonic() - began

    assert waited > 1.0, "before what was agreed"
    silent.client.loop_start()
    if mqtt_broker.name == "penstock":
        said = KEEP_ALIVE_TIMEOUT if version == MQTT_5 else WITHOUT_A_WORD
        assert silent.ended() == said
    silent.client.loop_stop()


def test_a_client_that_only_pings_stays(mqtt_penstock: Penstock, name: str) -> None:
    with Paho(mqtt_penstock.mqtt_port, name, keep_alive=4) as client:
        time.sleep(6.5)  # longer than it may be silent: the keep-alive is the point
        assert client.is_open


def test_the_state_of_the_broker_is_under_sys(port: int, name: str) -> None:
    with Paho(port, name) as client:
        client.subscribe("$SYS/#")
        found = {arrival.topic: arrival.payload for arrival in client.arrived()}
        while "$SYS/broker/clients/connected" not in found:  # a broker has just started
            arrival = client.receive()
            found[arrival.topic] = arrival.payload

    assert found["$SYS/broker/version"]
    assert int(found["$SYS/broker/clients/connected"]) >= 0
    for counter in ("messages/received", "messages/sent", "retained messages/count"):
        assert f"$SYS/broker/{counter}" in found, sorted(found)


def test_a_subscription_to_everything_does_not_bring_sys(port: int, name: str) -> None:
    with Paho(port, name) as client:
        client.subscribe(["#", "+/broker/#"])

        assert not [one for one in client.arrived() if one.topic.startswith("$")]
