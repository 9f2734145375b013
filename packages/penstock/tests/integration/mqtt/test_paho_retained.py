"""paho-mqtt: retained messages, and wills."""

from __future__ import annotations

import time

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from tests.integration.mqtt.clients_paho import MQTT_3, MQTT_5, Paho, Will

#: MQTT 5's retain handling: send what is retained if the subscription is new, or never.
IF_NEW, NEVER = 1, 2
WITH_WILL = 0x04


@pytest.fixture(params=[MQTT_3, MQTT_5], ids=["3.1.1", "5.0"])
def version(request: pytest.FixtureRequest) -> MQTTProtocolVersion:
    chosen: MQTTProtocolVersion = request.param
    return chosen


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_last_retained_message_waits_for_those_who_come_later(
    port: int, name: str, version: MQTTProtocolVersion, qos: int
) -> None:
    with Paho(port, f"{name}.pub", version) as writer:
        for payload in (b"first", b"last"):
            writer.publish(f"{name}/a", payload, qos, retain=True)
        writer.publish(f"{name}/a", b"passing", qos)

    with Paho(port, f"{name}.sub", version) as reader:
        reader.subscribe(f"{name}/a", 1)
        (arrival,) = reader.arrived()

    assert (arrival.payload, arrival.retain, arrival.qos) == (b"last", True, min(qos, 1))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("#", {"", "/a", "/a/b", "/a/c", "/d"}),
        ("/#", {"", "/a", "/a/b", "/a/c", "/d"}),
        ("/+", {"/a", "/d"}),
        ("/a/#", {"/a", "/a/b", "/a/c"}),
        ("/+/b", {"/a/b"}),
        ("/x/#", set()),
    ],
)
def test_a_wildcard_finds_what_is_retained_below_it(
    port: int, name: str, pattern: str, expected: set[str]
) -> None:
    with Paho(port, name) as client:
        for rest in ("", "/a", "/a/b", "/a/c", "/d"):
            client.publish(f"{name}{rest}", b"kept", 1, retain=True)
        client.subscribe(pattern if pattern == "#" else f"{name}{pattern}", 1)

        found = {arrival.topic for arrival in client.arrived()}

    # A subscription to everything also finds what other tests have left.
    assert {topic.removeprefix(name) for topic in found if topic.startswith(name)} == expected


def test_an_empty_retained_message_forgets(
    port: int, name: str, version: MQTTProtocolVersion
) -> None:
    with Paho(port, f"{name}.pub", version) as writer:
        writer.publish(name, b"kept", 1, retain=True)
        writer.publish(name, b"", 1, retain=True)
    with Paho(port, f"{name}.sub", version) as reader:
        reader.subscribe(name, 1)

        assert reader.arrived() == []


def test_those_who_are_there_get_it_as_any_other(
    port: int, name: str, version: MQTTProtocolVersion
) -> None:
    with Paho(port, name, version) as client:
        client.subscribe(name, 1)
        client.publish(name, b"live", 1, retain=True)

        assert client.receive().retain is False


def test_who_asks_for_it_sees_the_flag_as_published(port: int, name: str) -> None:
    with Paho(port, name) as client:
        client.subscribe(name, 1, retainAsPublished=True)
        client.publish(name, b"live", 1, retain=True)
        client.publish(name, b"passing", 1)

        assert [client.receive().retain for _ in range(2)] == [True, False]


def test_retained_messages_come_only_as_asked_for(port: int, name: str) -> None:
    with Paho(port, name) as client:
        client.publish(name, b"kept", 1, retain=True)
        client.subscribe(name, 1, retainHandling=NEVER)
        assert client.arrived() == []
        client.subscribe(name, 1, retainHandling=IF_NEW)
        assert client.arrived() == [], "the subscription is there already"
        client.unsubscribe(name)
        client.subscribe(name, 1, retainHandling=IF_NEW)
        assert [arrival.payload for arrival in client.arrived()] == [b"kept"]
        client.subscribe(name, 1)
        assert [arrival.payload for arrival in client.arrived()] == [b"kept"]


def test_a_retained_message_expires(port: int, name: str) -> None:
    with Paho(port, name) as client:
        client.publish(f"{name}/short", b"", 1, retain=True, MessageExpiryInterval=1)
        client.publish(f"{name}/short", b"gone", 1, retain=True, MessageExpiryInterval=1)
        client.publish(f"{name}/long", b"there", 1, retain=True, MessageExpiryInterval=100)
        time.sleep(2.1)  # time itself is what is tested: brokers count whole seconds
        client.subscribe(f"{name}/#", 1)

        (arrival,) = client.arrived()

    assert arrival.payload == b"there"
    assert 90 <= arrival.properties["MessageExpiryInterval"] <= 98


def test_a_will_is_published_when_the_connection_breaks(
    port: int, name: str, version: MQTTProtocolVersion
) -> None:
    with Paho(port, f"{name}.watch", version) as watcher:
        watcher.subscribe(f"{name}/#", 2)
        client = Paho(port, name, version, will=Will(f"{name}/will", b"gone", 2))
        client.open()
        client.drop()

        arrival = watcher.receive()

    assert (arrival.topic, arrival.payload, arrival.qos) == (f"{name}/will", b"gone", 2)


def test_who_says_good_bye_leaves_no_will(
    port: int, name: str, version: MQTTProtocolVersion
) -> None:
    with Paho(port, f"{name}.watch", version) as watcher:
        watcher.subscribe(f"{name}/#", 1)
        with Paho(port, name, version, will=Will(f"{name}/will", b"gone", 1)) as client:
            client.publish(f"{name}/last", b"", 1)
        with Paho(port, name, version) as client:  # the first one's end has been dealt with
            client.publish(f"{name}/after", b"", 1)

        assert [arrival.topic for arrival in watcher.arrived()] == [f"{name}/last", f"{name}/after"]


def test_a_client_may_ask_for_its_will_when_it_leaves(port: int, name: str) -> None:
    with Paho(port, f"{name}.watch") as watcher:
        watcher.subscribe(name, 1)
        client = Paho(port, f"{name}.client", will=Will(name, b"gone"))
        client.open()
        client.close(WITH_WILL)

        assert watcher.receive().payload == b"gone"


def test_a_retained_will_waits(port: int, name: str, version: MQTTProtocolVersion) -> None:
    client = Paho(port, f"{name}.client", version, will=Will(name, b"gone", 1, retain=True))
    with Paho(port, f"{name}.watch", version) as watcher:
        watcher.subscribe(name, 1)
        client.open()
        client.drop()
        watcher.receive()
    with Paho(port, f"{name}.later", version) as later:
        later.subscribe(name, 1)

        assert later.receive().retain


def test_a_delayed_will_is_not_sent_to_those_who_come_back_in_time(port: int, name: str) -> None:
    def client(delay: int) -> Paho:
        return Paho(port, f"{name}.client", keep=True, will=Will(name, b"gone", 1, delay=delay))

    with Paho(port, f"{name}.watch") as watcher:
        watcher.subscribe(name, 1)
        first = client(3)
        first.open()
        first.drop()
        second = client(1)
        second.open()
        time.sleep(3.2)  # longer than the delay
        assert watcher.arrived() == []

        second.drop()
        dropped = time.monotonic()
        assert watcher.receive().payload == b"gone"
        assert time.monotonic() - dropped > 0.5, "at once, in spite of the delay"


def test_a_take_over_publishes_the_will_of_the_one_who_goes(
    port: int, name: str, version: MQTTProtocolVersion
) -> None:
    with Paho(port, f"{name}.watch", version) as watcher:
        watcher.subscribe(name, 1)
        first = Paho(port, f"{name}.client", version, will=Will(name, b"gone", 1))
        first.open()
        with Paho(port, f"{name}.client", version):
            assert watcher.receive().payload == b"gone"
        first.client.loop_stop()
