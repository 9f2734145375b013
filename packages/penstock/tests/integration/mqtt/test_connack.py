"""CONNACK: it comes first, once, and says whether there is a session (section 3.2)."""

from __future__ import annotations

import pytest

from tests.integration.mqtt.building import connect_bytes, publish_bytes, subscribe_bytes
from tests.integration.mqtt.dialogue import GUEST, Client, Connect, lasting
from tests.integration.mqtt.packets import MQTT_3, MQTT_5, Kind, Packet, Property
from tests.integration.mqtt.statements import left_open, mqtt_3, mqtt_5

NO_SUCH_METHOD = (Property.AUTHENTICATION_METHOD, "NONE-SUCH")


def connack_of(client: Client) -> Packet:
    assert client.connack is not None
    return client.connack


def test_connack_comes_before_anything_else(dial: Connect, version: int, topic: str) -> None:
    client = dial()

    client.send(
        connect_bytes(client.client_id, version=version, **GUEST)
        + subscribe_bytes(1, [(topic, 1)], version=version)
        + publish_bytes(topic, version=version)
    )

    kinds = [client.receive().kind for _ in range(3)]
    assert kinds == [Kind.CONNACK, Kind.SUBACK, Kind.PUBLISH]


def test_connack_comes_before_what_waited(
    connect: Connect, publisher: Client, version: int, topic: str
) -> None:
    sleeper = connect(**lasting(version))
    sleeper.subscribe(topic, options=1)
    sleeper.disconnect()
    publisher.publish(topic, b"waited")

    awake = connect(sleeper.client_id, **lasting(version))

    assert awake.receive(Kind.PUBLISH).payload == b"waited"


def test_there_is_no_second_connack(client: Client, version: int) -> None:
    client.send(connect_bytes(client.client_id, version=version, **GUEST))

    last = client.end()

    assert last is None or last.kind is Kind.DISCONNECT


def test_without_a_session_none_is_present(connect: Connect, version: int) -> None:
    assert not connack_of(connect(**lasting(version))).present


def test_a_session_that_was_kept_is_present(connect: Connect, version: int) -> None:
    first = connect(**lasting(version))
    first.disconnect()

    assert connack_of(connect(first.client_id, **lasting(version))).present


def test_after_a_clean_start_none_is_present(connect: Connect, version: int) -> None:
    first = connect(**lasting(version))
    first.disconnect()

    assert not connack_of(connect(first.client_id, clean=True)).present


@mqtt_5
def test_a_refusal_says_no_session_is_present(connect: Connect, dial: Connect) -> None:
    first = connect(**lasting(MQTT_5))
    first.disconnect()

    refusal = dial(first.client_id).connect(**lasting(MQTT_5, properties=[NO_SUCH_METHOD]))

    assert (refusal.reason, refusal.present) == (0x8C, False)


@mqtt_3
@left_open("lets anyone in, so nobody with a session is refused")
def test_a_refusal_by_code_says_no_session_is_present(connect: Connect, dial: Connect) -> None:
    first = connect(**lasting(MQTT_3))
    first.disconnect()

    refusal = dial(first.client_id).connect(**lasting(MQTT_3), password=b"wrong")

    assert (refusal.reason in (4, 5), refusal.present) == (True, False)


def test_after_a_refusal_the_connection_is_closed(dial: Connect, version: int) -> None:
    client = dial("")

    refusal = client.connect(clean=False, properties=[NO_SUCH_METHOD] if version == MQTT_5 else ())

    assert refusal.reason == (0x8C if version == MQTT_5 else 2)
    assert client.end() is None


@mqtt_5
def test_a_server_that_names_no_limits_has_none(
    connect: Connect, publisher: Client, topic: str
) -> None:
    """Absent: QoS 2, retained messages, wildcards, identifiers and shares are all to be had."""
    client = connect()
    absent = [
        Property.MAXIMUM_QOS,
        Property.RETAIN_AVAILABLE,
        Property.WILDCARD_SUBSCRIPTION_AVAILABLE,
        Property.SUBSCRIPTION_IDENTIFIER_AVAILABLE,
        Property.SHARED_SUBSCRIPTION_AVAILABLE,
    ]
    assert all(connack_of(client).get(one) in (None, 1) for one in absent)

    identifier = [(Property.SUBSCRIPTION_IDENTIFIER, 5)]
    assert client.subscribe(f"{topic}/#", options=2, properties=identifier).reasons == (2,)
    assert client.subscribe(f"$share/g/{topic}", options=2).reasons == (2,)
    assert publisher.publish(topic, b"kept", qos=2, retain=True).reason == 0


@mqtt_5
def test_the_limits_of_a_server_are_sensible(connect: Connect) -> None:
    connack = connack_of(connect())

    assert connack.get(Property.RECEIVE_MAXIMUM) != 0
    assert connack.get(Property.MAXIMUM_PACKET_SIZE) != 0
    assert connack.get(Property.MAXIMUM_QOS) in (None, 0, 1)


@mqtt_5
@pytest.mark.parametrize("limit", [8, 20, 100])
def test_a_connack_is_not_larger_than_the_client_can_take(dial: Connect, limit: int) -> None:
    """Better no answer than one that is too large."""
    client = dial()
    properties = [(Property.MAXIMUM_PACKET_SIZE, limit), NO_SUCH_METHOD]

    client.send(connect_bytes(client.client_id, properties=properties, **GUEST))

    last = client.end()
    assert last is None or last.size <= limit


@mqtt_5
def test_response_information_is_not_sent_unasked(connect: Connect) -> None:
    unasked = connect(properties=[(Property.REQUEST_RESPONSE_INFORMATION, 0)])

    assert connack_of(unasked).get(Property.RESPONSE_INFORMATION) is None


@mqtt_5
def test_without_a_method_there_is_no_authentication_in_the_connack(connect: Connect) -> None:
    connack = connack_of(connect())

    assert connack.get(Property.AUTHENTICATION_METHOD) is None
    assert connack.get(Property.AUTHENTICATION_DATA) is None
