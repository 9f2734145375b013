"""paho-mqtt: sessions that outlive a connection, and who may hold one."""

from __future__ import annotations

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from tests.integration.mqtt.clients_paho import MQTT_3, MQTT_5, WITHOUT_A_WORD, Paho, Will
from tests.peers import Penstock

SESSION_TAKEN_OVER = 0x8E


@pytest.fixture(params=[MQTT_3, MQTT_5], ids=["3.1.1", "5.0"])
def version(request: pytest.FixtureRequest) -> MQTTProtocolVersion:
    chosen: MQTTProtocolVersion = request.param
    return chosen


def publish_numbers(port: int, topic: str, count: int, qos: int) -> None:
    with Paho(port, f"{topic}.pub") as writer:
        for number in range(count):
            writer.publish(topic, b"%d" % number, qos)


@pytest.mark.parametrize("qos", [1, 2])
def test_a_kept_session_collects_what_its_client_misses(
    port: int, name: str, version: MQTTProtocolVersion, qos: int
) -> None:
    with Paho(port, name, version, keep=True) as client:
        client.subscribe(name, qos)
    publish_numbers(port, name, 50, qos)

    again = Paho(port, name, version, keep=True)
    assert again.open().present
    arrivals = [again.receive() for _ in range(50)]
    again.close()

    assert [arrival.payload for arrival in arrivals] == [b"%d" % number for number in range(50)]
    assert {(arrival.qos, arrival.dup) for arrival in arrivals} == {(qos, False)}


def test_a_session_that_is_not_kept_is_gone(
    port: int, name: str, version: MQTTProtocolVersion
) -> None:
    with Paho(port, name, version) as client:
        client.subscribe(f"{name}/#", 1)
    with Paho(port, f"{name}.pub", version) as writer:
        writer.publish(f"{name}/a", b"missed", 1)

    again = Paho(port, name, version)
    assert not again.open().present
    assert again.arrived() == []
    again.close()


def test_a_clean_start_forgets_the_session_that_was_kept(
    port: int, name: str, version: MQTTProtocolVersion
) -> None:
    with Paho(port, name, version, keep=True) as client:
        client.subscribe(f"{name}/#", 1)
        client.publish(f"{name}/a", b"", 1)
    with Paho(port, name, version):
        pass

    third = Paho(port, name, version, keep=True)
    assert not third.open().present
    assert third.arrived() == []
    third.close()


def test_what_was_not_acknowledged_comes_again_with_the_same_number(
    port: int, name: str, version: MQTTProtocolVersion
) -> None:
    client = Paho(port, name, version, keep=True, manual=True)
    client.open()
    client.subscribe(name, 1)
    publish_numbers(port, name, 5, 1)
    before = [client.receive() for _ in range(5)]
    client.drop()

    with Paho(port, name, version, keep=True) as again:
        after = [again.receive() for _ in range(5)]

    assert [one.payload for one in after] == [one.payload for one in before]
    assert [one.number for one in after] == [one.number for one in before]
    assert all(one.dup for one in after)


def test_what_was_received_exactly_once_does_not_come_again(
    port: int, name: str, version: MQTTProtocolVersion
) -> None:
    """paho tells of a message when it is released; the last answer, PUBCOMP, is not sent."""
    client = Paho(port, name, version, keep=True, manual=True)
    client.open()
    client.subscribe(name, 2)
    publish_numbers(port, name, 5, 2)
    assert len(client.receive_payloads(5)) == 5
    client.drop()
    publish_numbers(port, name, 1, 2)

    with Paho(port, name, version, keep=True) as again:
        assert again.receive_payloads(1) == [b"0"]
        assert again.arrived() == []


def test_acknowledged_messages_do_not_come_again(
    port: int, name: str, version: MQTTProtocolVersion
) -> None:
    client = Paho(port, name, version, keep=True, manual=True)
    client.open()
    client.subscribe(name, 1)
    publish_numbers(port, name, 6, 1)
    arrivals = [client.receive() for _ in range(6)]
    for arrival in arrivals[:3]:
        client.acknowledge(arrival)
    client.arrived()  # the broker has read them: it has answered what was sent after
    client.drop()

    with Paho(port, name, version, keep=True) as again:
        assert [one.payload for one in again.arrived()] == [b"3", b"4", b"5"]


def test_a_second_client_with_the_id_takes_over(
    port: int, name: str, version: MQTTProtocolVersion
) -> None:
    first = Paho(port, name, version, keep=True)
    first.open()
    first.subscribe(name, 1)

    second = Paho(port, name, version, keep=True)
    assert second.open().present
    first.ended()
    second.publish(name, b"for the second", 1)

    assert second.receive().payload == b"for the second"
    first.client.loop_stop()
    second.close()


def test_who_is_taken_over_hears_why_as_far_as_the_version_can_say(
    mqtt_penstock: Penstock, name: str, version: MQTTProtocolVersion
) -> None:
    """mosquitto closes without a word in either version."""
    first = Paho(mqtt_penstock.mqtt_port, name, version)
    first.open()
    with Paho(mqtt_penstock.mqtt_port, name, version):
        said = first.ended()
        first.client.loop_stop()

    assert said == (SESSION_TAKEN_OVER if version == MQTT_5 else WITHOUT_A_WORD)


def test_an_expiry_asked_for_when_leaving_counts(port: int, name: str) -> None:
    client = Paho(port, name, keep=True)
    client.open()
    client.close(SessionExpiryInterval=0)

    again = Paho(port, name, keep=True)
    assert not again.open().present
    again.close(SessionExpiryInterval=0)


def test_a_session_ends_when_its_time_is_over(port: int, name: str) -> None:
    """The will says when: it is due when the session ends, whatever delay it asked for."""
    will = Will(f"{name}/will", b"over", delay=1000)
    client = Paho(port, name, keep=True, will=will, SessionExpiryInterval=1)
    client.open()
    with Paho(port, f"{name}.watch") as watcher:
        watcher.subscribe(will.topic)
        client.drop()
        assert watcher.receive().payload == b"over"

    again = Paho(port, name, keep=True)
    assert not again.open().present
    again.close(SessionExpiryInterval=0)


def test_the_broker_names_a_client_that_has_no_name(port: int) -> None:
    client = Paho(port)
    assert client.open().properties["AssignedClientIdentifier"]
    client.close()


def test_an_old_client_without_a_name_may_come_if_it_keeps_nothing(port: int) -> None:
    with Paho(port, "", MQTT_3) as client:
        client.subscribe("a", 1)
