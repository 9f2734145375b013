"""A sensor that may speak of itself only: topic permissions, and client ids tied to users."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from tests.integration.mqtt.clients_paho import MQTT_3, MQTT_5, WITHOUT_A_WORD, Paho, Will
from tests.integration.mqtt.clients_users import EVERYTHING, Users
from tests.peers import Penstock

NOT_AUTHORIZED = 0x87
CLIENT_IDENTIFIER_NOT_VALID = 0x85
#: All that a SUBACK of 3.1.1 can say of a filter it refuses.
FAILURE = 0x80
PACKET_IDENTIFIER_NOT_FOUND = 0x92

VERSIONS = pytest.mark.parametrize("version", [MQTT_3, MQTT_5], ids=["3.1.1", "5.0"])


@pytest.fixture
def port(mqtt_penstock: Penstock) -> int:
    return mqtt_penstock.mqtt_port


@pytest.fixture
def watcher(port: int, name: str) -> Iterator[Paho]:
    """Someone who may see everything, and sees what gets through."""
    with Paho(port, f"{name}.watcher") as client:
        client.subscribe([f"{name}/#", "sensors/#"], 1)
        yield client


@pytest.fixture
def sensor(users: Users) -> tuple[str, str]:
    """May publish under its own topic only, with its own id only, and read its commands."""
    login = users.add("sensor-7", client_ids="sensor-7")
    users.permit_topics("sensor-7", r"^sensors\.7\.", r"^commands\.sensor\.7(\.|$)")
    return login


def refused(version: MQTTProtocolVersion) -> int:
    return NOT_AUTHORIZED if version == MQTT_5 else FAILURE


# A sensor and its topics.


@VERSIONS
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_sensor_may_publish_under_its_own_topic(
    port: int, sensor: tuple[str, str], watcher: Paho, version: MQTTProtocolVersion, qos: int
) -> None:
    with Paho(port, "sensor-7", version, login=sensor) as client:
        client.publish("sensors/7/report", b"3.5", qos)

        assert watcher.receive().payload == b"3.5"


@pytest.mark.parametrize("topic", ["sensors/8/report", "sensors/77/report", "sensors/7", "other"])
def test_a_sensor_is_told_that_it_may_not_publish_elsewhere(
    port: int, sensor: tuple[str, str], watcher: Paho, topic: str
) -> None:
    with Paho(port, "sensor-7", login=sensor) as client:
        assert client.publish(topic, b"forged", 1) == NOT_AUTHORIZED
        assert client.publish("sensors/7/report", b"its own", 1) == 0

    assert [arrival.payload for arrival in watcher.arrived()] == [b"its own"]


def test_at_qos_2_the_refusal_ends_the_exchange(
    port: int, sensor: tuple[str, str], watcher: Paho
) -> None:
    """paho does not read the reason of PUBREC, and releases a number that is no longer known."""
    with Paho(port, "sensor-7", login=sensor) as client:
        refusal = client.publish("sensors/8/report", b"forged", 2)
        assert client.publish("sensors/7/report", b"its own", 2) == 0

    assert refusal in (NOT_AUTHORIZED, PACKET_IDENTIFIER_NOT_FOUND)
    assert [arrival.payload for arrival in watcher.arrived()] == [b"its own"]


@VERSIONS
def test_at_qos_0_where_nothing_can_be_said_the_message_is_dropped(
    port: int, sensor: tuple[str, str], watcher: Paho, version: MQTTProtocolVersion
) -> None:
    with Paho(port, "sensor-7", version, login=sensor) as client:
        client.publish("sensors/8/report", b"forged", 0)
        client.publish("sensors/7/report", b"its own", 1)

    assert [arrival.payload for arrival in watcher.arrived()] == [b"its own"]


@pytest.mark.parametrize("qos", [1, 2])
def test_3_1_1_cannot_refuse_a_message_so_the_connection_is_closed(
    port: int, sensor: tuple[str, str], watcher: Paho, qos: int
) -> None:
    """An acknowledgement would be a promise not kept. RabbitMQ closes, too."""
    client = Paho(port, "sensor-7", MQTT_3, login=sensor)
    client.open()
    client.post("sensors/8/report", b"forged", qos)

    assert client.ended() == WITHOUT_A_WORD
    client.client.loop_stop()
    assert watcher.arrived() == []


@VERSIONS
def test_each_filter_of_a_subscription_is_granted_or_refused_by_itself(
    port: int, sensor: tuple[str, str], version: MQTTProtocolVersion
) -> None:
    filters = [
        "commands/sensor/7",
        "commands/sensor/8",
        "commands/sensor/7/#",
        "commands/sensor/+",
        "commands/#",
        "#",
        "$share/group/commands/sensor/7",
        "$share/group/commands/sensor/8",
    ]
    no = refused(version)
    with Paho(port, "sensor-7", version, login=sensor) as client:
        assert client.subscribe(filters, 1) == [1, no, 1, no, no, no, 1, no]


@VERSIONS
def test_nothing_comes_by_a_filter_that_was_refused(
    port: int, name: str, users: Users, version: MQTTProtocolVersion
) -> None:
    login = users.add(name)
    users.permit_topics(name, EVERYTHING, rf"^(fence\.|{name}\.open)")
    with Paho(port, f"{name}.pub") as writer, Paho(port, name, version, login=login) as client:
        writer.publish(f"{name}/secret", b"retained secret", 1, retain=True)
        client.subscribe([f"{name}/secret", f"{name}/open"], 1)
        writer.publish(f"{name}/secret", b"secret", 1)
        writer.publish(f"{name}/open", b"open", 1)

        assert [arrival.payload for arrival in client.arrived()] == [b"open"]


def test_a_topic_permission_may_speak_of_the_client_id_and_the_user(
    port: int, name: str, users: Users
) -> None:
    login = users.add(name)
    users.permit_topics(name, r"^devices\.{client_id}\.", r"^users\.{username}\.")
    with Paho(port, "device.9", login=login) as client:
        # What a variable stands for is taken literally: `device.9` is not `device-9`.
        topics = ("devices/device/9/a", "devices/device-9/a", "devices/10/a")
        published = [client.publish(topic, b"", 1) for topic in topics]
        granted = client.subscribe([f"users/{name.replace('.', '/')}/#", "users/else/#"], 1)

    assert [reason < 0x80 for reason in published] == [True, False, False]
    assert granted == [1, NOT_AUTHORIZED]


@VERSIONS
def test_a_will_one_may_not_publish_is_not_published(
    port: int, sensor: tuple[str, str], watcher: Paho, version: MQTTProtocolVersion
) -> None:
    forged = Will("sensors/8/status", b"forged", 1)
    client = Paho(port, "sensor-7", version, login=sensor, will=forged)
    if client.open().reason == 0:
        client.drop()
    client.client.loop_stop()
    honest = Paho(port, "sensor-7", version, login=sensor, will=Will("sensors/7/status", b"gone"))
    honest.open()
    honest.drop()

    assert watcher.receive().payload == b"gone"


# A user and its client ids.


@VERSIONS
@pytest.mark.parametrize("client_id", ["sensor-8", "sensor-77", "my-sensor-7", ""])
def test_a_client_id_tied_to_a_user_is_the_only_one_it_may_have(
    port: int, sensor: tuple[str, str], version: MQTTProtocolVersion, client_id: str
) -> None:
    client = Paho(port, client_id, version, login=sensor)

    assert client.open().reason in (NOT_AUTHORIZED, CLIENT_IDENTIFIER_NOT_VALID)
    client.ended()
    client.client.loop_stop()


def test_nobody_else_takes_over_a_session_by_its_client_id(
    port: int, name: str, users: Users
) -> None:
    """The other user is tied to ids of its own; whoever is tied to none may have any."""
    owner = users.add(f"{name}.owner", client_ids=f"{name}.owned")
    other = users.add(f"{name}.other", client_ids=f"{name}.theirs")
    with Paho(port, f"{name}.owned", login=owner, keep=True) as client:
        client.subscribe(f"{name}/secret", 1)
        thief = Paho(port, f"{name}.owned", login=other, keep=True)
        assert thief.open().reason >= 0x80
        thief.client.loop_stop()

        assert client.arrived() == []
        assert client.is_open
