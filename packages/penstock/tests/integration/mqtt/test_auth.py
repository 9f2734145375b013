"""AUTH: the broker has no authentication beyond a name and a password (sections 3.15 and 4.12)."""

from __future__ import annotations

import pytest

from tests.integration.mqtt.building import connect_bytes, ending_bytes, packet_bytes
from tests.integration.mqtt.dialogue import GUEST, Client, Connect
from tests.integration.mqtt.packets import Kind, Property
from tests.integration.mqtt.statements import mosquitto_departs, mqtt_3, mqtt_5

METHOD = (Property.AUTHENTICATION_METHOD, "SCRAM-SHA-256")
DATA = (Property.AUTHENTICATION_DATA, b"n,,n=user,r=nonce")


@mqtt_5
@pytest.mark.parametrize("properties", [[METHOD], [METHOD, DATA]])
def test_an_unknown_method_is_refused(
    dial: Connect, properties: list[tuple[Property, object]]
) -> None:
    client = dial()

    refusal = client.connect(properties=properties)

    assert refusal.reason == 0x8C
    assert client.end() is None


@mqtt_5
@mosquitto_departs("ignores the data")
def test_data_without_a_method_are_an_error(dial: Connect) -> None:
    client = dial()

    client.send(connect_bytes(client.client_id, properties=[DATA], **GUEST))

    last = client.end()
    assert last is not None
    assert (last.kind, last.reason) == (Kind.CONNACK, 0x82)


@mqtt_5
@pytest.mark.parametrize("reason", [0x00, 0x18, 0x19])
def test_an_auth_without_a_method_in_the_connect_ends_the_connection(
    client: Client, reason: int
) -> None:
    client.send(ending_bytes(Kind.AUTH, reason, [METHOD]))

    client.expect_refusal(0x82)


@mqtt_5
def test_an_auth_before_the_connect_ends_the_connection(dial: Connect) -> None:
    client = dial()

    client.send(ending_bytes(Kind.AUTH, 0x18, [METHOD]))

    assert client.end() is None


@mqtt_5
def test_reserved_bits_of_auth_have_to_be_zero(client: Client) -> None:
    client.send(packet_bytes(Kind.AUTH, b"\x19\0", flags=1))

    client.expect_refusal(0x81)


@mqtt_3
def test_there_is_no_auth_in_3_1_1(client: Client) -> None:
    client.send(packet_bytes(Kind.AUTH))

    assert client.end() is None
