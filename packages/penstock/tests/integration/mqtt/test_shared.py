"""Shared subscriptions: each message to one of a group (section 4.8.2)."""

from __future__ import annotations

import pytest

from tests.integration.mqtt.building import PINGREQ, subscribe_bytes
from tests.integration.mqtt.dialogue import Client, Connect, lasting
from tests.integration.mqtt.packets import MQTT_5, Kind, Packet
from tests.integration.mqtt.statements import mosquitto_departs, mqtt_5


def members(connect: Connect, one: str, count: int, options: int = 0) -> list[Client]:
    group = [connect() for _ in range(count)]
    for member in group:
        member.subscribe(one, options=options)
    return group


def arrived(group: list[Client]) -> list[Packet]:
    return [packet for member in group for packet in member.settle()]


def test_each_message_goes_to_one_of_the_group(
    connect: Connect, publisher: Client, topic: str
) -> None:
    group = members(connect, f"$share/group/{topic}", 3, 1)
    payloads = [b"%d" % count for count in range(12)]

    for payload in payloads:
        publisher.publish(topic, payload)

    assert sorted(packet.payload for packet in arrived(group)) == sorted(payloads)


def test_the_work_is_shared_out(connect: Connect, publisher: Client, topic: str) -> None:
    group = members(connect, f"$share/group/{topic}", 3, 1)

    for _ in range(12):
        publisher.publish(topic)

    assert all(member.settle() for member in group)


def test_groups_and_ordinary_subscribers_do_not_share_with_each_other(
    connect: Connect, publisher: Client, topic: str
) -> None:
    first = members(connect, f"$share/first/{topic}", 2)
    second = members(connect, f"$share/second/{topic}", 2)
    plain = members(connect, topic, 2)

    publisher.publish(topic)

    assert [len(arrived(group)) for group in (first, second, plain)] == [1, 1, 2]


def test_a_group_may_share_a_wildcard(connect: Connect, publisher: Client, topic: str) -> None:
    group = members(connect, f"$share/group/{topic}/+/#", 2)

    for name in ("a", "b/c", "d/e/f"):
        publisher.publish(f"{topic}/{name}")

    assert len(arrived(group)) == 3


@pytest.mark.parametrize("granted", [0, 1, 2])
def test_a_member_gets_no_more_than_its_granted_qos(
    connect: Connect, publisher: Client, topic: str, granted: int
) -> None:
    (member,) = members(connect, f"$share/group/{topic}", 1, granted)

    publisher.publish(topic, qos=2)

    assert member.receive(Kind.PUBLISH).qos == granted


def test_who_leaves_the_group_gets_no_more(connect: Connect, publisher: Client, topic: str) -> None:
    leaver, stayer = members(connect, f"$share/group/{topic}", 2)
    leaver.unsubscribe(f"$share/group/{topic}")

    for _ in range(4):
        publisher.publish(topic)

    assert (len(leaver.settle()), len(stayer.settle())) == (0, 4)


def test_who_goes_leaves_the_work_to_the_rest(
    connect: Connect, publisher: Client, topic: str
) -> None:
    goer, stayer = members(connect, f"$share/group/{topic}", 2)
    goer.disconnect()

    for _ in range(4):
        publisher.publish(topic)

    assert len(stayer.settle()) == 4


def test_the_same_client_may_be_in_a_group_and_subscribe_itself(
    connect: Connect, publisher: Client, topic: str
) -> None:
    client = connect()
    client.subscribe(f"$share/group/{topic}")
    client.subscribe(topic)

    publisher.publish(topic)

    assert len(client.settle()) in (1, 2)


def test_a_delivery_at_qos_2_is_completed_by_the_same_client(
    connect: Connect, publisher: Client, version: int, topic: str
) -> None:
    first = connect(**lasting(version))
    first.subscribe(f"$share/group/{topic}", options=2)
    publisher.publish(topic, b"mine", qos=2)
    packet = first.receive(Kind.PUBLISH)
    other = connect()
    other.subscribe(f"$share/group/{topic}", options=2)
    first.close()

    back = connect(first.client_id, **lasting(version))

    again = back.receive(Kind.PUBLISH)
    assert (again.number, again.payload, again.dup) == (packet.number, b"mine", True)
    assert other.settle() == []


def test_a_delivery_at_qos_2_goes_to_nobody_else_though_its_client_is_gone(
    connect: Connect, publisher: Client, topic: str
) -> None:
    first = connect()
    first.subscribe(f"$share/group/{topic}", options=2)
    publisher.publish(topic, qos=2)
    first.receive(Kind.PUBLISH)
    other = connect()
    other.subscribe(f"$share/group/{topic}", options=2)

    first.disconnect()

    assert other.settle() == []


@mqtt_5
@pytest.mark.parametrize(("qos", "answer"), [(1, Kind.PUBACK), (2, Kind.PUBREC)])
def test_a_refused_message_goes_to_nobody_else(
    connect: Connect, publisher: Client, topic: str, qos: int, answer: Kind
) -> None:
    group = members(connect, f"$share/group/{topic}", 2, qos)
    publisher.publish(topic, qos=qos)
    ((lucky, (packet,)),) = [(member, packets) for member in group if (packets := member.settle())]

    lucky.answer(answer, packet, 0x80)

    lucky.settle()
    assert arrived(group) == []


@mosquitto_departs("accepts them")
@pytest.mark.parametrize(
    "one", ["$share//a", "$share/g", "$share/g/", "$share/", "$share/+/a", "$share/#"]
)
def test_a_share_needs_a_name_and_a_filter(client: Client, version: int, one: str) -> None:
    refuse(client, version, one)


@pytest.mark.parametrize("one", ["$share/g+/a", "$share/g#/a", "$share/g/a#"])
def test_a_shares_name_has_no_wildcards(client: Client, version: int, one: str) -> None:
    refuse(client, version, one)


def refuse(client: Client, version: int, one: str) -> None:
    """The filter is refused with a reason, or the connection is closed."""
    client.send(subscribe_bytes(1, [(one, 0)], version=version) + PINGREQ)

    first = client.receive_or_none()

    if first is None or first.kind is Kind.DISCONNECT:
        assert first is None or first.reason in (0x81, 0x82, 0x8F)
    else:
        assert first.reasons == ((0x8F,) if version == MQTT_5 else (0x80,))
