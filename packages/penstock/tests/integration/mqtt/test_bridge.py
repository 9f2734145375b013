"""The bridge between MQTT and AMQP, as RabbitMQ has it: shown on Penstock and on RabbitMQ's plugin.

A topic `a/b/c` is the routing key `a.b.c` on `amq.topic`; what one side publishes reaches the
other. RabbitMQ 3.10 speaks MQTT 3.1.1 only: what MQTT 5 adds is in `test_bridge_properties.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.mqtt.clients_amqp import AmqpMqttBroker, Listener
from tests.integration.mqtt.clients_paho import MQTT_3, Paho, Will

EXCHANGE = "amq.topic"


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("mqtt_penstock", id="penstock"),
        pytest.param("plugged_rabbitmq", id="rabbitmq", marks=pytest.mark.peer),
    ],
)
def bridge(request: pytest.FixtureRequest) -> AmqpMqttBroker:
    server: AmqpMqttBroker = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def channel(bridge: AmqpMqttBroker) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(bridge.url))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    connection.close()


@pytest.fixture
def mqtt(bridge: AmqpMqttBroker, name: str) -> Iterator[Paho]:
    with Paho(bridge.mqtt_port, f"{name}.mqtt", MQTT_3) as client:
        yield client


@pytest.fixture
def word(name: str) -> str:
    """A single word of a key: the name of the test, without its dot."""
    return name.replace(".", "-")


@pytest.mark.parametrize("pattern", ["{}.*.report", "{}.#", "*.7.report", "{}.7.report", "#"])
def test_a_publish_reaches_a_queue_bound_to_the_topic_exchange(
    channel: BlockingChannel, mqtt: Paho, word: str, pattern: str
) -> None:
    listener = Listener(channel, pattern.format(word))
    mqtt.publish(f"{word}/7/report", b"3.5", 1)

    delivery = listener.next()

    assert (delivery.exchange, delivery.key) == (EXCHANGE, f"{word}.7.report")
    assert delivery.body == b"3.5"
    assert not delivery.redelivered


def test_a_publish_does_not_reach_a_queue_bound_by_another_key(
    channel: BlockingChannel, mqtt: Paho, word: str
) -> None:
    listener = Listener(channel, f"{word}.*.event")
    mqtt.publish(f"{word}/7/report", b"not this", 1)
    mqtt.publish(f"{word}/7/event", b"this", 1)

    assert listener.next().body == b"this"


def test_a_publish_reaches_a_stream(
    bridge: AmqpMqttBroker, channel: BlockingChannel, mqtt: Paho, word: str
) -> None:
    """The stream takes part in routing like a queue, and replays what MQTT clients published."""
    channel.queue_declare(word, durable=True, arguments={"x-queue-type": "stream"})
    channel.queue_bind(word, EXCHANGE, f"{word}.#")
    for number in range(10):
        mqtt.publish(f"{word}/{number}/report", b"%d" % number, 1)

    channel.basic_qos(prefetch_count=100)
    replayed = []
    for method, _, body in channel.consume(word, arguments={"x-stream-offset": "first"}):
        assert method is not None
        replayed.append((method.routing_key, body))
        if len(replayed) == 10:
            break
    channel.cancel()
    channel.queue_delete(word)

    assert replayed == [(f"{word}.{number}.report", b"%d" % number) for number in range(10)]


@pytest.mark.parametrize(("qos", "mode"), [(0, 1), (1, 2), (2, 2)])
def test_quality_of_service_becomes_persistence(
    channel: BlockingChannel, mqtt: Paho, word: str, qos: int, mode: int
) -> None:
    listener = Listener(channel, f"{word}.#")
    mqtt.publish(f"{word}/a", b"", qos)

    assert listener.next().properties.delivery_mode == mode


def test_a_publish_of_3_1_1_has_no_other_properties(
    bridge: AmqpMqttBroker, channel: BlockingChannel, mqtt: Paho, word: str
) -> None:
    listener = Listener(channel, f"{word}.#")
    mqtt.publish(f"{word}/a", b"", 1, retain=True)

    properties = vars(listener.next().properties)

    # RabbitMQ told the QoS and the DUP flag in headers until 3.12, and no longer does.
    told = {"headers", "delivery_mode"} if bridge.name == "rabbitmq" else {"delivery_mode"}
    assert {name for name, value in properties.items() if value is not None} == told


@pytest.mark.parametrize(
    ("topic", "key"),
    [
        ("/{}", ".{}"),
        ("{}/", "{}."),
        ("{}//x", "{}..x"),
        ("${}/x", "${}.x"),
        ("{}/ünï/ç", "{}.ünï.ç"),
        ("{}/a b", "{}.a b"),
    ],
)
def test_topics_and_keys_are_translated_both_ways(
    channel: BlockingChannel, mqtt: Paho, word: str, topic: str, key: str
) -> None:
    topic, key = topic.format(word), key.format(word)
    listener = Listener(channel, "#", lambda delivery: word in delivery.key)
    mqtt.subscribe(topic, 1)
    mqtt.publish(topic, b"from mqtt", 1)
    assert listener.next().key == key
    assert mqtt.receive().topic == topic

    channel.basic_publish(EXCHANGE, key, b"from amqp")

    assert (mqtt.receive().topic, listener.next().key) == (topic, key)


@pytest.mark.parametrize("pattern", ["{}/7/report", "{}/+/report", "{}/#", "+/7/#"])
def test_an_amqp_publish_reaches_mqtt_subscribers(
    channel: BlockingChannel, mqtt: Paho, word: str, pattern: str
) -> None:
    mqtt.subscribe(pattern.format(word), 1)
    persistent = pika.BasicProperties(delivery_mode=2)
    channel.basic_publish(EXCHANGE, f"{word}.7.report", b"3.5", persistent)

    arrival = mqtt.receive()

    assert (arrival.topic, arrival.payload) == (f"{word}/7/report", b"3.5")
    assert (arrival.qos, arrival.retain, arrival.dup) == (1, False, False)


def test_persistence_becomes_quality_of_service(
    bridge: AmqpMqttBroker, channel: BlockingChannel, mqtt: Paho, word: str
) -> None:
    mqtt.subscribe(word, 2)
    for mode in (None, 1, 2):
        properties = pika.BasicProperties(delivery_mode=mode)
        channel.basic_publish(EXCHANGE, word, b"", properties)

    qualities = [mqtt.receive().qos for _ in range(3)]

    if bridge.name == "rabbitmq":  # of 3.10; from 3.12 on it does as we do
        assert qualities == [1, 1, 1]
    else:
        assert qualities == [0, 0, 1]


def test_a_message_from_amqp_is_kept_for_a_session(
    bridge: AmqpMqttBroker, channel: BlockingChannel, word: str
) -> None:
    with Paho(bridge.mqtt_port, word, MQTT_3, keep=True) as client:
        client.subscribe(f"{word}/#", 1)
    channel.basic_publish(EXCHANGE, f"{word}.a", b"x", pika.BasicProperties(delivery_mode=2))

    with Paho(bridge.mqtt_port, word, MQTT_3, keep=True) as client:
        assert client.receive().payload == b"x"


def test_messages_of_another_exchange_do_not_reach_mqtt(
    channel: BlockingChannel, mqtt: Paho, word: str
) -> None:
    mqtt.subscribe("#", 1)
    channel.basic_publish("amq.direct", word, b"not this")
    channel.basic_publish("amq.fanout", word, b"nor this")
    channel.basic_publish(EXCHANGE, word, b"this")

    found = [mqtt.receive()]
    while found[-1].topic != word:
        found.append(mqtt.receive())

    assert [arrival.payload for arrival in found if word in arrival.topic] == [b"this"]


def test_exchanges_bound_to_the_topic_exchange_lead_to_and_from_mqtt(
    channel: BlockingChannel, mqtt: Paho, word: str
) -> None:
    channel.exchange_declare(word, "fanout", auto_delete=True)
    channel.exchange_bind(EXCHANGE, word)
    mqtt.subscribe(f"{word}/#", 1)
    channel.basic_publish(word, f"{word}.by.another.way", b"x")

    assert mqtt.receive().topic == f"{word}/by/another/way"


def test_a_will_reaches_amqp(bridge: AmqpMqttBroker, channel: BlockingChannel, word: str) -> None:
    listener = Listener(channel, f"{word}.#")
    client = Paho(bridge.mqtt_port, word, MQTT_3, will=Will(f"{word}/will", b"gone", 1))
    client.open()
    client.drop()

    delivery = listener.next()

    assert (delivery.key, delivery.body) == (f"{word}.will", b"gone")
    assert delivery.properties.delivery_mode == 2


def test_an_empty_retained_message_still_passes(
    channel: BlockingChannel, mqtt: Paho, word: str
) -> None:
    listener = Listener(channel, f"{word}.#")
    mqtt.publish(f"{word}/a", b"", 1, retain=True)

    assert listener.next().body == b""


def test_a_large_message_crosses_both_ways(channel: BlockingChannel, mqtt: Paho, word: str) -> None:
    large = b"0123456789abcdef" * 100_000
    listener = Listener(channel, f"{word}.to-amqp")
    mqtt.subscribe(f"{word}/to-mqtt", 1)
    mqtt.publish(f"{word}/to-amqp", large, 1)
    channel.basic_publish(EXCHANGE, f"{word}.to-mqtt", large, pika.BasicProperties(delivery_mode=2))

    assert listener.next().body == large
    assert mqtt.receive().payload == large


# RabbitMQ sends such topics, and clients break the connection.
@pytest.mark.parametrize("bridge", ["mqtt_penstock"], ids=["penstock"], indirect=True)
@pytest.mark.parametrize("key", ["", "{}.#", "{}.*.x"])
def test_a_key_that_is_no_topic_harms_no_subscriber(
    channel: BlockingChannel, mqtt: Paho, word: str, key: str
) -> None:
    mqtt.subscribe("#", 1)
    channel.basic_publish(EXCHANGE, key.format(word), b"no topic")
    channel.basic_publish(EXCHANGE, f"{word}.fine", b"fine")

    arrival = mqtt.receive()
    while not arrival.topic.startswith(word):
        arrival = mqtt.receive()

    assert arrival.payload == b"fine"
