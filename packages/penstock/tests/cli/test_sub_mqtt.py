"""`penstock sub` at a broker that speaks MQTT."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.client import NoService
from penstock.client.blocking_client import BlockingFabric, connect
from tests.cli.command import PENSTOCK, environment, run
from tests.fixtures import NewMosquitto
from tests.peers import MqttBroker


@pytest.fixture
def fabric(mqtt_broker: MqttBroker) -> Iterator[BlockingFabric]:
    with connect(mqtt_broker.mqtt_url) as fabric:
        yield fabric


@pytest.fixture
def kept(fabric: BlockingFabric, name: str) -> Iterator[str]:
    """Topics with retained messages, so that whoever subscribes sees something at once."""
    bodies = {"a": {"id": 7}, "b": "hello", "c": b"\x00\xff"}
    for topic, body in bodies.items():
        fabric.publish(f"{name}/{topic}", body, headers={"unit": "K"}, retain=True)
    yield name
    for topic in bodies:
        fabric.publish(f"{name}/{topic}", b"", retain=True)


def test_a_line_shows_topic_quality_retain_and_properties(
    mqtt_broker: MqttBroker, kept: str
) -> None:
    seen = run("sub", mqtt_broker.mqtt_url, f"{kept}/+", "--count", "3")
    assert (seen.returncode, seen.stderr) == (0, "")
    assert sorted(seen.stdout.splitlines()) == [
        f'{kept}/a q1 retained unit=K {{"id":7}}',
        f"{kept}/b q1 retained unit=K hello",
        f"{kept}/c q1 retained unit=K 00ff",
    ]


def test_all_about_a_message_is_one_json_object(mqtt_broker: MqttBroker, kept: str) -> None:
    seen = run("sub", mqtt_broker.mqtt_url, f"{kept}/a", "-n", "1", "--format", "json")
    assert json.loads(seen.stdout) == {
        "address": f"{kept}/a",
        "content_type": "application/json",
        "headers": {"unit": "K"},
        "qos": 1,
        "retained": True,
        "body": {"id": 7},
    }


def test_bodies_alone(mqtt_broker: MqttBroker, kept: str) -> None:
    for form, expected in (("text", "hello\n"), ("hex", "68656c6c6f\n")):
        seen = run("sub", mqtt_broker.mqtt_url, f"{kept}/b", "-n", "1", "--format", form)
        assert seen.stdout == expected


def test_quality_is_at_most_what_one_asks_for(mqtt_broker: MqttBroker, kept: str) -> None:
    seen = run("sub", mqtt_broker.mqtt_url, f"{kept}/b", "-n", "1", "--qos", "0")
    assert seen.stdout == f"{kept}/b q0 retained unit=K hello\n"


def test_json_of_those_who_name_no_type_is_read_as_well(
    fabric: BlockingFabric, mqtt_broker: MqttBroker, name: str
) -> None:
    fabric.publish(name, b'{"id": 7}', retain=True)
    seen = run("sub", f"{mqtt_broker.mqtt_url}?version=3.1.1", name, "-n", "1", "--json")
    assert json.loads(seen.stdout)["body"] == {"id": 7}
    fabric.publish(name, b"", retain=True)


def test_a_name_keeps_messages_while_one_is_away(
    fabric: BlockingFabric, mqtt_broker: MqttBroker, name: str
) -> None:
    with fabric.subscribe(name, name=name):
        pass
    fabric.publish(name, "kept")
    seen = run("sub", mqtt_broker.mqtt_url, name, "--name", name, "-n", "1", "--text")
    assert seen.stdout == "kept\n"


def test_sub_serves(fabric: BlockingFabric, mqtt_broker: MqttBroker, name: str) -> None:
    with watching(mqtt_broker.mqtt_url, "--reply", name, "-n", "1", "--text") as sub:
        while True:
            try:
                answer = fabric.request(name, "hello")
            except NoService:
                continue  # not there yet
            break
        assert answer.text == "hello"
        assert sub.communicate(timeout=30)[0] == "hello\n"


def test_ctrl_c_ends_a_subscription_well(
    fabric: BlockingFabric, mqtt_broker: MqttBroker, name: str
) -> None:
    with watching(mqtt_broker.mqtt_url, f"{name}/#", "--text") as sub:
        output = sub.stdout
        assert output is not None
        seen = threading.Event()

        def watch() -> None:
            output.readline()
            seen.set()

        threading.Thread(target=watch, daemon=True).start()
        while not seen.wait(0.05):  # a copy goes only to those subscribed already
            fabric.publish(f"{name}/x", "hello")
        sub.send_signal(signal.SIGINT)
        _, errors = sub.communicate(timeout=30)
        assert (sub.returncode, errors) == (0, "")


@pytest.mark.peer
def test_who_is_not_let_in_is_told_what_to_do(new_mosquitto: NewMosquitto, tmp_path: Path) -> None:
    program = shutil.which("mosquitto_passwd")
    assert program is not None
    subprocess.run([program, "-c", "-b", tmp_path / "passwords", "ann", "secret"], check=True)
    (tmp_path / "rules").write_text("user ann\ntopic readwrite mine/#\n")
    server = new_mosquitto(
        *("allow_anonymous false", f"password_file {tmp_path / 'passwords'}"),
        f"acl_file {tmp_path / 'rules'}",
    )
    refused = run("sub", f"mqtt://ann:wrong@127.0.0.1:{server.port}", "mine/#")
    assert refused.returncode == 4
    assert "authentication failed for 'ann'" in refused.stderr
    forbidden = run("pub", f"mqtt://ann:secret@127.0.0.1:{server.port}", "yours", "x")
    assert forbidden.returncode == 4
    assert "'yours': not authorised; the user needs permission" in forbidden.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sub", "mqtt://localhost", "work", "--pull"), "$share/GROUP/TOPIC"),
        (("sub", "mqtt://localhost", "sensors", "--stream"), "use amqp://"),
        (("sub", "mqtt://localhost", "sensors", "--start", "1h"), "has no replay"),
        (("sub", "mqtt://localhost", "a#"), "is not a valid topic filter"),
        (("sub", "mqtt://localhost", "$share/group"), "must be followed by '/' and a filter"),
        (("sub", "mqtt://localhost"), "the pattern to subscribe to is missing"),
        (("sub", "demo.#", "--qos", "1"), "quality of service is MQTT's"),
        (("sub", "gopher://localhost", "a"), "the client supports"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_sentence(
    arguments: tuple[str, ...], words: str
) -> None:
    said = run(*arguments)
    assert said.returncode == 2
    assert words in said.stderr
    assert "Traceback" not in said.stderr


def watching(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*PENSTOCK, "sub", *arguments],
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
