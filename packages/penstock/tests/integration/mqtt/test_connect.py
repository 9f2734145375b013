"""CONNECT: what is let in and what is not (MQTT 5.0 and 3.1.1, section 3.1)."""

from __future__ import annotations

import pytest

from tests.integration.mqtt.building import (
    binary,
    connect_bytes,
    packet_bytes,
    property_bytes,
    publish_bytes,
    string,
)
from tests.integration.mqtt.dialogue import GUEST, Client, Closed, Connect
from tests.integration.mqtt.packets import MQTT_3, MQTT_5, Kind, Property, Will
from tests.integration.mqtt.statements import left_open, mqtt_3, mqtt_5


def connect_body(version: int, flags: int, payload: bytes) -> bytes:
    """A CONNECT whose flags and payload need not fit."""
    header = string("MQTT") + bytes([version, flags, 0, 0])
    return packet_bytes(Kind.CONNECT, header + (b"\0" if version == MQTT_5 else b"") + payload)


def expect_no_entry(client: Client, *reasons: int) -> None:
    """The broker closes; a client of 5.0 may be told why, one of 3.1.1 is told nothing."""
    last = client.end()
    if last is not None:
        assert client.version == MQTT_5
        assert (last.kind, last.present) == (Kind.CONNACK, False)
        assert last.reason in reasons


def test_a_connect_is_accepted(dial: Connect) -> None:
    assert dial().connect().reason == 0


@mqtt_3
def test_version_3_1_is_let_in_as_3_1_1(dial: Connect) -> None:
    client = dial()

    client.send(connect_bytes(client.client_id, version=3, name="MQIsdp", **GUEST))

    assert client.receive(Kind.CONNACK).reason == 0
    assert client.settle() == []


def test_the_first_packet_has_to_be_a_connect(dial: Connect, version: int) -> None:
    client = dial()

    client.send(publish_bytes("a", version=version))

    assert client.end() is None


def test_a_second_connect_ends_the_connection(client: Client, version: int) -> None:
    client.send(connect_bytes(client.client_id, version=version, **GUEST))

    client.expect_refusal(0x82)


def is_version_unknown(answer: bytes) -> bool:
    """Whether it is said in the form of 3.1.1 or of 5.0: the client has neither version."""
    return answer == b"\x20\x02\x00\x01" or (answer[:1], answer[2:4]) == (b"\x20", b"\x00\x84")


def test_another_protocol_name_is_not_let_in(dial: Connect, version: int) -> None:
    client = dial()

    client.send(connect_bytes("a", version=version, name="MQTX", **GUEST))

    answer = client.receive_rest()
    assert answer == b"" or is_version_unknown(answer)


@mqtt_3
@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_level_from_before_3_1_is_refused_by_code(dial: Connect, level: int) -> None:
    client = dial()

    client.send(connect_bytes("a", version=level, **GUEST))

    assert client.receive_rest() == b"\x20\x02\x00\x01"


@mqtt_5
@pytest.mark.parametrize("level", [6, 127])
def test_a_level_yet_to_come_is_refused(dial: Connect, level: int) -> None:
    client = dial()

    client.send(connect_bytes("a", version=level, **GUEST))

    assert is_version_unknown(client.receive_rest())


def test_the_reserved_flag_has_to_be_zero(dial: Connect, version: int) -> None:
    client = dial()

    client.send(connect_body(version, 0b11, string("a")))

    expect_no_entry(client, 0x81)


def test_the_flags_of_its_header_have_to_be_zero(dial: Connect, version: int) -> None:
    client = dial()

    client.send(b"\x11" + connect_bytes("a", version=version, **GUEST)[1:])

    expect_no_entry(client, 0x81)


@pytest.mark.parametrize(
    ("flags", "payload"),
    [
        pytest.param(2, b"", id="no client id"),
        pytest.param(2, string(b"\xff\xfe"), id="a client id that is not UTF-8"),
        pytest.param(2, string(b"a\0b"), id="a client id with a null character"),
        pytest.param(2, string(b"\xed\xa0\x80"), id="a client id with a surrogate"),
        pytest.param(2, b"\0\x09abc", id="a client id that is cut short"),
        pytest.param(2, string("a") + b"z", id="bytes after the end"),
        pytest.param(0x82, string("a"), id="no user name where one is announced"),
        pytest.param(2, string("a") + string("guest"), id="a user name that was not announced"),
        pytest.param(0x82, string("a") + string(b"\xff"), id="a user name that is not UTF-8"),
        pytest.param(0xC2, string("a") + string("guest"), id="no password where one is announced"),
        pytest.param(
            0x82,
            string("a") + string("guest") + string("guest"),
            id="a password that was not announced",
        ),
        pytest.param(0b0000_1010, string("a"), id="a QoS without a will"),
        pytest.param(0b0010_0010, string("a"), id="a retain flag without a will"),
        pytest.param(0b0000_0110, string("a"), id="no will where one is announced"),
    ],
)
def test_a_connect_that_does_not_fit_its_form_is_not_let_in(
    dial: Connect, version: int, flags: int, payload: bytes
) -> None:
    client = dial()

    client.send(connect_body(version, flags, payload))

    expect_no_entry(client, 0x81, 0x82)


@pytest.mark.parametrize(
    ("flags", "topic", "message"),
    [
        pytest.param(0b0001_1110, string("a"), binary(b"x"), id="of QoS 3"),
        pytest.param(0b0000_0110, string("a"), b"", id="without a message"),
        pytest.param(0b0000_0110, string(b"\xff"), binary(b"x"), id="with a topic not UTF-8"),
        pytest.param(0b0000_0110, string("a/#"), binary(b"x"), id="with a wildcard"),
        pytest.param(0b0000_0110, string(""), binary(b"x"), id="without a topic"),
        pytest.param(0b0000_0110, string("a"), b"\0\x05x", id="with a message cut short"),
    ],
)
def test_a_will_that_cannot_be_published_is_not_let_in(
    dial: Connect, version: int, flags: int, topic: bytes, message: bytes
) -> None:
    client = dial()
    properties = property_bytes(()) if version == MQTT_5 else b""

    client.send(connect_body(version, flags, string("a") + properties + topic + message))

    expect_no_entry(client, 0x81, 0x82, 0x90)


@mqtt_3
def test_a_password_needs_a_user_name_in_3_1_1(dial: Connect) -> None:
    client = dial()

    client.send(connect_body(MQTT_3, 0x42, string("a") + string("guest")))

    assert client.end() is None


@mqtt_5
def test_a_password_needs_no_user_name_in_5_0(dial: Connect) -> None:
    client = dial()

    client.send(connect_body(MQTT_5, 0x42, string("a") + string("guest")))

    assert client.receive(Kind.CONNACK).reason in (0, 0x86, 0x87)


def test_all_fields_in_their_order_are_understood(
    connect: Connect, client: Client, topic: str
) -> None:
    client.subscribe(topic)

    connect(will=Will(topic, b"gone"), user="guest", password=b"guest").close()

    assert client.receive(Kind.PUBLISH).payload == b"gone"


@left_open("lets anyone in")
def test_a_wrong_password_is_refused(dial: Connect, version: int) -> None:
    client = dial()

    refusal = client.connect(user="guest", password=b"wrong")

    assert refusal.reason in ((0x86, 0x87) if version == MQTT_5 else (4, 5))
    assert client.end() is None


def test_what_a_refused_client_sends_is_not_processed(
    dial: Connect, connect: Connect, version: int, topic: str
) -> None:
    witness = connect()
    witness.subscribe(topic)
    refused = dial("" if version == MQTT_3 else None)
    method = [(Property.AUTHENTICATION_METHOD, "NONE-SUCH")]

    refused.send(
        connect_bytes(refused.client_id, version=version, clean=False, properties=method, **GUEST)
        + publish_bytes(topic, b"in vain", version=version)
    )

    assert refused.receive(Kind.CONNACK).reason == (0x8C if version == MQTT_5 else 2)
    with pytest.raises(Closed):
        refused.receive()
    assert witness.settle() == []
