"""The fixture, used as a test suite would use it."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import paho.mqtt.client as paho
import pika
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from pytest_penstock import BrokerFixture

PLAIN = pika.BasicProperties(content_type="text/plain", headers={"colour": "red"})


def connect(broker: BrokerFixture) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(broker.url))


def test_a_message_goes_through_a_queue_and_is_recorded(penstock_broker: BrokerFixture) -> None:
    with connect(penstock_broker) as connection:
        channel = connection.channel()
        channel.queue_declare("letters")
        channel.basic_publish("", "letters", b"hello", PLAIN)
        [message] = penstock_broker.wait_for_published()
        _, _, body = next(iter(channel.consume("letters", inactivity_timeout=10)))

    assert body == message.body == b"hello"
    assert (message.exchange, message.routing_key) == ("", "letters")
    assert message.properties.headers == {"colour": "red"}


def test_each_test_has_an_empty_virtual_host(penstock_broker: BrokerFixture) -> None:
    assert penstock_broker.published == []
    with connect(penstock_broker) as connection:
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="no queue 'letters'"):
            connection.channel().queue_declare("letters", passive=True)


def test_messages_to_declared_exchanges_and_large_ones_are_recorded(
    penstock_broker: BrokerFixture,
) -> None:
    large = bytes(range(256)) * 4096
    with connect(penstock_broker) as connection:
        channel = connection.channel()
        channel.exchange_declare("news", "fanout")
        channel.basic_publish("news", "any", large)
        [message] = penstock_broker.wait_for_published()

    assert message.exchange == "news"
    assert message.body == large


def test_mqtt_and_amqp_share_the_virtual_host(penstock_broker: BrokerFixture) -> None:
    parts = urlsplit(penstock_broker.mqtt_url)
    assert parts.hostname is not None
    assert parts.port is not None
    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.username_pw_set(f"{penstock_broker.vhost}:guest", parts.password)
    client.connect(parts.hostname, parts.port)
    client.loop_start()
    client.publish("sensors/1/report", b"42", qos=1).wait_for_publish(10)
    client.disconnect()
    client.loop_stop()

    [message] = penstock_broker.wait_for_published()
    assert (message.exchange, message.routing_key) == ("amq.topic", "sensors.1.report")
    assert message.body == b"42"


def test_the_management_api_answers(penstock_broker: BrokerFixture) -> None:
    parts = urlsplit(penstock_broker.management_url)
    request = Request(f"http://{parts.hostname}:{parts.port}/api/vhosts")
    request.add_header("Authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=")
    with urlopen(request) as answer:
        names = [vhost["name"] for vhost in json.load(answer)]
    assert penstock_broker.vhost in names


def test_it_works_in_a_test_suite_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import pika

        def test_publish(penstock_broker):
            with pika.BlockingConnection(pika.URLParameters(penstock_broker.url)) as connection:
                connection.channel().basic_publish("amq.topic", "a.b", b"x")
            assert penstock_broker.wait_for_published()[0].routing_key == "a.b"
        """
    )
    pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)


def test_data_is_in_the_tests_directory(
    penstock_broker: BrokerFixture, tmp_path_factory: pytest.TempPathFactory
) -> None:
    directories = [path.name for path in Path(tmp_path_factory.getbasetemp()).iterdir()]
    assert any(name.startswith("penstock-broker") for name in directories)
