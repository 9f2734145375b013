"""CONNECT: what is let in and what is not (MQTT 5.0 and 3.1.1, section 3.1)."""

from __future__ import annotations

import string as characters
import uuid

import pytest

from tests.integration.mqtt.building import (
    binary,
    connect_bytes,
    packet_bytes,
    property_bytes,
    publish_bytes,
    string,
)
from tests.integration.mqtt.dialogue import GUEST, Client, Closed, Connect, lasting
from tests.integration.mqtt.packets import MQTT_3, MQTT_5, Kind, Property, Will
from tests.integration.mqtt.statements import mosquitto_departs, mqtt_3, mqtt_5

LETTERS = characters.digits + characters.ascii_letters


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


def test_the_first_packet_has_to_be_a_connect(dial: Connect, version: int) -> None:
    client = dial()

    client.send(publish_bytes("a", version=version))

    assert client.end() is None


def test_a_second_connect_ends_the_connection(client: Client, version: int) -> None:
    client.send(connect_bytes(client.client_id, version=version, **GUEST))

    client.expect_refusal(0x82)


#: No word, or that the version is unknown in the form of either version: the client has neither.
NO_SUCH_PROTOCOL = (b"", b"\x20\x02\x00\x01", b"\x20\x03\x00\x84\x00")


def test_another_protocol_name_is_not_let_in(dial: Connect, version: int) -> None:
    client = dial()

    client.send(connect_bytes("a", version=version, name="MQTX", **GUEST))

    assert client.receive_rest() in NO_SUCH_PROTOCOL


@mqtt_3
@pytest.mark.parametrize("level", [0, 6, 127])
def test_an_unknown_protocol_level_is_refused(dial: Connect, level: int) -> None:
    client = dial()

    client.send(connect_bytes("a", version=level, **GUEST))

    assert client.receive_rest() in NO_SUCH_PROTOCOL[1:]


def test_the_reserved_flag_has_to_be_zero(dial: Connect, version: int) -> None:
    client = dial()

    client.send(connect_body(version, 0b11, string("a")))

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


@pytest.mark.parametrize("client_id", [LETTERS[:1], LETTERS[:23], LETTERS[23:46], LETTERS[39:]])
def test_a_client_id_of_up_to_23_letters_and_digits_is_allowed(
    dial: Connect, client_id: str
) -> None:
    assert dial(client_id).connect().reason == 0


@pytest.mark.parametrize("client_id", ["x" * 200, "sensors/7 (Ängström)", "a.b#c+d", "\ufeffid"])
def test_longer_and_stranger_client_ids_are_allowed_too(dial: Connect, client_id: str) -> None:
    assert dial(client_id).connect().reason == 0


def test_a_client_id_names_its_session(connect: Connect, version: int, topic: str) -> None:
    mine, other = uuid.uuid4().hex, uuid.uuid4().hex
    connect(mine, **lasting(version)).subscribe(topic)

    assert dict_of_presence(connect, version, mine, other) == {mine: True, other: False}


def dict_of_presence(connect: Connect, version: int, *client_ids: str) -> dict[str, bool]:
    clients = [connect(client_id, **lasting(version)) for client_id in client_ids]
    return {client.client_id: client.connack.present for client in clients if client.connack}


@mqtt_5
@pytest.mark.parametrize("clean", [True, False])
def test_who_brings_no_client_id_is_given_one(dial: Connect, clean: bool) -> None:
    first, second = dial("").connect(clean=clean), dial("").connect(clean=clean)

    given = [one.get(Property.ASSIGNED_CLIENT_IDENTIFIER) for one in (first, second)]
    assert all(given)
    assert given[0] != given[1]


@mqtt_5
def test_a_given_client_id_is_as_good_as_ones_own(dial: Connect, connect: Connect) -> None:
    anonymous = dial("")
    given = anonymous.connect(**lasting(MQTT_5)).get(Property.ASSIGNED_CLIENT_IDENTIFIER)
    anonymous.disconnect()

    again = connect(given, **lasting(MQTT_5))

    assert again.connack is not None
    assert again.connack.present


@mqtt_5
def test_who_brings_a_client_id_is_given_none(connect: Connect) -> None:
    client = connect()

    assert client.connack is not None
    assert client.connack.get(Property.ASSIGNED_CLIENT_IDENTIFIER) is None


@mqtt_3
def test_without_a_client_id_a_clean_session_is_to_be_had(dial: Connect, topic: str) -> None:
    """Two of them do not take over from each other: each has a name of its own."""
    first, second = dial(""), dial("")
    assert (first.connect().reason, second.connect().reason) == (0, 0)

    assert (first.settle(), second.settle()) == ([], [])


@mqtt_3
def test_without_a_client_id_no_session_can_be_kept(dial: Connect) -> None:
    client = dial("")

    assert client.connect(clean=False).reason == 2
    assert client.end() is None


@mosquitto_departs("lets anyone in")
def test_a_wrong_password_is_refused(dial: Connect, version: int) -> None:
    client = dial()

    refusal = client.connect(user="guest", password=b"wrong")

    assert refusal.reason in ((0x86, 0x87) if version == MQTT_5 else (4, 5))
    assert client.end() is None


@mqtt_5
def test_the_old_connection_of_a_client_id_is_closed(connect: Connect) -> None:
    old = connect()

    connect(old.client_id)

    old.expect_refusal(0x8E)


@mqtt_3
def test_the_old_connection_of_a_client_id_is_closed_without_a_word(connect: Connect) -> None:
    old = connect()

    connect(old.client_id)

    assert old.end() is None


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
