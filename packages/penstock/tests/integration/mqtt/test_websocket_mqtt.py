"""MQTT over WebSocket, by paho and by a bare WebSocket client."""

from __future__ import annotations

from typing import Protocol

import pytest
from paho.mqtt.enums import MQTTProtocolVersion
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from tests.integration.mqtt.building import PINGREQ, connect_bytes, publish_bytes
from tests.integration.mqtt.clients_paho import MQTT_3, MQTT_5, Paho, Will
from tests.peers import MqttBroker, Penstock

PATIENCE = 60
PINGRESP = b"\xd0\x00"
UNSUPPORTED_DATA = 1003
NOT_AUTHORIZED = 0x87


class WebBroker(MqttBroker, Protocol):
    ws_port: int


@pytest.fixture(
    params=["mqtt_penstock", pytest.param("mosquitto", marks=pytest.mark.peer)],
    ids=["penstock", "mosquitto"],
)
def broker(request: pytest.FixtureRequest) -> WebBroker:
    server: WebBroker = request.getfixturevalue(request.param)
    return server


@pytest.fixture(params=[MQTT_3, MQTT_5], ids=["3.1.1", "5.0"])
def version(request: pytest.FixtureRequest) -> MQTTProtocolVersion:
    chosen: MQTTProtocolVersion = request.param
    return chosen


def over_websocket(
    broker: WebBroker, client_id: str, version: MQTTProtocolVersion, will: Will | None = None
) -> Paho:
    client = Paho(broker.ws_port, client_id, version, transport="websockets", will=will)
    client.client.ws_set_options("/ws")
    return client


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_cross_between_websocket_and_tcp(
    broker: WebBroker, name: str, version: MQTTProtocolVersion, qos: int
) -> None:
    with (
        over_websocket(broker, f"{name}.web", version) as web,
        Paho(broker.mqtt_port, f"{name}.tcp", version) as tcp,
    ):
        for client in (web, tcp):
            client.subscribe(f"{name}/#", qos)
        web.publish(f"{name}/web", b"from the web", qos)
        tcp.publish(f"{name}/tcp", b"from elsewhere", qos)

        for client in (web, tcp):
            arrived = {client.receive().payload for _ in range(2)}
            assert arrived == {b"from the web", b"from elsewhere"}


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_many_messages_arrive_in_order(broker: WebBroker, name: str, qos: int) -> None:
    sent = [b"%d" % number for number in range(300)]
    with over_websocket(broker, name, MQTT_5) as client:
        client.subscribe(name, qos)
        for payload in sent:
            client.post(name, payload, qos)

        assert client.receive_payloads(len(sent)) == sent


def test_large_messages_arrive(mqtt_penstock: Penstock, name: str) -> None:
    """mosquitto 2.0.11 stumbles over them."""
    sent = [b"x" * size for size in (126, 65_536, 70_000, 900_000, 3_000_000)]
    with over_websocket(mqtt_penstock, name, MQTT_5) as client:
        client.subscribe(name, 1)
        for payload in sent:
            client.post(name, payload, 1)

        assert client.receive_payloads(len(sent)) == sent


def test_a_websocket_that_breaks_leaves_its_will(
    broker: WebBroker, name: str, version: MQTTProtocolVersion
) -> None:
    with Paho(broker.mqtt_port, f"{name}.watch", version) as watcher:
        watcher.subscribe(name, 1)
        client = over_websocket(broker, f"{name}.web", version, Will(name, b"gone", 1))
        client.open()
        client.client.socket().close()  # type: ignore[union-attr]

        assert watcher.receive().payload == b"gone"
    client.client.loop_stop()


@pytest.mark.parametrize("path", ["/ws", "/mqtt", "/"])
def test_the_paths_that_clients_know_lead_to_mqtt(
    mqtt_penstock: Penstock, name: str, path: str
) -> None:
    """RabbitMQ's, paho's and mosquitto's."""
    client = Paho(mqtt_penstock.ws_port, name, transport="websockets")
    client.client.ws_set_options(path)
    with client:
        assert client.subscribe(name, 1) == [1]


def test_packets_need_not_keep_to_the_borders_of_frames(broker: WebBroker, name: str) -> None:
    packets = (
        connect_bytes(name, user="guest", password=b"guest")
        + publish_bytes(name, b"x" * 1000)
        + PINGREQ * 3
    )
    with connect(
        f"ws://127.0.0.1:{broker.ws_port}/ws",
        subprotocols=[Subprotocol("mqtt")],
        open_timeout=PATIENCE,
    ) as websocket:
        for start in range(0, len(packets), 7):
            websocket.send(packets[start : start + 7])
        answers = b""
        while answers.count(PINGRESP) < 3:
            answer = websocket.recv(PATIENCE)
            assert isinstance(answer, bytes)
            answers += answer

    assert answers[0] == 0x20, "a CONNACK comes first"


def test_text_is_not_mqtt(mqtt_penstock: Penstock) -> None:
    """mosquitto takes it for bytes."""
    with connect(
        f"ws://127.0.0.1:{mqtt_penstock.ws_port}/ws", subprotocols=[Subprotocol("mqtt")]
    ) as websocket:
        websocket.send("text")
        with pytest.raises(ConnectionClosed) as closed:
            websocket.recv(PATIENCE)

    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == UNSUPPORTED_DATA


def test_over_websocket_a_user_name_is_needed(mqtt_penstock: Penstock, name: str) -> None:
    """A page of any program in a browser could come in otherwise."""
    url = f"ws://127.0.0.1:{mqtt_penstock.ws_port}/ws"
    with connect(url, subprotocols=[Subprotocol("mqtt")], open_timeout=PATIENCE) as websocket:
        websocket.send(connect_bytes(name))
        answer = websocket.recv(PATIENCE)

    assert isinstance(answer, bytes)
    assert (answer[0], answer[3]) == (0x20, NOT_AUTHORIZED)


@pytest.mark.parametrize("origin", ["https://elsewhere.example", "http://127.0.0.1:3000"])
def test_pages_of_other_sites_do_not_connect(mqtt_penstock: Penstock, origin: str) -> None:
    url = f"ws://127.0.0.1:{mqtt_penstock.ws_port}/ws"
    with pytest.raises(InvalidStatus) as refused:
        connect(url, subprotocols=[Subprotocol("mqtt")], origin=Origin(origin))

    assert refused.value.response.status_code == 403
