"""The bridge's mapping of MQTT 5's properties, which is that of RabbitMQ from 3.13 on."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.mqtt.clients_amqp import Delivered, Listener
from tests.integration.mqtt.clients_paho import Arrival, Paho
from tests.peers import Penstock

EXCHANGE = "amq.topic"


@pytest.fixture
def channel(mqtt_penstock: Penstock) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(mqtt_penstock.url))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    connection.close()


@pytest.fixture
def mqtt(mqtt_penstock: Penstock, name: str) -> Iterator[Paho]:
    with Paho(mqtt_penstock.mqtt_port, f"{name}.mqtt") as client:
        yield client


@pytest.fixture
def word(name: str) -> str:
    return name.replace(".", "-")


def to_amqp(channel: BlockingChannel, mqtt: Paho, word: str, **properties: Any) -> Delivered:
    listener = Listener(channel, word)
    mqtt.publish(word, b"body", 1, **properties)
    return listener.next()


def to_mqtt(channel: BlockingChannel, mqtt: Paho, word: str, **properties: Any) -> Arrival:
    mqtt.subscribe(word, 1)
    channel.basic_publish(EXCHANGE, word, b"body", pika.BasicProperties(**properties))
    return mqtt.receive()


def headers_of(delivered: Delivered) -> dict[str, Any]:
    """The headers that are anybody's; one tells MQTT clients what AMQP has no words for."""
    headers: dict[str, Any] = delivered.properties.headers or {}
    return {name: value for name, value in headers.items() if name != "x-mqtt-properties"}


# From MQTT to AMQP.


def test_the_content_type_is_the_content_type(
    channel: BlockingChannel, mqtt: Paho, word: str
) -> None:
    delivered = to_amqp(channel, mqtt, word, ContentType="application/json")

    assert delivered.properties.content_type == "application/json"


def test_user_properties_are_headers(channel: BlockingChannel, mqtt: Paho, word: str) -> None:
    pairs = [("unit", "m"), ("site", "north"), ("empty", "")]
    delivered = to_amqp(channel, mqtt, word, UserProperty=pairs)

    assert headers_of(delivered) == dict(pairs)


def test_of_a_user_property_that_comes_twice_the_first_is_the_header(
    channel: BlockingChannel, mqtt: Paho, word: str
) -> None:
    delivered = to_amqp(channel, mqtt, word, UserProperty=[("a", "1"), ("b", "2"), ("a", "3")])

    assert headers_of(delivered) == {"a": "1", "b": "2"}


def test_a_user_property_with_a_name_too_long_for_amqp_is_left_out(
    channel: BlockingChannel, mqtt: Paho, word: str
) -> None:
    delivered = to_amqp(channel, mqtt, word, UserProperty=[("n" * 300, "x"), ("a", "1")])

    assert headers_of(delivered) == {"a": "1"}


def test_correlation_data_that_is_text_is_the_correlation_id(
    channel: BlockingChannel, mqtt: Paho, word: str
) -> None:
    delivered = to_amqp(channel, mqtt, word, CorrelationData=b"request-1")

    assert delivered.properties.correlation_id == "request-1"


@pytest.mark.parametrize("data", [b"\xff\xfe", b"x" * 256], ids=["no text", "too long"])
def test_other_correlation_data_is_a_header(
    channel: BlockingChannel, mqtt: Paho, word: str, data: bytes
) -> None:
    delivered = to_amqp(channel, mqtt, word, CorrelationData=data)

    assert delivered.properties.correlation_id is None
    header = headers_of(delivered)["x-correlation-id"]
    assert (header.encode() if isinstance(header, str) else header) == data


def test_the_response_topic_is_a_header_as_a_routing_key(
    channel: BlockingChannel, mqtt: Paho, word: str
) -> None:
    delivered = to_amqp(channel, mqtt, word, ResponseTopic="answers/to/7")

    assert headers_of(delivered) == {"x-reply-to-topic": "answers.to.7"}
    assert delivered.properties.reply_to is None


def test_the_expiry_is_the_expiration_in_milliseconds(
    channel: BlockingChannel, mqtt: Paho, word: str
) -> None:
    delivered = to_amqp(channel, mqtt, word, MessageExpiryInterval=30)

    assert delivered.properties.expiration == "30000"


def test_what_mqtt_published_expires_in_a_queue(
    channel: BlockingChannel, mqtt: Paho, word: str
) -> None:
    """The time to live is the queue's business like any other."""
    dead = Listener(channel, f"{word}.dead")
    channel.queue_declare(
        word,
        exclusive=True,
        arguments={
            "x-dead-letter-exchange": EXCHANGE,
            "x-dead-letter-routing-key": f"{word}.dead",
        },
    )
    channel.queue_bind(word, EXCHANGE, word)
    mqtt.publish(word, b"short", 1, MessageExpiryInterval=1)

    delivered = dead.next()

    assert delivered.body == b"short"
    assert delivered.properties.headers["x-death"][0]["reason"] == "expired"


# From AMQP to MQTT.


def test_the_content_type_arrives(channel: BlockingChannel, mqtt: Paho, word: str) -> None:
    arrival = to_mqtt(channel, mqtt, word, content_type="text/plain")

    assert arrival.properties == {"ContentType": "text/plain"}


def test_headers_are_user_properties(channel: BlockingChannel, mqtt: Paho, word: str) -> None:
    headers = {
        "text": "ü",
        "empty": "",
        "true": True,
        "small": -7,
        "large": 1 << 40,
        "void": None,
        "when": datetime(2026, 1, 2, tzinfo=UTC),
        "table": {"no": "text"},
        "array": ["nor", "this"],
    }
    arrival = to_mqtt(channel, mqtt, word, headers=headers)

    assert dict(arrival.properties["UserProperty"]) == {
        "text": "ü",
        "empty": "",
        "true": "true",
        "small": "-7",
        "large": "1099511627776",
        "void": "",
        "when": "1767312000",
    }


def test_a_header_that_is_no_text_is_left_out(
    channel: BlockingChannel, mqtt: Paho, word: str
) -> None:
    arrival = to_mqtt(channel, mqtt, word, headers={"nul": "a\0b", "fine": "x"})

    assert arrival.properties == {"UserProperty": [("fine", "x")]}


def test_the_correlation_id_is_correlation_data(
    channel: BlockingChannel, mqtt: Paho, word: str
) -> None:
    arrival = to_mqtt(channel, mqtt, word, correlation_id="request-1")

    assert arrival.properties == {"CorrelationData": b"request-1"}


def test_the_reply_topic_header_is_the_response_topic(
    channel: BlockingChannel, mqtt: Paho, word: str
) -> None:
    arrival = to_mqtt(channel, mqtt, word, headers={"x-reply-to-topic": "answers.to.7"})

    assert arrival.properties == {"ResponseTopic": "answers/to/7"}


@pytest.mark.parametrize("topic", ["", "a.#", "a.*.b"])
def test_a_reply_topic_that_is_none_is_left_out(
    channel: BlockingChannel, mqtt: Paho, word: str, topic: str
) -> None:
    arrival = to_mqtt(channel, mqtt, word, headers={"x-reply-to-topic": topic})

    assert "ResponseTopic" not in arrival.properties


def test_the_expiration_is_the_expiry_in_seconds(
    channel: BlockingChannel, mqtt: Paho, word: str
) -> None:
    arrival = to_mqtt(channel, mqtt, word, expiration="30000")

    assert arrival.properties["MessageExpiryInterval"] in (29, 30)


def test_what_has_no_counterpart_is_left_out(
    channel: BlockingChannel, mqtt: Paho, word: str
) -> None:
    arrival = to_mqtt(
        channel,
        mqtt,
        word,
        message_id="1",
        timestamp=1,
        type="report",
        app_id="test",
        user_id="guest",
        priority=3,
        content_encoding="gzip",
        reply_to="a.queue",
    )

    assert arrival.properties == {}


# There and back.


def test_an_amqp_program_answers_a_request_of_an_mqtt_client(
    channel: BlockingChannel, mqtt: Paho, word: str
) -> None:
    listener = Listener(channel, f"{word}.requests")
    mqtt.subscribe(f"{word}/answers/7", 1)
    mqtt.publish(
        f"{word}/requests",
        b"how deep?",
        1,
        ResponseTopic=f"{word}/answers/7",
        CorrelationData=b"1",
    )
    asked = listener.next().properties
    channel.basic_publish(
        EXCHANGE,
        asked.headers["x-reply-to-topic"],
        b"3 m",
        pika.BasicProperties(correlation_id=asked.correlation_id),
    )

    answer = mqtt.receive()

    assert (answer.payload, answer.properties["CorrelationData"]) == (b"3 m", b"1")


def test_a_message_passed_on_by_an_amqp_program_is_what_that_program_says(
    channel: BlockingChannel, mqtt: Paho, word: str
) -> None:
    """A relay changes a header; MQTT clients get the header as it is now."""
    listener = Listener(channel, f"{word}.in")
    mqtt.subscribe(f"{word}/out", 1)
    mqtt.publish(f"{word}/in", b"x", 1, UserProperty=[("unit", "cm"), ("site", "north")])
    properties = listener.next().properties
    properties.headers["unit"] = "m"
    channel.basic_publish(EXCHANGE, f"{word}.out", b"x", properties)

    assert dict(mqtt.receive().properties["UserProperty"])["unit"] == "m"
