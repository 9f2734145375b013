"""The client without `async` speaks MQTT as the other does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.client import NoService
from penstock.client.blocking_client import BlockingFabric, connect
from penstock.core.errors import Unsupported
from tests.peers import MqttBroker


@pytest.fixture
def fabric(mqtt_broker: MqttBroker) -> Iterator[BlockingFabric]:
    with connect(mqtt_broker.mqtt_url) as fabric:
        yield fabric


def test_publish_subscribe(fabric: BlockingFabric, name: str) -> None:
    with fabric.subscribe(f"{name}/+", qos=2) as prices:
        fabric.publish(f"{name}/oil", {"usd": 61}, headers={"unit": "barrel"}, qos=2)
        message = prices.receive()
    assert (message.json(), message.headers) == ({"usd": 61}, {"unit": "barrel"})
    assert (message.qos, message.retained) == (2, False)


def test_many_posts_are_safe_when_the_block_ends(fabric: BlockingFabric, name: str) -> None:
    with fabric.subscribe(name) as numbers:
        with fabric.publisher(name) as publisher:
            for number in range(100):
                publisher.post(number)
        assert [numbers.receive().json() for _ in range(100)] == list(range(100))


def test_a_service_answers(fabric: BlockingFabric, name: str) -> None:
    with fabric.serve(name, lambda request: request.text.upper()):
        assert fabric.request(name, "loud").text == "LOUD"
    with pytest.raises(NoService):
        fabric.request(name)


def test_what_mqtt_cannot_do_says_so(fabric: BlockingFabric, name: str) -> None:
    with pytest.raises(Unsupported, match="amqp://"):
        fabric.replay(name)


def test_a_receive_may_end_by_a_timeout(fabric: BlockingFabric, name: str) -> None:
    with fabric.subscribe(name) as nothing, pytest.raises(TimeoutError):
        nothing.receive(timeout=0.05)
