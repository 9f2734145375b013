"""DISCONNECT, by the client and by the broker (section 3.14)."""

from __future__ import annotations

import socket

import pytest

from tests.integration.mqtt.building import (
    PINGREQ,
    ending_bytes,
    packet_bytes,
    publish_bytes,
    subscribe_bytes,
)
from tests.integration.mqtt.dialogue import Client, Connect, lasting
from tests.integration.mqtt.packets import MQTT_5, Kind, Property, Will
from tests.integration.mqtt.statements import left_open, mqtt_3, mqtt_5


def test_the_broker_closes_without_a_word(client: Client) -> None:
    client.send(ending_bytes(Kind.DISCONNECT))

    assert client.end() is None


@mqtt_5
@pytest.mark.parametrize("reason", [0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x99])
def test_a_client_may_give_a_reason(client: Client, reason: int) -> None:
    properties = [(Property.REASON_STRING, "enough"), (Property.USER_PROPERTY, ("a", "b"))]

    client.send(ending_bytes(Kind.DISCONNECT, reason, properties))

    assert client.end() is None


def test_what_comes_after_it_is_not_processed(
    client: Client, publisher: Client, version: int, topic: str
) -> None:
    client.subscribe(topic)

    publisher.send(ending_bytes(Kind.DISCONNECT) + publish_bytes(topic, version=version))

    assert publisher.end() is None
    assert client.settle() == []


def test_reserved_bits_have_to_be_zero(
    client: Client, connect: Connect, version: int, topic: str
) -> None:
    """It is no DISCONNECT, so the will is sent."""
    client.subscribe(topic)
    broken = connect(will=Will(topic))

    broken.send(packet_bytes(Kind.DISCONNECT, flags=1))

    broken.expect_refusal(0x81)
    assert client.receive(Kind.PUBLISH).topic == topic


@mqtt_3
def test_it_has_no_content_in_3_1_1(client: Client, connect: Connect, topic: str) -> None:
    client.subscribe(topic)
    broken = connect(will=Will(topic))

    broken.send(packet_bytes(Kind.DISCONNECT, b"\0"))

    assert broken.end() is None
    assert client.receive(Kind.PUBLISH).topic == topic


@mqtt_5
@pytest.mark.parametrize("reason", [0x01, 0x55, 0xFF])
def test_a_reason_that_is_none_is_an_error(client: Client, reason: int) -> None:
    client.send(ending_bytes(Kind.DISCONNECT, reason))

    client.expect_refusal(0x81, 0x82)


@mqtt_5
def test_a_session_of_no_length_cannot_be_prolonged_in_parting(client: Client) -> None:
    client.send(ending_bytes(Kind.DISCONNECT, 0, [(Property.SESSION_EXPIRY, 10)]))

    client.expect_refusal(0x82)


@mqtt_5
def test_a_session_can_be_ended_in_parting(connect: Connect) -> None:
    client = connect(**lasting(MQTT_5))

    client.disconnect(0, [(Property.SESSION_EXPIRY, 0)])

    back = connect(client.client_id, clean=False)
    assert back.connack is not None
    assert not back.connack.present


@mqtt_5
def test_a_session_can_be_shortened_in_parting(connect: Connect, topic: str) -> None:
    client = connect(**lasting(MQTT_5, 600))

    client.disconnect(0, [(Property.SESSION_EXPIRY, 60)])

    back = connect(client.client_id, clean=False)
    assert back.connack is not None
    assert back.connack.present


@mqtt_5
def test_the_brokers_last_word_is_in_order(connect: Connect, topic: str) -> None:
    """It names no session expiry, and nothing comes after it."""
    client = connect()
    client.send(subscribe_bytes(1, [(topic, 0x80)]) + PINGREQ)

    last = client.end()

    if client.exact:
        assert last is not None
    assert last is None or (last.kind, last.get(Property.SESSION_EXPIRY)) == (Kind.DISCONNECT, None)


@mqtt_5
@pytest.mark.parametrize("limit", [60, 100])
def test_the_brokers_last_word_is_not_too_large(connect: Connect, limit: int) -> None:
    client = connect(properties=[(Property.MAXIMUM_PACKET_SIZE, limit)])

    client.send(publish_bytes("a/" * 100 + "#"))

    last = client.end()
    assert last is None or last.size <= limit


@mqtt_5
@left_open("mosquitto closes the socket at once")
def test_a_client_that_goes_on_writing_hears_the_reason(client: Client) -> None:
    client.send(packet_bytes(Kind.DISCONNECT, flags=1) + bytes(1 << 20))

    assert client.receive(Kind.DISCONNECT).reason == 0x81
    client.send(bytes(8 << 20))  # what its library had queued
    client.socket.shutdown(socket.SHUT_WR)
    assert client.socket.recv(1) == b""
