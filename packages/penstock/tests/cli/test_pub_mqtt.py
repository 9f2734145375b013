"""`penstock pub` to a broker that speaks MQTT."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.client.blocking_client import BlockingFabric, connect
from tests.cli.command import environment, run
from tests.peers import MqttBroker, free_port


@pytest.fixture
def fabric(mqtt_broker: MqttBroker) -> Iterator[BlockingFabric]:
    with connect(mqtt_broker.mqtt_url) as fabric:
        yield fabric


def test_the_broker_may_come_first(
    fabric: BlockingFabric, mqtt_broker: MqttBroker, name: str
) -> None:
    with fabric.subscribe(f"{name}/#") as messages:
        sent = run("pub", mqtt_broker.mqtt_url, f"{name}/a", "one", "two")
        assert (sent.returncode, sent.stdout, sent.stderr) == (0, "", "")
        assert [messages.receive(10).text for _ in range(2)] == ["one", "two"]


def test_the_broker_may_be_a_setting(
    fabric: BlockingFabric, mqtt_broker: MqttBroker, name: str
) -> None:
    with fabric.subscribe(name) as messages:
        run("pub", name, "one", env=environment(PENSTOCK_URL=mqtt_broker.mqtt_url))
        assert messages.receive(10).text == "one"


def test_what_is_said_about_a_message(
    fabric: BlockingFabric, mqtt_broker: MqttBroker, name: str
) -> None:
    said = ("--property", "n=007", "--property", "tag=a", "-H", "tag=b", "--qos", "2")
    with fabric.subscribe(name, qos=2) as messages:
        run("pub", mqtt_broker.mqtt_url, name, "x", "--expiry", "60", *said)
        message = messages.receive(10)
    assert message.headers == {"n": "007", "tag": ["a", "b"]}
    assert message.qos == 2


def test_retain_keeps_the_last_for_those_who_come(
    fabric: BlockingFabric, mqtt_broker: MqttBroker, name: str
) -> None:
    run("pub", mqtt_broker.mqtt_url, name, "21.5", "--retain")
    with fabric.subscribe(name) as messages:
        assert messages.receive(10).retained
    fabric.publish(name, b"", retain=True)


@pytest.mark.parametrize(
    ("form", "text", "body", "content_type"),
    [
        ("json", '{"id": 7}', b'{"id":7}', "application/json"),
        ("text", '{"id": 7}', b'{"id": 7}', "text/plain; charset=utf-8"),
        ("hex", "00ff", b"\x00\xff", None),
        ("auto", '{"id": 7}', b'{"id":7}', "application/json"),
        ("auto", "{id", b"{id", "text/plain; charset=utf-8"),
    ],
)
def test_formats(
    fabric: BlockingFabric,
    mqtt_broker: MqttBroker,
    name: str,
    form: str,
    text: str,
    body: bytes,
    content_type: str | None,
) -> None:
    with fabric.subscribe(name) as messages:
        run("pub", mqtt_broker.mqtt_url, name, text, "--format", form)
        message = messages.receive(10)
    assert (message.body, message.content_type) == (body, content_type)


def test_count_and_rate(fabric: BlockingFabric, mqtt_broker: MqttBroker, name: str) -> None:
    with fabric.subscribe(name) as messages:
        run("pub", mqtt_broker.mqtt_url, name, "x", "y", "--count", "3", "--rate", "1000")
        assert "".join(messages.receive(10).text for _ in range(6)) == "xyxyxy"


def test_a_request_prints_the_answer(
    fabric: BlockingFabric, mqtt_broker: MqttBroker, name: str
) -> None:
    with fabric.serve(name, lambda request: request.text.upper()):
        asked = run("pub", mqtt_broker.mqtt_url, "--request", name, "hello")
    assert (asked.returncode, asked.stdout) == (0, "HELLO\n")


def test_nobody_serving_is_exit_status_3(mqtt_broker: MqttBroker, name: str) -> None:
    asked = run("pub", mqtt_broker.mqtt_url, "--request", name, "hello")
    assert (asked.returncode, asked.stdout) == (3, "")
    assert f"no program serves '{name}'" in asked.stderr


def test_no_broker_is_exit_status_6_and_says_what_to_try() -> None:
    port = free_port()
    sent = run("pub", f"mqtt://127.0.0.1:{port}", "a", "b")
    assert sent.returncode == 6
    assert f"no broker at 127.0.0.1:{port}: connection refused" in sent.stderr
    assert "penstock up" in sent.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("pub", "mqtt://localhost", "a", "b", "--push"), "$share/GROUP/TOPIC"),
        (("pub", "mqtt://localhost", "a", "b", "--stream"), "MQTT has no streams"),
        (("pub", "mqtt://localhost", "a/#", "b"), "is not a valid topic"),
        (("pub", "mqtt://localhost"), "the subject or topic to send to is missing"),
        (("pub", "mqtt://localhost?keepalive=x", "a", "b"), "keepalive should be"),
        (("pub", "a", "b", "--retain"), "AMQP retains no messages"),
        (("pub", "a", "b", "--qos", "1"), "over AMQP is confirmed"),
        (("pub", "a", "b", "--qos", "3"), "--qos"),
        (("pub", "a", "b", "--format", "text", "--hex"), "choose one of"),
        (("pub", "mqtt://localhost", "a", "{", "--json"), "is not json"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(
    arguments: tuple[str, ...], words: str
) -> None:
    said = run(*arguments)
    assert said.returncode == 2
    assert words in said.stderr
    assert "Traceback" not in said.stderr
