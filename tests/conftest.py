"""The servers that tests talk to, started when the first test asks and stopped at the end.

`broker` runs a test against Penstock and against RabbitMQ: what a test says of a broker has to be
true of both. A test of something only Penstock has asks for `penstock`. `mqtt_broker` does the
same for MQTT, with mosquitto as the other.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.peers import Broker, Mosquitto, MqttBroker, PeerMissing, Penstock, RabbitMQ

# How long an example takes is the machine's affair, and says nothing of the code.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")

#: Tests that start Spark or a database many times over: they run with `make test-all`.
HEAVY = (
    "tests/store/",
    "tests/pipeline/",
    "tests/hives/gold/",
    "tests/hives/forecast/",
    "tests/hives/steps/",
    "tests/integration/mqtt/test_crash_mqtt.py",
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.nodeid.startswith(HEAVY):
            item.add_marker(pytest.mark.slow)


NewPenstock = Callable[..., Penstock]
NewMosquitto = Callable[..., Mosquitto]


def missing(peer: PeerMissing) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(str(peer))
    pytest.skip(str(peer))


@pytest.fixture(scope="session")
def penstock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Penstock]:
    server = Penstock(tmp_path_factory.mktemp("penstock"), mqtt=True)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    try:
        server = RabbitMQ(tmp_path_factory.mktemp("rabbitmq"))
    except PeerMissing as peer:
        missing(peer)
        raise
    server.start()
    yield server
    server.stop()


@pytest.fixture(
    scope="session",
    params=["penstock", pytest.param("rabbitmq", marks=pytest.mark.peer)],
)
def broker(request: pytest.FixtureRequest) -> Broker:
    server: Broker = request.getfixturevalue(request.param)
    return server


@pytest.fixture(scope="session")
def mqtt_penstock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Penstock]:
    """A Penstock that listens for MQTT and WebSockets beside AMQP."""
    server = Penstock(tmp_path_factory.mktemp("penstock"), mqtt=True)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def mosquitto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    try:
        server = Mosquitto(tmp_path_factory.mktemp("mosquitto"), websocket=True)
    except PeerMissing as peer:
        missing(peer)
        raise
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def mqtt_rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMQ]:
    """A RabbitMQ with its MQTT plugin."""
    try:
        server = RabbitMQ(tmp_path_factory.mktemp("rabbitmq"), plugins=("rabbitmq_mqtt",))
    except PeerMissing as peer:
        missing(peer)
        raise
    server.start()
    yield server
    server.stop()


@pytest.fixture(
    scope="session",
    params=[
        pytest.param("mqtt_penstock", id="penstock"),
        pytest.param("mosquitto", marks=pytest.mark.peer),
    ],
)
def mqtt_broker(request: pytest.FixtureRequest) -> MqttBroker:
    server: MqttBroker = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def broker_url(broker: Broker) -> str:
    return broker.url


@pytest.fixture
def new_penstock(tmp_path: Path) -> Iterator[NewPenstock]:
    """Start a Penstock of the test's own, with the arguments and environment it wants."""
    started: list[Penstock] = []

    def start(*arguments: str, **options: Any) -> Penstock:
        server = Penstock(tmp_path / f"penstock-{len(started)}", *arguments, **options)
        started.append(server)
        server.start()
        return server

    yield start
    for server in started:
        server.kill()


@pytest.fixture
def new_mosquitto(tmp_path: Path) -> Iterator[NewMosquitto]:
    """Start a mosquitto of the test's own, with the settings it wants."""
    started: list[Mosquitto] = []

    def start(*settings: str, **options: Any) -> Mosquitto:
        try:
            server = Mosquitto(tmp_path / f"mosquitto-{len(started)}", *settings, **options)
        except PeerMissing as peer:
            missing(peer)
            raise
        started.append(server)
        server.start()
        return server

    yield start
    for server in started:
        server.kill()


@pytest.fixture
def name() -> str:
    """A name nobody else uses: one broker serves all tests."""
    return f"test.{uuid.uuid4().hex}"
