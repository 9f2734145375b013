"""What a restart keeps of MQTT, be it clean or not: sessions, what is under way, what is retained.

mosquitto writes to its disk when it is stopped, so it is stopped and not killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from tests.fixtures import NewMosquitto, NewPenstock
from tests.integration.mqtt.clients_paho import MQTT_3, MQTT_5, Paho
from tests.peers import MqttBroker

Restart = Callable[[], None]

OURS = ("penstock stop", "penstock kill")


def mosquitto_departs(how: str) -> pytest.MarkDecorator:
    """Only for Penstock, because mosquitto 2.0.11 does this instead."""
    assert how
    return pytest.mark.parametrize("broker", OURS, indirect=True)


@pytest.fixture(params=[*OURS, pytest.param("mosquitto stop", marks=pytest.mark.peer)])
def broker(
    request: pytest.FixtureRequest, new_penstock: NewPenstock, new_mosquitto: NewMosquitto
) -> MqttBroker:
    """A broker of the test's own, to be ended and started again."""
    if request.param == "mosquitto stop":
        return new_mosquitto()
    return new_penstock(mqtt=True)


@pytest.fixture
def port(broker: MqttBroker) -> int:
    return broker.mqtt_port


@pytest.fixture
def restart(request: pytest.FixtureRequest, broker: MqttBroker) -> Restart:
    how = request.node.callspec.params["broker"].split()[1]

    def end_and_start() -> None:
        getattr(broker, how)()
        broker.start()

    return end_and_start


def publish(port: int, topic: str, *payloads: bytes, qos: int = 1) -> None:
    with Paho(port, "publisher") as writer:
        for payload in payloads:
            writer.publish(topic, payload, qos)


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("version", [MQTT_3, MQTT_5], ids=["3.1.1", "5.0"])
def test_a_session_keeps_its_subscriptions_and_what_waits_in_it(
    port: int, restart: Restart, version: MQTTProtocolVersion, qos: int
) -> None:
    with Paho(port, "reader", version, keep=True) as client:
        client.subscribe("a/+", qos)
    publish(port, "a/b", *numbers(10), qos=qos)

    restart()
    publish(port, "a/b", b"after", qos=qos)

    again = Paho(port, "reader", version, keep=True)
    assert again.open().present
    arrivals = [again.receive() for _ in range(11)]
    again.close()
    assert [one.payload for one in arrivals] == [*numbers(10), b"after"]
    assert {one.qos for one in arrivals} == {qos}


def test_what_was_under_way_comes_again_with_the_same_number(port: int, restart: Restart) -> None:
    client = Paho(port, "reader", keep=True, manual=True)
    client.open()
    client.subscribe("a", 1)
    publish(port, "a", *numbers(5))
    before = [client.receive() for _ in range(5)]
    for arrival in before[:2]:
        client.acknowledge(arrival)
    client.arrived()  # so that the broker has read the answers

    restart()
    client.client.loop_stop()

    with Paho(port, "reader", keep=True) as again:
        after = [again.receive() for _ in range(3)]
        assert again.arrived() == []
    assert [(one.payload, one.number, one.dup) for one in after] == [
        (one.payload, one.number, True) for one in before[2:]
    ]


def test_what_was_received_exactly_once_does_not_come_again(port: int, restart: Restart) -> None:
    client = Paho(port, "reader", keep=True, manual=True)
    client.open()
    client.subscribe("a", 2)
    publish(port, "a", *numbers(5), qos=2)
    client.receive_payloads(5)  # each is released; the last answer, PUBCOMP, is not sent

    restart()
    client.client.loop_stop()
    publish(port, "a", b"new", qos=2)

    with Paho(port, "reader", keep=True) as again:
        assert [again.receive().payload, again.arrived()] == [b"new", []]


def test_a_session_that_is_not_kept_goes(port: int, restart: Restart) -> None:
    client = Paho(port, "reader")
    client.open()
    client.subscribe("a", 1)

    restart()
    client.client.loop_stop()
    publish(port, "a", b"missed")

    again = Paho(port, "reader", keep=True)
    assert not again.open().present
    assert again.arrived() == []
    again.close()


def test_what_was_unsubscribed_stays_so(port: int, restart: Restart) -> None:
    with Paho(port, "reader", keep=True) as client:
        client.subscribe(["a", "b"], 1)
        client.unsubscribe("a")

    restart()
    publish(port, "a", b"a")
    publish(port, "b", b"b")

    with Paho(port, "reader", keep=True) as client:
        assert [arrival.payload for arrival in client.arrived()] == [b"b"]


def test_the_options_of_a_subscription_are_kept(port: int, restart: Restart) -> None:
    with Paho(port, "reader", keep=True) as client:
        client.subscribe("own", 1, noLocal=True)
        client.subscribe("named", 1, identifier=7)
        client.subscribe("flagged", 1, retainAsPublished=True)

    restart()

    with Paho(port, "reader", keep=True) as client:
        client.publish("own", b"unheard", 1)
        client.publish("named", b"", 1)
        client.publish("flagged", b"x", 1, retain=True)
        named, flagged = client.arrived()
    assert named.properties == {"SubscriptionIdentifier": [7]}
    assert flagged.retain


@mosquitto_departs("forgets that a subscription was shared")
def test_a_member_of_a_group_stays_one(port: int, restart: Restart) -> None:
    with Paho(port, "reader", keep=True) as client:
        client.subscribe("$share/group/a", 1)
    publish(port, "a", *numbers(3))

    restart()
    publish(port, "a", b"after")

    with Paho(port, "reader", keep=True) as client:
        assert client.receive_payloads(4) == [*numbers(3), b"after"]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_retained_messages_are_kept_with_all_they_say(
    port: int, restart: Restart, qos: int
) -> None:
    pairs = [("unit", "m"), ("site", "north"), ("unit", "cm")]
    with Paho(port, "writer") as writer:
        writer.publish("kept/a", b"old", qos, retain=True)
        writer.publish("kept/a", b"new", qos, retain=True, UserProperty=pairs, ContentType="t")
        writer.publish("kept/b", b"removed", qos, retain=True)
        writer.publish("kept/b", b"", qos, retain=True)
        writer.publish("done", b"", 1)  # all before it has been dealt with

    restart()

    with Paho(port, "reader") as reader:
        reader.subscribe("kept/#", 2)
        (arrival,) = reader.arrived()
    assert (arrival.topic, arrival.payload, arrival.qos) == ("kept/a", b"new", qos)
    assert arrival.properties == {"UserProperty": pairs, "ContentType": "t"}


def test_large_messages_are_kept(port: int, restart: Restart) -> None:
    large = [b"x" * 1_000_000, b"y" * 3_000_000]
    with Paho(port, "reader", keep=True) as client:
        client.subscribe("a", 1)
    publish(port, "a", large[0], b"small", large[1])
    with Paho(port, "writer") as writer:
        writer.publish("kept", large[0], 1, retain=True)

    restart()

    with Paho(port, "reader", keep=True) as client:
        assert client.receive_payloads(3) == [large[0], b"small", large[1]]
        client.subscribe("kept", 1)
        assert client.receive().payload == large[0]


def test_time_goes_on_while_the_broker_is_away(port: int, restart: Restart) -> None:
    with Paho(port, "reader", keep=True) as client:
        client.subscribe("a", 1)
    with Paho(port, "writer") as writer:
        for topic in ("a", "kept"):
            writer.publish(topic, b"", 1, retain=topic == "kept", MessageExpiryInterval=1)
            writer.publish(topic, b"gone", 1, retain=topic == "kept", MessageExpiryInterval=1)
    with Paho(port, "brief", keep=True, SessionExpiryInterval=1):
        pass
    time.sleep(2.1)  # time itself is what is tested: brokers count whole seconds

    restart()

    with Paho(port, "reader", keep=True) as client:
        client.subscribe("kept", 1)
        assert client.arrived() == []
    brief = Paho(port, "brief", keep=True)
    assert not brief.open().present
    brief.close()


@mosquitto_departs("does not pass on all of what was under way when it was stopped")
def test_a_publisher_that_was_interrupted_ends_its_exchange(port: int, restart: Restart) -> None:
    """paho repeats what was not answered; the same message does not pass twice at QoS 2."""
    with Paho(port, "reader", keep=True) as reader:
        reader.subscribe("a", 2)
    writer = Paho(port, "writer", keep=True)
    writer.open()
    for payload in numbers(200):
        writer.post("a", payload, 2)

    restart()
    writer.ended()
    writer.client.loop_stop()
    writer.open()
    assert writer.publish("a", b"last", 2) == 0
    writer.close()

    with Paho(port, "reader", keep=True) as reader:
        assert reader.receive_payloads(201) == [*numbers(200), b"last"]
        assert reader.arrived() == []
