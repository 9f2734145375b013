"""SUBSCRIBE and SUBACK (sections 3.8 and 3.9)."""

from __future__ import annotations

import pytest

from tests.integration.mqtt.building import answer_bytes, publish_bytes, subscribe_bytes
from tests.integration.mqtt.dialogue import Client, Connect, lasting
from tests.integration.mqtt.packets import MQTT_5, NO_LOCAL, Kind, Property
from tests.integration.mqtt.statements import mosquitto_departs, mqtt_3, mqtt_5


@pytest.mark.parametrize("number", [1, 256, 65535])
def test_a_subscribe_is_answered_by_a_suback_of_its_number(
    client: Client, version: int, topic: str, number: int
) -> None:
    client.send(subscribe_bytes(number, [(topic, 0)], version=version))

    assert client.receive(Kind.SUBACK).number == number


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_suback_says_what_was_granted(client: Client, topic: str, qos: int) -> None:
    assert client.subscribe(topic, options=qos).reasons == (qos,)


def test_many_filters_get_one_answer_with_a_reason_for_each_in_their_order(
    client: Client, publisher: Client, version: int, topic: str
) -> None:
    filters: list[tuple[str | bytes, int]] = [(f"{topic}/a", 2), (f"{topic}/b", 0), ("c/+/#", 1)]

    client.send(subscribe_bytes(1, filters, version=version))

    assert client.receive(Kind.SUBACK).reasons == (2, 0, 1)
    publisher.publish(f"{topic}/b", b"b")
    publisher.publish(f"{topic}/a", b"a")
    assert [packet.payload for packet in client.receive_many(2)] == [b"b", b"a"]


def test_there_may_be_very_many_filters(client: Client, version: int, topic: str) -> None:
    filters: list[tuple[str | bytes, int]] = [(f"{topic}/{count}", 1) for count in range(1000)]

    client.send(subscribe_bytes(1, filters, version=version))

    assert client.receive(Kind.SUBACK).reasons == (1,) * 1000


def test_the_same_filter_twice_is_one_subscription(
    client: Client, publisher: Client, version: int, topic: str
) -> None:
    client.send(subscribe_bytes(1, [(topic, 0), (topic, 1)], version=version))
    assert client.receive(Kind.SUBACK).reasons == (0, 1)

    publisher.publish(topic)

    assert [packet.qos for packet in client.settle()] == [1]


@pytest.mark.parametrize(("before", "after"), [(2, 0), (0, 1)])
def test_the_same_filter_replaces_its_subscription(
    client: Client, publisher: Client, topic: str, before: int, after: int
) -> None:
    client.subscribe(topic, options=before)
    client.subscribe(topic, options=after)

    publisher.publish(topic, qos=2)

    assert [packet.qos for packet in client.settle()] == [after]


def test_replacing_a_subscription_loses_nothing(
    connect: Connect, publisher: Client, version: int, topic: str
) -> None:
    """Publishes and the new SUBSCRIBE race; each message comes once."""
    client = connect()
    client.subscribe(topic, options=1)
    payloads = [b"%d" % count for count in range(15)]
    publisher.send(
        b"".join(
            publish_bytes(topic, payload, version=version, qos=1, number=count)
            for count, payload in enumerate(payloads, 1)
        )
    )
    client.send(subscribe_bytes(9, [(topic, 1)], version=version))
    publisher.receive_many(len(payloads), Kind.PUBACK)

    arrived = [packet.payload for packet in client.settle() if packet.kind is Kind.PUBLISH]

    assert arrived == payloads


def test_retained_messages_come_again_when_a_subscription_is_replaced(
    client: Client, publisher: Client, topic: str
) -> None:
    publisher.publish(topic, b"kept", retain=True)
    client.subscribe(topic)
    assert client.receive(Kind.PUBLISH).retain

    client.subscribe(topic)

    assert client.receive(Kind.PUBLISH).payload == b"kept"


@pytest.mark.parametrize(
    ("data", "reasons"),
    [
        pytest.param(subscribe_bytes(1, [("a", 0)], flags=0), (0x81,), id="flags 0"),
        pytest.param(subscribe_bytes(1, [("a", 0)], flags=3), (0x81,), id="flags 3"),
        pytest.param(subscribe_bytes(1, [("a", 3)]), (0x81, 0x82), id="QoS 3"),
        pytest.param(subscribe_bytes(1, [("a", 0x40)]), (0x81,), id="a reserved bit"),
        pytest.param(subscribe_bytes(1, [("a", 0x80)]), (0x81,), id="another reserved bit"),
        pytest.param(subscribe_bytes(1, [("a", 0x30)]), (0x81, 0x82), id="retain handling 3"),
        pytest.param(subscribe_bytes(1, []), (0x81, 0x82), id="no filter"),
        pytest.param(subscribe_bytes(0, [("a", 0)]), (0x81, 0x82), id="number zero"),
        pytest.param(subscribe_bytes(1, [(b"\xff", 0)]), (0x81,), id="a filter not UTF-8"),
        pytest.param(subscribe_bytes(1, [(b"a\0", 0)]), (0x81,), id="a null character"),
        pytest.param(
            subscribe_bytes(1, [("a", 0)])[:-1].replace(b"\x82\x07", b"\x82\x06"),
            *((0x81,),),
            id="no options",
        ),
        pytest.param(
            subscribe_bytes(1, [("a", 0)], properties=[(Property.SUBSCRIPTION_IDENTIFIER, 0)]),
            *((0x81, 0x82),),
            id="identifier zero",
        ),
        pytest.param(
            subscribe_bytes(1, [("a", 0)], properties=[(Property.SUBSCRIPTION_IDENTIFIER, 1)] * 2),
            *((0x82,),),
            id="two identifiers",
        ),
    ],
)
@mqtt_5
def test_a_subscribe_against_the_rules_ends_the_connection(
    client: Client, data: bytes, reasons: tuple[int, ...]
) -> None:
    client.send(data)

    client.expect_refusal(*reasons)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(subscribe_bytes(1, [("a", 0)], version=4, flags=0), id="flags 0"),
        pytest.param(subscribe_bytes(1, [("a", 3)], version=4), id="QoS 3"),
        pytest.param(subscribe_bytes(1, [("a", 4)], version=4), id="an option only 5.0 has"),
        pytest.param(subscribe_bytes(1, [("a", 0x80)], version=4), id="a reserved bit"),
        pytest.param(subscribe_bytes(1, [], version=4), id="no filter"),
        pytest.param(subscribe_bytes(0, [("a", 0)], version=4), id="number zero"),
        pytest.param(subscribe_bytes(1, [(b"\xff", 0)], version=4), id="a filter not UTF-8"),
        pytest.param(subscribe_bytes(1, [(b"a\0", 0)], version=4), id="a null character"),
    ],
)
@mqtt_3
def test_a_subscribe_against_the_rules_of_3_1_1_ends_the_connection(
    client: Client, data: bytes
) -> None:
    client.send(data)

    client.expect_refusal()


@mqtt_5
def test_with_no_local_ones_own_messages_do_not_come_back(
    client: Client, publisher: Client, topic: str
) -> None:
    client.subscribe(topic, options=NO_LOCAL)

    client.publish(topic, b"mine")
    publisher.publish(topic, b"another's")

    assert [packet.payload for packet in client.settle()] == [b"another's"]


@mqtt_5
def test_no_local_holds_for_its_subscription_only(client: Client, topic: str) -> None:
    client.subscribe(topic, options=NO_LOCAL)
    client.subscribe(f"{topic}/#")

    client.send(publish_bytes(topic, b"mine"))

    assert [packet.payload for packet in client.settle()] == [b"mine"]


@mqtt_5
def test_no_local_goes_by_the_client_id(connect: Connect, topic: str) -> None:
    """What a client published before it came back is still its own."""
    first = connect(**lasting(MQTT_5))
    first.subscribe(topic, options=1 | NO_LOCAL)
    first.publish(topic, b"mine")
    first.disconnect()

    assert connect(first.client_id, **lasting(MQTT_5)).settle() == []


@mqtt_5
@mosquitto_departs("accepts it")
def test_no_local_is_not_for_shared_subscriptions(client: Client, topic: str) -> None:
    client.send(subscribe_bytes(1, [(f"$share/g/{topic}", NO_LOCAL)]))

    client.expect_refusal(0x82)


def test_a_subscription_holds_from_its_suback_on(
    client: Client, publisher: Client, topic: str
) -> None:
    publisher.publish(topic, b"before")
    client.subscribe(topic)
    publisher.publish(topic, b"after")

    assert [packet.payload for packet in client.settle()] == [b"after"]


@mqtt_5
def test_a_subscribe_with_user_properties_is_served(client: Client, topic: str) -> None:
    properties = [(Property.USER_PROPERTY, ("a", "b")), (Property.USER_PROPERTY, ("a", "c"))]

    assert client.subscribe(topic, properties=properties).reasons == (0,)


@mqtt_5
def test_who_wants_no_problem_information_gets_none(connect: Connect, topic: str) -> None:
    """Though there are problems: a filter is refused where it can be, and numbers are unknown."""
    client = connect(properties=[(Property.REQUEST_PROBLEM_INFORMATION, 0)])

    answers = [
        client.subscribe(topic.ljust(300, "x")),
        client.unsubscribe("unknown"),
        client.publish("$SYS/refused"),
        client.call(publish_bytes("$SYS/refused", qos=2, number=9), Kind.PUBREC),
        client.call(answer_bytes(Kind.PUBREL, 99), Kind.PUBCOMP),
    ]

    assert [list(answer.properties) for answer in answers] == [[]] * len(answers)
