"""MQTT in WebSocket frames (MQTT 5.0 and 3.1.1, section 6)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

from tests.integration.mqtt.building import (
    PINGREQ,
    connect_bytes,
    publish_bytes,
    subscribe_bytes,
)
from tests.integration.mqtt.dialogue import GUEST, PATIENCE
from tests.integration.mqtt.packets import MQTT_5, Kind
from tests.integration.mqtt.statements import mosquitto_departs
from tests.peers import MqttBroker

MQTT = Subprotocol("mqtt")


def frames(broker: Any) -> ClientConnection:
    return connect(
        f"ws://127.0.0.1:{broker.ws_port}/ws",
        subprotocols=[MQTT],
        compression=None,
        open_timeout=PATIENCE,
    )


@pytest.fixture
def web(mqtt_broker: MqttBroker) -> Iterator[ClientConnection]:
    connection = frames(mqtt_broker)
    yield connection
    connection.close()


def receive(web: ClientConnection, size: int) -> bytes:
    """So many bytes at least, from as many frames as it takes."""
    data = b""
    while len(data) < size:
        frame = web.recv(PATIENCE)
        assert isinstance(frame, bytes), "a text frame"
        data += frame
    return data


def test_the_subprotocol_is_mqtt(web: ClientConnection) -> None:
    assert web.subprotocol == "mqtt"


def test_packets_come_in_binary_frames(web: ClientConnection, version: int) -> None:
    web.send(connect_bytes("", version=version, **GUEST))

    assert receive(web, 4)[0] >> 4 == Kind.CONNACK


def test_a_frame_may_hold_many_packets(web: ClientConnection, version: int, topic: str) -> None:
    web.send(
        connect_bytes("", version=version, **GUEST)
        + subscribe_bytes(1, [(topic, 0)], version=version)
        + publish_bytes(topic, b"payload", version=version)
        + PINGREQ
    )

    data = b""
    while not data.endswith(b"\xd0\x00"):
        data += receive(web, 1)
    assert b"payload" in data


@pytest.mark.parametrize("size", [1, 3, 17])
def test_a_packet_may_come_in_many_frames(web: ClientConnection, version: int, size: int) -> None:
    data = connect_bytes("", version=version, **GUEST) + PINGREQ

    for start in range(0, len(data), size):
        web.send(data[start : start + size])

    received = b""
    while not received.endswith(b"\xd0\x00"):
        received += receive(web, 1)


@mosquitto_departs("reads text as if it were binary")
def test_a_text_frame_ends_the_connection(web: ClientConnection, version: int, topic: str) -> None:
    """Even one whose bytes are a packet."""
    web.send(connect_bytes("", version=version, **GUEST))
    receive(web, 4)

    web.send(publish_bytes(topic, b"text", version=version).decode())

    with pytest.raises(ConnectionClosed):
        receive(web, 1_000_000)


def test_a_large_message_passes(web: ClientConnection, version: int, topic: str) -> None:
    payload = bytes(range(256)) * 100
    web.send(
        connect_bytes("", version=version, **GUEST)
        + subscribe_bytes(1, [(topic, 0)], version=version)
    )

    web.send(publish_bytes(topic, payload, version=version))

    assert payload in receive(web, len(payload) + len(topic) + (10 if version == MQTT_5 else 9))
