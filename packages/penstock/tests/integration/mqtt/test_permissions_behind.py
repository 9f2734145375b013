"""Rights to what is behind MQTT's topics, and that a change holds for those who are connected."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from tests.integration.mqtt.clients_paho import MQTT_3, MQTT_5, Paho
from tests.integration.mqtt.clients_users import EVERYTHING, SECRET, Users
from tests.peers import Penstock

NOT_AUTHORIZED = 0x87
BAD_USER_NAME_OR_PASSWORD = 0x86
#: All that a SUBACK of 3.1.1 can say of a filter it refuses.
FAILURE = 0x80

VERSIONS = pytest.mark.parametrize("version", [MQTT_3, MQTT_5], ids=["3.1.1", "5.0"])


@pytest.fixture
def port(mqtt_penstock: Penstock) -> int:
    return mqtt_penstock.mqtt_port


@pytest.fixture
def watcher(port: int, name: str) -> Iterator[Paho]:
    """Someone who may see everything, and sees what gets through."""
    with Paho(port, f"{name}.watcher") as client:
        client.subscribe(f"{name}/#", 1)
        yield client


def refused(version: MQTTProtocolVersion) -> int:
    return NOT_AUTHORIZED if version == MQTT_5 else FAILURE


@VERSIONS
def test_who_may_not_write_to_the_exchange_may_not_publish(
    port: int, name: str, users: Users, watcher: Paho, version: MQTTProtocolVersion
) -> None:
    login = users.add(name)
    users.permit(name, EVERYTHING, "^mqtt-subscription-", EVERYTHING)
    client = Paho(port, name, version, login=login)
    client.open()
    client.post(f"{name}/a", b"forged", 1)
    if version == MQTT_3:
        client.ended()
    client.close()

    assert watcher.arrived() == []


@VERSIONS
def test_who_may_not_read_from_the_exchange_may_not_subscribe(
    port: int, name: str, users: Users, version: MQTTProtocolVersion
) -> None:
    login = users.add(name)
    users.permit(name, EVERYTHING, EVERYTHING, "^mqtt-subscription-")
    with Paho(port, name, version, login=login) as client:
        assert client.subscribe(f"{name}/a", 1) == [refused(version)]


@VERSIONS
def test_the_session_is_the_client_s_own_and_needs_no_right_to_configure(
    port: int, name: str, users: Users, version: MQTTProtocolVersion
) -> None:
    """RabbitMQ asks for rights to the session's queue as well, whose name nobody chose."""
    login = users.add(name)
    users.permit(name, "^$", "^amq.topic$", "^amq.topic$")
    with Paho(port, name, version, login=login) as client:
        assert client.subscribe(f"{name}/a", 1) == [1]
        client.publish(f"{name}/a", b"x", 1)

        assert client.receive().payload == b"x"


@VERSIONS
def test_who_has_no_rights_at_all_is_not_let_in(
    port: int, name: str, users: Users, version: MQTTProtocolVersion
) -> None:
    login = users.add(name)
    users.forbid(name)
    client = Paho(port, name, version, login=login)

    assert client.open().reason == NOT_AUTHORIZED
    client.client.loop_stop()


def test_a_user_name_may_name_the_virtual_host(port: int, name: str, users: Users) -> None:
    """As with RabbitMQ: `vhost:user`."""
    user, password = users.add(name)
    with Paho(port, name, login=(f"/:{user}", password)):
        pass
    elsewhere = Paho(port, name, login=(f"elsewhere:{user}", password))

    assert elsewhere.open().reason in (BAD_USER_NAME_OR_PASSWORD, NOT_AUTHORIZED)
    elsewhere.client.loop_stop()


def test_who_gives_no_name_is_guest_on_the_same_machine(port: int, name: str) -> None:
    with Paho(port, name, login=None) as client:
        assert client.subscribe(name, 1) == [1]


# Changes while a client is connected.


def test_a_right_that_is_taken_away_is_gone_for_those_who_are_connected(
    port: int, name: str, users: Users, watcher: Paho
) -> None:
    login = users.add(name)
    with Paho(port, name, login=login) as client:
        assert client.publish(f"{name}/a", b"before", 1) == 0
        users.permit_topics(name, "^elsewhere", EVERYTHING)
        assert client.publish(f"{name}/a", b"after", 1) == NOT_AUTHORIZED
        users.permit_topics(name, f"^{name}", EVERYTHING)
        assert client.publish(f"{name}/a", b"again", 1) == 0

    assert [arrival.payload for arrival in watcher.arrived()] == [b"before", b"again"]


def test_a_filter_one_may_no_longer_read_is_refused_from_then_on(
    port: int, name: str, users: Users
) -> None:
    login = users.add(name)
    with Paho(port, name, login=login) as client:
        assert client.subscribe([f"{name}/a", f"{name}/b"], 1) == [1, 1]
        users.permit_topics(name, EVERYTHING, rf"^{name}\.b")

        assert client.subscribe([f"{name}/a", f"{name}/b"], 1) == [NOT_AUTHORIZED, 1]


def test_a_user_who_is_deleted_does_not_come_back(port: int, name: str, users: Users) -> None:
    login = users.add(name)
    with Paho(port, name, login=login):
        users.delete(name)
    again = Paho(port, name, login=(name, SECRET))

    assert again.open().reason == BAD_USER_NAME_OR_PASSWORD
    again.client.loop_stop()
