"""paho-mqtt: shared subscriptions, where a group divides the messages among its members."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack
from itertools import chain

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from tests.integration.mqtt.clients_paho import MQTT_3, MQTT_5, Paho
from tests.peers import Penstock


@pytest.mark.parametrize("version", [MQTT_3, MQTT_5], ids=["3.1.1", "5.0"])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_message_goes_to_one_member_and_each_member_gets_its_share(
    port: int, name: str, version: MQTTProtocolVersion, qos: int
) -> None:
    with ExitStack() as stack:
        members = [stack.enter_context(Paho(port, f"{name}.{n}", version)) for n in range(3)]
        for member in members:
            assert member.subscribe(f"$share/group/{name}/#", qos) == [qos]
        writer = stack.enter_context(Paho(port, f"{name}.pub", version))
        for number in range(300):
            writer.post(f"{name}/{number % 7}", b"%d" % number, qos)
        writer.publish(f"{name}/end", b"end", max(qos, 1))

        shares = [[arrival.payload for arrival in member.arrived(qos)] for member in members]

    assert Counter(chain(*shares)) == Counter([b"end", *(b"%d" % n for n in range(300))])
    assert all(80 <= len(share) <= 120 for share in shares), [len(share) for share in shares]
    for share in shares:
        numbers = [int(payload) for payload in share if payload != b"end"]
        assert numbers == sorted(numbers)


def test_groups_and_single_subscribers_each_get_all(port: int, name: str) -> None:
    with ExitStack() as stack:
        one, two, single = (stack.enter_context(Paho(port, f"{name}.{n}")) for n in range(3))
        one.subscribe(f"$share/one/{name}", 1)
        two.subscribe(f"$share/two/{name}", 1)
        single.subscribe(name, 1)
        for number in range(10):
            single.publish(name, b"%d" % number, 1)

        for client in (one, two, single):
            assert client.receive_payloads(10) == [b"%d" % number for number in range(10)]


def test_a_member_that_leaves_gets_nothing_more(port: int, name: str) -> None:
    with Paho(port, f"{name}.stays") as stays:
        stays.subscribe(f"$share/group/{name}", 1)
        for leave in ("unsubscribe", "close", "drop"):
            leaver = Paho(port, f"{name}.leaves")
            leaver.open()
            leaver.subscribe(f"$share/group/{name}", 1)
            getattr(leaver, leave)(*([f"$share/group/{name}"] if leave == "unsubscribe" else []))
            with Paho(port, f"{name}.pub") as writer:
                for number in range(10):
                    writer.publish(name, b"%d" % number, 1)

            assert stays.receive_payloads(10) == [b"%d" % number for number in range(10)]
            leaver.close()


def test_what_a_member_had_not_acknowledged_when_it_went_goes_to_another(
    mqtt_penstock: Penstock, name: str
) -> None:
    """The standard permits it for QoS 1; mosquitto drops such messages with the session."""
    port = mqtt_penstock.mqtt_port
    stays = Paho(port, f"{name}.stays")
    leaves = Paho(port, f"{name}.leaves", manual=True)
    with stays:
        leaves.open()
        for member in (stays, leaves):
            member.subscribe(f"$share/group/{name}", 1)
        with Paho(port, f"{name}.pub") as writer:
            for number in range(20):
                writer.publish(name, b"%d" % number, 1)
        held = {arrival.payload for arrival in leaves.arrived()}
        leaves.drop()

        got = {stays.receive().payload for _ in range(20)}

    assert held
    assert got == {b"%d" % number for number in range(20)}


def test_nothing_retained_is_sent_for_a_shared_subscription(
    mqtt_penstock: Penstock, name: str
) -> None:
    """As the standard has it; mosquitto 2.0.11 sends it."""
    with Paho(mqtt_penstock.mqtt_port, name) as client:
        client.publish(name, b"kept", 1, retain=True)
        client.subscribe(f"$share/group/{name}", 1)

        assert client.arrived() == []


def test_a_kept_session_keeps_its_place_in_the_group(port: int, name: str) -> None:
    with Paho(port, name, keep=True) as client:
        client.subscribe(f"$share/group/{name}", 1)
    with Paho(port, f"{name}.pub") as writer:
        for number in range(5):
            writer.publish(name, b"%d" % number, 1)

    with Paho(port, name, keep=True) as client:
        assert client.receive_payloads(5) == [b"%d" % number for number in range(5)]
