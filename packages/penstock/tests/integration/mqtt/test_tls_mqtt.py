"""MQTT over TLS, on its own and under WebSocket."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest

from tests.client.test_tls import write_certificate
from tests.integration.mqtt.clients_paho import Paho, Will
from tests.peers import Penstock, free_port

Transport = Literal["tcp", "websockets"]
Connect = Callable[..., Paho]


@pytest.fixture(scope="module")
def ports() -> dict[Transport, int]:
    return {"tcp": free_port(), "websockets": free_port()}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return write_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory,
    certificate: tuple[Path, Path],
    ports: dict[Transport, int],
) -> Iterator[Penstock]:
    server = Penstock(
        tmp_path_factory.mktemp("penstock"),
        *("--listen", f"mqtts://127.0.0.1:{ports['tcp']}"),
        *("--listen", f"wss://127.0.0.1:{ports['websockets']}"),
        *("--set", f"broker.tls.certificate={certificate[0]}"),
        *("--set", f"broker.tls.key={certificate[1]}"),
        mqtt=True,
    )
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["tcp", "websockets"], ids=["mqtts", "wss"])
def transport(request: pytest.FixtureRequest) -> Transport:
    chosen: Transport = request.param
    return chosen


@pytest.fixture
def secure(
    broker: Penstock,
    certificate: tuple[Path, Path],
    ports: dict[Transport, int],
    transport: Transport,
) -> Connect:
    def make(client_id: str, will: Will | None = None) -> Paho:
        client = Paho(ports[transport], client_id, transport=transport, will=will)
        client.client.tls_set(str(certificate[0]))
        return client

    return make


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_cross_between_those_who_are_secured_and_those_who_are_not(
    broker: Penstock, secure: Connect, name: str, qos: int
) -> None:
    sent = [b"%d" % number for number in range(100)] + [b"x" * 900_000]
    with secure(f"{name}.sub") as reader, Paho(broker.mqtt_port, f"{name}.pub") as writer:
        reader.subscribe(name, qos)
        for payload in sent:
            writer.post(name, payload, qos)

        assert reader.receive_payloads(len(sent)) == sent


def test_a_large_message_is_published(secure: Connect, name: str) -> None:
    with secure(name) as client:
        client.subscribe(name, 1)
        client.publish(name, b"x" * 3_000_000, 1)

        assert len(client.receive().payload) == 3_000_000


def test_a_secured_connection_that_breaks_leaves_its_will(
    broker: Penstock, secure: Connect, name: str
) -> None:
    with Paho(broker.mqtt_port, f"{name}.watch") as watcher:
        watcher.subscribe(name, 1)
        client = secure(f"{name}.client", Will(name, b"gone", 1))
        client.open()
        client.client.socket().close()  # type: ignore[union-attr]

        assert watcher.receive().payload == b"gone"
    client.client.loop_stop()


def test_a_certificate_nobody_vouches_for_is_not_accepted(
    broker: Penstock, ports: dict[Transport, int], name: str
) -> None:
    client = Paho(ports["tcp"], name)
    client.client.tls_set()

    with pytest.raises(ssl.SSLCertVerificationError):
        client.open()


def test_plain_mqtt_on_a_secured_port_is_turned_away(
    broker: Penstock, ports: dict[Transport, int], secure: Connect, name: str
) -> None:
    plain = Paho(ports["tcp"], f"{name}.plain")
    plain.client.connect("127.0.0.1", ports["tcp"])
    plain.client.loop_start()
    plain.ended()
    plain.client.loop_stop()

    with secure(f"{name}.secure") as client:
        assert client.subscribe(name, 1) == [1]
