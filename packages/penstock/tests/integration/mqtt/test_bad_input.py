"""What a broken or hostile client gets, and that nobody else notices (sections 2, 4.8 and 4.13).

What belongs to one kind of packet is tested with it; here is what can be wrong with any.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.mqtt.building import (
    answer_bytes,
    connect_bytes,
    packet_bytes,
    publish_bytes,
    string,
)
from tests.integration.mqtt.dialogue import GUEST, Client, Connect
from tests.integration.mqtt.packets import MQTT_5, Kind, Property
from tests.integration.mqtt.statements import mosquitto_departs, mqtt_5


@pytest.fixture(autouse=True)
def bystander(connect: Connect, topic: str) -> Iterator[None]:
    """Another client, who is served as before when the test is over."""
    other = connect()
    other.subscribe(f"{topic}/bystander", options=1)
    yield
    connect().publish(f"{topic}/bystander", b"still here")
    assert other.take().payload == b"still here"


@pytest.mark.parametrize(
    ("data", "reasons"),
    [
        pytest.param(b"\x30\xff\xff\xff\xff\x01", (0x81,), id="a length of five bytes"),
        pytest.param(b"\x30\x80\x80\x80\x80\x00", (0x81,), id="a zero of five bytes"),
        pytest.param(b"\x00\x00", (0x81, 0x82), id="a packet of kind 0"),
        pytest.param(b"\x36\x05\x00\x01a\x00\x01", (0x81,), id="QoS 3"),
        pytest.param(b"\x30\x02\x00\x05", (0x81,), id="a topic longer than the packet"),
        pytest.param(b"\x30\x01\x00", (0x81,), id="half the length of a topic"),
        pytest.param(b"\x32\x03\x00\x01a", (0x81,), id="QoS 1 without a number"),
        pytest.param(b"\x30\x00", (0x81,), id="a PUBLISH of nothing"),
        pytest.param(b"\x62\x00", (0x81,), id="a PUBREL of nothing"),
        pytest.param(b"\x82\x00", (0x81,), id="a SUBSCRIBE of nothing"),
        pytest.param(b"\xa2\x01\x00", (0x81,), id="half the number of an UNSUBSCRIBE"),
        pytest.param(b"\x60\x02\x00\x01", (0x81,), id="a PUBREL with flags 0"),
        pytest.param(b"\x61\x02\x00\x01", (0x81,), id="a PUBREL with flags 1"),
        pytest.param(b"\x40\x01\x00", (0x81,), id="half the number of a PUBACK"),
        pytest.param(b"\x40\x02\x00\x00", (0x81, 0x82), id="a PUBACK of number zero"),
        pytest.param(b"\x20\x02\x00\x00", (0x81, 0x82), id="a CONNACK"),
    ],
)
def test_what_makes_no_packet_of_a_client_ends_the_connection(
    client: Client, data: bytes, reasons: tuple[int, ...]
) -> None:
    client.send(data)

    client.expect_refusal(*reasons)


@pytest.mark.parametrize(
    ("data", "reasons"),
    [
        pytest.param(b"\x41\x02\x00\x01", (0x81,), id="a PUBACK with a flag"),
        pytest.param(b"\x52\x02\x00\x01", (0x81,), id="a PUBREC with a flag"),
        pytest.param(b"\x72\x02\x00\x01", (0x81,), id="a PUBCOMP with a flag"),
        pytest.param(b"\x90\x04\x00\x01\x00\x00", (0x81, 0x82), id="a SUBACK"),
        pytest.param(b"\xb0\x04\x00\x01\x00\x00", (0x81, 0x82), id="an UNSUBACK"),
        pytest.param(b"\xd0\x00", (0x81, 0x82), id="a PINGRESP"),
    ],
)
@mosquitto_departs("ignores them")
def test_what_no_client_may_send_ends_the_connection(
    client: Client, data: bytes, reasons: tuple[int, ...]
) -> None:
    client.send(data)

    client.expect_refusal(*reasons)


@mqtt_5
@mosquitto_departs("reads it")
@pytest.mark.parametrize("data", [b"\xc0\x80\x00", b"\x30\x84\x00\x00\x01a\x00"])
def test_a_length_of_more_bytes_than_it_needs_ends_the_connection(
    client: Client, data: bytes
) -> None:
    client.send(data)

    client.expect_refusal(0x81)


@pytest.mark.parametrize(
    ("topic_bytes", "reasons"),
    [
        pytest.param(b"\xff\xfe", (0x81,), id="not UTF-8"),
        pytest.param(b"a/\xc3", (0x81,), id="UTF-8 cut short"),
        pytest.param(b"\xc0\xaf", (0x81,), id="UTF-8 longer than need be"),
        pytest.param(b"\xed\xa0\x80", (0x81,), id="a surrogate"),
        pytest.param(b"\xf4\x90\x80\x80", (0x81,), id="beyond Unicode"),
        pytest.param(b"a\0b", (0x81, 0x90), id="a null character"),
        pytest.param(b"a/+", (0x81, 0x82, 0x90), id="a plus sign"),
        pytest.param(b"a/#", (0x81, 0x82, 0x90), id="a number sign"),
        pytest.param(b"a+b", (0x81, 0x82, 0x90), id="a plus sign inside a level"),
        pytest.param(b"", (0x82,), id="nothing"),
    ],
)
@pytest.mark.parametrize("qos", [0, 1])
def test_a_topic_that_is_none_ends_the_connection(
    client: Client, version: int, topic_bytes: bytes, reasons: tuple[int, ...], qos: int
) -> None:
    number = 1 if qos else None

    client.send(publish_bytes(topic_bytes, b"x", version=version, qos=qos, number=number))

    client.expect_refusal(*reasons)


@pytest.mark.parametrize("qos", [1, 2])
def test_number_zero_ends_the_connection(
    client: Client, version: int, topic: str, qos: int
) -> None:
    client.send(publish_bytes(topic, version=version, qos=qos, number=0))

    client.expect_refusal(0x81, 0x82)


@mosquitto_departs("ignores the flag")
def test_dup_at_qos_0_ends_the_connection(client: Client, version: int, topic: str) -> None:
    client.send(publish_bytes(topic, version=version, dup=True))

    client.expect_refusal(0x81, 0x82)


@mqtt_5
@pytest.mark.parametrize(
    "properties",
    [
        pytest.param([(Property.RECEIVE_MAXIMUM, 0)], id="a receive maximum of zero"),
        pytest.param([(Property.MAXIMUM_PACKET_SIZE, 0)], id="a packet size of zero"),
        pytest.param([(Property.SESSION_EXPIRY, 1)] * 2, id="two session expiries"),
        pytest.param([(Property.REQUEST_PROBLEM_INFORMATION, 2)], id="neither yes nor no"),
        pytest.param([(Property.REQUEST_RESPONSE_INFORMATION, 2)], id="neither yes nor no either"),
        pytest.param([(Property.TOPIC_ALIAS, 1)], id="a property of another packet"),
        pytest.param([(Property.USER_PROPERTY, (b"\xff", "a"))], id="a name not UTF-8"),
        pytest.param([(Property.USER_PROPERTY, ("a", b"\xff"))], id="a value not UTF-8"),
    ],
)
def test_a_connect_with_such_properties_is_not_let_in(
    dial: Connect, properties: list[tuple[Property, object]]
) -> None:
    client = dial()

    client.send(connect_bytes(client.client_id, properties=properties, **GUEST))

    last = client.end()
    if client.exact:
        assert last is not None
    assert last is None or (last.kind, last.reason in (0x81, 0x82)) == (Kind.CONNACK, True)


@mqtt_5
@mosquitto_departs("does not read the reason")
@pytest.mark.parametrize("kind", [Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP])
def test_a_reason_that_is_none_ends_the_connection(client: Client, kind: Kind) -> None:
    client.send(answer_bytes(kind, 1, 0x55))

    client.expect_refusal(0x81, 0x82)


def test_many_packets_in_one_write_are_all_served(client: Client, version: int, topic: str) -> None:
    client.send(
        b"".join(
            publish_bytes(topic, b"x" * number, version=version, qos=1, number=number)
            for number in range(1, 16)
        )
    )

    numbers = [packet.number for packet in client.receive_many(15, Kind.PUBACK)]
    assert numbers == list(range(1, 16))


def test_a_packet_may_come_byte_by_byte(client: Client, version: int, topic: str) -> None:
    for byte in publish_bytes(topic, b"slowly", version=version, qos=1, number=9):
        client.send(bytes([byte]))

    assert client.receive(Kind.PUBACK).number == 9


def test_a_packet_cut_off_is_not_a_message(
    connect: Connect, client: Client, version: int, topic: str
) -> None:
    client.subscribe(topic)
    broken = connect()

    broken.send(publish_bytes(topic, b"x" * 100, version=version)[:-10])
    broken.close()

    assert client.settle() == []


def test_noise_on_a_new_connection_is_closed(dial: Connect) -> None:
    client = dial()

    client.send(b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n")

    assert client.receive_rest() == b""


def test_after_an_error_nothing_else_is_processed(
    connect: Connect, client: Client, version: int, topic: str
) -> None:
    client.subscribe(topic)
    broken = connect()

    broken.send(packet_bytes(Kind.PUBLISH, string(b"\xff")) + publish_bytes(topic, version=version))

    broken.expect_refusal(0x81)
    assert client.settle() == []


def test_a_refused_client_of_5_0_hears_nothing_after_the_reason(
    client: Client, version: int
) -> None:
    client.send(packet_bytes(Kind.PUBLISH, string(b"\xff")) * 3)

    last = client.receive_or_none()
    assert client.receive_or_none() is None
    assert last is None or version == MQTT_5
