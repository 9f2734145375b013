"""PUBLISH: what comes in goes out, to whom it may concern (section 3.3)."""

from __future__ import annotations

import pytest

from tests.integration.mqtt.building import PINGREQ, answer_bytes, publish_bytes
from tests.integration.mqtt.dialogue import Client, Connect
from tests.integration.mqtt.packets import MQTT_3, MQTT_5, Kind, Property
from tests.integration.mqtt.statements import left_open, mosquitto_departs, mqtt_3, mqtt_5


def test_qos_0_gets_no_answer(client: Client, version: int, topic: str) -> None:
    client.send(publish_bytes(topic, version=version) + PINGREQ)

    client.receive(Kind.PINGRESP)


def test_qos_1_gets_a_puback_of_its_number(client: Client, version: int, topic: str) -> None:
    client.send(publish_bytes(topic, version=version, qos=1, number=4711))

    answer = client.receive(Kind.PUBACK)
    assert (answer.number, answer.reason in (0, 0x10)) == (4711, True)


def test_qos_2_gets_a_pubrec_and_a_pubcomp_of_its_number(
    client: Client, version: int, topic: str
) -> None:
    client.send(publish_bytes(topic, version=version, qos=2, number=65535))
    received = client.receive(Kind.PUBREC)
    client.send(answer_bytes(Kind.PUBREL, 65535))
    complete = client.receive(Kind.PUBCOMP)

    assert (received.number, received.reason in (0, 0x10)) == (65535, True)
    assert (complete.number, complete.reason) == (65535, 0)


@pytest.mark.parametrize("granted", [0, 1, 2])
@pytest.mark.parametrize("published", [0, 1, 2])
def test_the_lower_qos_of_publisher_and_subscriber_holds(
    client: Client, publisher: Client, topic: str, published: int, granted: int
) -> None:
    assert client.subscribe(topic, options=granted).reasons == (granted,)

    publisher.publish(topic, b"message", qos=published)

    packet = client.receive(Kind.PUBLISH)
    assert (packet.qos, packet.payload) == (min(published, granted), b"message")


@pytest.mark.parametrize("qos", [1, 2])
def test_dup_of_the_publisher_is_not_passed_on(
    client: Client, publisher: Client, topic: str, qos: int
) -> None:
    client.subscribe(topic, options=qos)

    publisher.publish(topic, qos=qos, dup=True)

    assert not client.receive(Kind.PUBLISH).dup


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_first_delivery_has_no_dup(
    client: Client, publisher: Client, topic: str, qos: int
) -> None:
    client.subscribe(topic, options=qos)

    publisher.publish(topic, qos=qos)

    packet = client.receive(Kind.PUBLISH)
    assert (packet.dup, packet.qos) == (False, qos)


def test_the_topic_is_the_one_published_not_the_filter(
    client: Client, publisher: Client, topic: str
) -> None:
    client.subscribe(f"{topic}/+/#")

    publisher.publish(f"{topic}/a/b/c")

    assert client.receive(Kind.PUBLISH).topic == f"{topic}/a/b/c"


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(
    "payload",
    [b"", bytes(range(256)), b"x" * 127, b"y" * 16384, bytes(range(256)) * 1200],
    ids=["empty", "all bytes", "127 bytes", "16 KiB", "300 KiB"],
)
def test_a_payload_arrives_as_it_was(
    client: Client, publisher: Client, topic: str, payload: bytes, qos: int
) -> None:
    client.subscribe(topic, options=qos)

    publisher.publish(topic, payload, qos=qos)

    assert client.receive(Kind.PUBLISH).payload == payload


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_of_a_topic_keep_their_order(
    client: Client, publisher: Client, topic: str, qos: int
) -> None:
    client.subscribe(topic, options=qos)
    payloads = [b"%d" % count for count in range(10)]

    for payload in payloads:
        publisher.publish(topic, payload, qos=qos)

    assert [packet.payload for packet in client.receive_many(10)] == payloads


@pytest.mark.parametrize("qos", [1, 2])
def test_answers_come_in_the_order_of_the_publishes(
    client: Client, version: int, topic: str, qos: int
) -> None:
    numbers = [9, 3, 7, 1, 5]

    client.send(
        b"".join(publish_bytes(topic, version=version, qos=qos, number=one) for one in numbers)
    )

    answers = client.receive_many(len(numbers), Kind.PUBACK if qos == 1 else Kind.PUBREC)
    assert [answer.number for answer in answers] == numbers


@mqtt_5
def test_overlapping_subscriptions_give_the_highest_qos_of_them(
    client: Client, publisher: Client, topic: str
) -> None:
    """One copy or one for each subscription: the standard leaves it open."""
    client.subscribe(f"{topic}/a", options=0)
    client.subscribe(f"{topic}/+", options=2)
    client.subscribe(f"{topic}/#", options=1)

    publisher.publish(f"{topic}/a", qos=2)

    assert max(packet.qos for packet in client.settle()) == 2


@left_open("sends a client of 5.0 a copy for each of its subscriptions")
def test_overlapping_subscriptions_give_one_copy(
    client: Client, publisher: Client, topic: str
) -> None:
    client.subscribe(f"{topic}/+", f"{topic}/#", f"{topic}/a", options=1)

    publisher.publish(f"{topic}/a")

    assert len(client.settle()) == 1


@mqtt_3
@mosquitto_departs("sends one copy with the QoS of whichever subscription it finds first")
def test_overlapping_subscriptions_give_the_highest_qos_in_3_1_1_too(
    client: Client, publisher: Client, topic: str
) -> None:
    client.subscribe(f"{topic}/a", options=0)
    client.subscribe(f"{topic}/+", options=2)
    client.subscribe(f"{topic}/#", options=1)

    publisher.publish(f"{topic}/a", qos=2)

    assert max(packet.qos for packet in client.settle()) == 2


def test_both_versions_read_each_other(connect: Connect, version: int, topic: str) -> None:
    other = MQTT_3 if version == MQTT_5 else MQTT_5
    reader = connect(version=other)
    reader.subscribe(topic, options=1)

    properties = [(Property.CONTENT_TYPE, "text/plain")]
    connect().publish(topic, b"across", properties=properties)

    assert reader.take().payload == b"across"


def test_a_message_for_nobody_is_acknowledged(client: Client, topic: str) -> None:
    assert client.publish(topic, qos=1).reason in (0, 0x10)
    assert client.publish(topic, qos=2).reason == 0


def test_a_client_receives_its_own_messages(client: Client, version: int, topic: str) -> None:
    client.subscribe(topic)

    client.send(publish_bytes(topic, b"echo", version=version))

    assert client.receive(Kind.PUBLISH).payload == b"echo"


@pytest.mark.parametrize("qos", [1, 2])
@mqtt_3
def test_a_message_that_is_not_allowed_is_acknowledged_or_the_connection_closed(
    client: Client, qos: int
) -> None:
    """3.1.1 has no way to say no."""
    client.send(publish_bytes("$SYS/x", version=MQTT_3, qos=qos, number=1))

    answer = client.receive_or_none()

    assert answer is None or answer.number == 1
