"""QoS 2, exactly once, as receiver and as sender (sections 4.3.3 and 4.4)."""

from __future__ import annotations

from tests.integration.mqtt.building import answer_bytes, publish_bytes
from tests.integration.mqtt.dialogue import Client, Connect, lasting
from tests.integration.mqtt.packets import MQTT_5, Kind, Packet, Property
from tests.integration.mqtt.statements import mosquitto_departs, mqtt_5

# The broker receives


def test_a_number_sent_twice_before_its_release_is_one_message(
    client: Client, publisher: Client, version: int, topic: str
) -> None:
    client.subscribe(topic)
    data = publish_bytes(topic, b"once", version=version, qos=2, number=5)
    again = publish_bytes(topic, b"once", version=version, qos=2, number=5, dup=True)

    answers = [publisher.call(one, Kind.PUBREC) for one in (data, again)]
    publisher.call(answer_bytes(Kind.PUBREL, 5), Kind.PUBCOMP)

    assert [answer.number for answer in answers] == [5, 5]
    assert [packet.payload for packet in client.settle()] == [b"once"]


def test_after_its_completion_a_number_is_new_again(
    client: Client, publisher: Client, topic: str
) -> None:
    client.subscribe(topic)

    publisher.publish(topic, b"one", qos=2, number=5)
    publisher.publish(topic, b"two", qos=2, number=5)

    assert [packet.payload for packet in client.settle()] == [b"one", b"two"]


def test_a_number_sent_again_after_a_break_is_still_one_message(
    client: Client, connect: Connect, version: int, topic: str
) -> None:
    client.subscribe(topic)
    publisher = connect(**lasting(version))
    publisher.call(publish_bytes(topic, b"1", version=version, qos=2, number=5), Kind.PUBREC)
    publisher.close()

    back = connect(publisher.client_id, **lasting(version))
    again = publish_bytes(topic, b"1", version=version, qos=2, number=5, dup=True)
    assert back.call(again, Kind.PUBREC).number == 5
    assert back.call(answer_bytes(Kind.PUBREL, 5), Kind.PUBCOMP).number == 5

    assert [packet.payload for packet in client.settle()] == [b"1"]


def test_a_release_after_a_break_is_completed(
    client: Client, connect: Connect, version: int, topic: str
) -> None:
    client.subscribe(topic)
    publisher = connect(**lasting(version))
    publisher.call(publish_bytes(topic, b"1", version=version, qos=2, number=5), Kind.PUBREC)
    publisher.close()

    back = connect(publisher.client_id, **lasting(version))
    complete = back.call(answer_bytes(Kind.PUBREL, 5), Kind.PUBCOMP)

    assert (complete.number, complete.reason) == (5, 0)
    assert [packet.payload for packet in client.settle()] == [b"1"]


def test_a_release_of_an_unknown_number_is_completed_all_the_same(client: Client) -> None:
    complete = client.call(answer_bytes(Kind.PUBREL, 99), Kind.PUBCOMP)

    assert (complete.number, complete.reason in (0, 0x92)) == (99, True)


def test_a_release_sent_twice_is_completed_twice(
    client: Client, publisher: Client, version: int, topic: str
) -> None:
    client.subscribe(topic)
    publisher.publish(topic, b"once", qos=2, number=5)

    again = publisher.call(answer_bytes(Kind.PUBREL, 5), Kind.PUBCOMP)

    assert again.number == 5
    assert len(client.settle()) == 1


@mqtt_5
@mosquitto_departs("takes it, and publishes nothing")
def test_after_a_refusal_the_number_is_new_again(
    client: Client, publisher: Client, topic: str
) -> None:
    client.subscribe(topic)
    refused = publish_bytes("$SYS/not/for/clients", qos=2, number=5)
    assert publisher.call(refused, Kind.PUBREC).reason == 0x87

    publisher.publish(topic, b"allowed", qos=2, number=5)

    assert client.receive(Kind.PUBLISH).payload == b"allowed"


@mqtt_5
def test_the_exchange_goes_on_though_the_message_expires_at_once(
    client: Client, topic: str
) -> None:
    properties = [(Property.MESSAGE_EXPIRY, 0)]

    assert client.publish(topic, qos=2, properties=properties).reason == 0


# The broker sends


def in_flight(client: Client, publisher: Client, topic: str) -> Packet:
    """Have the broker send a message of QoS 2 and leave it unanswered."""
    client.subscribe(topic, options=2)
    publisher.publish(topic, b"careful", qos=2)
    return client.receive(Kind.PUBLISH)


def test_a_pubrec_is_answered_by_a_pubrel_of_its_number(
    client: Client, publisher: Client, topic: str
) -> None:
    packet = in_flight(client, publisher, topic)

    client.answer(Kind.PUBREC, packet)

    release = client.receive(Kind.PUBREL)
    assert (release.number, release.reason) == (packet.number, 0)


def test_numbers_in_flight_are_different(client: Client, publisher: Client, topic: str) -> None:
    client.subscribe(topic, options=2)

    for _ in range(10):
        publisher.publish(topic, qos=2)

    assert len({packet.number for packet in client.receive_many(10)}) == 10


def test_before_pubrec_the_message_is_sent_again_with_dup(
    connect: Connect, publisher: Client, version: int, topic: str
) -> None:
    first = connect(**lasting(version))
    packet = in_flight(first, publisher, topic)
    first.close()

    again = connect(first.client_id, **lasting(version)).receive(Kind.PUBLISH)

    assert (again.number, again.dup, again.qos, again.payload) == (
        *(packet.number, True),
        *(2, b"careful"),
    )


def test_after_pubrec_only_the_release_is_sent_again(
    connect: Connect, publisher: Client, version: int, topic: str
) -> None:
    first = connect(**lasting(version))
    packet = in_flight(first, publisher, topic)
    first.answer(Kind.PUBREC, packet)
    first.receive(Kind.PUBREL)
    first.close()

    back = connect(first.client_id, **lasting(version))

    assert back.receive(Kind.PUBREL).number == packet.number
    assert back.settle() == []


def test_after_pubcomp_nothing_is_sent_again(
    connect: Connect, publisher: Client, version: int, topic: str
) -> None:
    first = connect(**lasting(version))
    first.subscribe(topic, options=2)
    publisher.publish(topic, qos=2)
    first.take(2)
    first.disconnect()

    assert connect(first.client_id, **lasting(version)).settle() == []


def test_messages_and_releases_are_sent_again_in_their_order(
    connect: Connect, publisher: Client, version: int, topic: str
) -> None:
    first = connect(**lasting(version))
    first.subscribe(topic, options=2)
    for _ in range(3):
        publisher.publish(topic, qos=2)
    packets = first.receive_many(3)
    first.answer(Kind.PUBREC, packets[1])
    first.receive(Kind.PUBREL)
    first.close()

    back = connect(first.client_id, **lasting(version))
    again = [back.receive() for _ in range(3)]

    messages = [packet.number for packet in again if packet.kind is Kind.PUBLISH]
    assert messages == [packets[0].number, packets[2].number]
    assert [packet.number for packet in again if packet.kind is Kind.PUBREL] == [packets[1].number]


@mqtt_5
def test_a_refused_message_gets_no_release_and_does_not_come_again(
    connect: Connect, publisher: Client, topic: str
) -> None:
    first = connect(**lasting(MQTT_5))
    packet = in_flight(first, publisher, topic)

    first.answer(Kind.PUBREC, packet, 0x80)

    assert first.settle() == []
    first.disconnect()
    assert connect(first.client_id, **lasting(MQTT_5)).settle() == []


@mqtt_5
@mosquitto_departs("drops it now and then")
def test_a_message_that_was_sent_no_longer_expires(
    connect: Connect, publisher: Client, topic: str
) -> None:
    first = connect(**lasting(MQTT_5))
    first.subscribe(topic, options=2)
    publisher.publish(topic, b"late", qos=2, properties=[(Property.MESSAGE_EXPIRY, 1)])
    packet = first.receive(Kind.PUBLISH)
    first.close()
    publisher.stay_silent(1.2)

    again = connect(first.client_id, **lasting(MQTT_5)).receive(Kind.PUBLISH)

    assert (again.number, again.payload, again.dup) == (packet.number, b"late", True)
