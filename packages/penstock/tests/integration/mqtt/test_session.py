"""Sessions: what is kept when the connection is gone, and for how long (sections 3.1.2 and 4.1)."""

from __future__ import annotations

from tests.integration.mqtt.building import publish_bytes
from tests.integration.mqtt.dialogue import Client, Connect, lasting
from tests.integration.mqtt.packets import MQTT_3, MQTT_5, Kind, Property
from tests.integration.mqtt.statements import mqtt_3, mqtt_5


def is_present(client: Client) -> bool:
    assert client.connack is not None
    return client.connack.present


def test_subscriptions_and_messages_outlive_the_connection(
    connect: Connect, publisher: Client, version: int, topic: str
) -> None:
    first = connect(**lasting(version))
    first.subscribe(topic, options=2)
    first.disconnect()
    for qos in (1, 2):
        publisher.publish(topic, b"%d" % qos, qos=qos)

    back = connect(first.client_id, **lasting(version))

    assert is_present(back)
    packets = back.receive_many(2)
    assert [(packet.qos, packet.payload) for packet in packets] == [(1, b"1"), (2, b"2")]


def test_they_outlive_a_connection_that_broke(
    connect: Connect, publisher: Client, version: int, topic: str
) -> None:
    first = connect(**lasting(version))
    first.subscribe(topic, options=1)
    first.close()
    publisher.publish(topic, b"kept")

    back = connect(first.client_id, **lasting(version))

    assert is_present(back)
    assert back.receive(Kind.PUBLISH).payload == b"kept"


def test_a_resumed_session_needs_no_new_subscription(
    connect: Connect, publisher: Client, version: int, topic: str
) -> None:
    first = connect(**lasting(version))
    first.subscribe(topic)
    first.disconnect()

    back = connect(first.client_id, **lasting(version))
    publisher.publish(topic, b"live")

    assert back.receive(Kind.PUBLISH).payload == b"live"


def test_a_clean_start_forgets_subscriptions_and_messages(
    connect: Connect, publisher: Client, version: int, topic: str
) -> None:
    first = connect(**lasting(version))
    first.subscribe(topic, options=1)
    first.disconnect()
    publisher.publish(topic, b"forgotten")

    back = connect(first.client_id, clean=True)
    publisher.publish(topic, b"not subscribed")

    assert not is_present(back)
    assert back.settle() == []


def test_a_clean_start_forgets_what_is_in_flight(
    connect: Connect, publisher: Client, version: int, topic: str
) -> None:
    first = connect(**lasting(version))
    first.subscribe(topic, options=2)
    publisher.publish(topic, qos=2)
    first.receive(Kind.PUBLISH)
    first.close()

    assert connect(first.client_id, clean=True).settle() == []
    assert connect(first.client_id, clean=True).settle() == []


def test_a_clean_start_forgets_what_was_not_released(
    connect: Connect, client: Client, version: int, topic: str
) -> None:
    """The same number of QoS 2 is a new message then."""
    client.subscribe(topic)
    first = connect(**lasting(version))
    first.call(publish_bytes(topic, b"old", version=version, qos=2, number=5), Kind.PUBREC)
    first.close()

    connect(first.client_id, clean=True).publish(topic, b"new", qos=2, number=5)

    assert client.settle()[-1].payload == b"new"


@mqtt_3
def test_a_clean_session_ends_with_its_connection(
    connect: Connect, publisher: Client, topic: str
) -> None:
    first = connect(clean=True)
    first.subscribe(topic, options=1)
    first.disconnect()
    publisher.publish(topic)

    back = connect(first.client_id, clean=False)

    assert not is_present(back)
    assert back.settle() == []


@mqtt_5
def test_without_an_expiry_a_session_ends_with_its_connection(
    connect: Connect, publisher: Client, topic: str
) -> None:
    first = connect(clean=False)
    first.subscribe(topic, options=1)
    first.disconnect()
    publisher.publish(topic)

    back = connect(first.client_id, clean=False)

    assert not is_present(back)
    assert back.settle() == []


@mqtt_5
def test_a_session_may_begin_clean_and_last(
    connect: Connect, publisher: Client, topic: str
) -> None:
    first = connect(clean=True, properties=[(Property.SESSION_EXPIRY, 60)])
    first.subscribe(topic, options=1)
    first.disconnect()
    publisher.publish(topic, b"kept")

    back = connect(first.client_id, **lasting(MQTT_5))

    assert (is_present(back), back.receive(Kind.PUBLISH).payload) == (True, b"kept")


@mqtt_5
def test_a_session_ends_when_its_time_has_passed(connect: Connect, publisher: Client) -> None:
    first = connect(**lasting(MQTT_5, 1))
    first.disconnect()
    publisher.stay_silent(2.1)

    assert not is_present(connect(first.client_id, clean=False))


@mqtt_5
def test_a_session_does_not_end_while_its_client_is_there(
    connect: Connect, publisher: Client, topic: str
) -> None:
    client = connect(**lasting(MQTT_5, 1))
    client.subscribe(topic, options=1)
    client.stay_silent(1.5)

    publisher.publish(topic, b"still here")

    assert client.receive(Kind.PUBLISH).payload == b"still here"


@mqtt_5
def test_a_session_without_end_lasts(connect: Connect, publisher: Client, topic: str) -> None:
    first = connect(**lasting(MQTT_5, 0xFFFF_FFFF))
    first.disconnect()
    back = connect(first.client_id, clean=False)

    assert is_present(back)


def test_qos_0_does_not_have_to_wait_for_who_is_away(
    connect: Connect, publisher: Client, version: int, topic: str
) -> None:
    """Kept or not is the broker's choice; QoS 1 after it comes in any case."""
    first = connect(**lasting(version))
    first.subscribe(topic, options=1)
    first.disconnect()
    publisher.publish(topic, b"fleeting", qos=0)
    publisher.publish(topic, b"firm", qos=1)

    payloads = [one.payload for one in connect(first.client_id, **lasting(version)).settle()]

    assert payloads in ([b"firm"], [b"fleeting", b"firm"])


def test_retained_messages_are_no_part_of_a_session(
    connect: Connect, version: int, topic: str
) -> None:
    publisher = connect(**lasting(version))
    publisher.publish(topic, b"kept", retain=True)
    publisher.disconnect()
    connect(publisher.client_id, clean=True).disconnect()

    reader = connect()
    reader.subscribe(topic)

    assert reader.receive(Kind.PUBLISH).payload == b"kept"


def test_the_next_connection_takes_the_session_over_with_what_is_in_flight(
    connect: Connect, publisher: Client, version: int, topic: str
) -> None:
    first = connect(**lasting(version))
    first.subscribe(topic, options=1)
    publisher.publish(topic, b"in flight")
    packet = first.receive(Kind.PUBLISH)

    second = connect(first.client_id, **lasting(version))

    again = second.receive(Kind.PUBLISH)
    assert (again.number, again.dup) == (packet.number, True)


def test_a_session_may_change_the_version(connect: Connect, publisher: Client, topic: str) -> None:
    first = connect(version=MQTT_3, **lasting(MQTT_3))
    first.subscribe(topic, options=1)
    first.disconnect()
    publisher.publish(topic, b"across")

    back = connect(first.client_id, version=MQTT_5, **lasting(MQTT_5))

    assert back.receive(Kind.PUBLISH).payload == b"across"


@mqtt_5
def test_a_message_that_expired_while_it_waited_is_not_sent(
    connect: Connect, publisher: Client, topic: str
) -> None:
    first = connect(**lasting(MQTT_5))
    first.subscribe(topic, options=1)
    first.disconnect()
    publisher.publish(topic, b"short", properties=[(Property.MESSAGE_EXPIRY, 1)])
    publisher.publish(topic, b"long", properties=[(Property.MESSAGE_EXPIRY, 100)])
    publisher.stay_silent(2.1)

    packets = connect(first.client_id, **lasting(MQTT_5)).settle()

    assert [packet.payload for packet in packets] == [b"long"]
    assert 90 <= packets[0].get(Property.MESSAGE_EXPIRY) <= 98


@mqtt_5
def test_a_message_that_does_not_wait_keeps_its_expiry(
    client: Client, publisher: Client, topic: str
) -> None:
    client.subscribe(topic)

    publisher.publish(topic, properties=[(Property.MESSAGE_EXPIRY, 100)])

    assert client.receive(Kind.PUBLISH).get(Property.MESSAGE_EXPIRY) in range(90, 101)
