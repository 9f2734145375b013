"""Messages between AMQP 1.0, AMQP 0-9-1 and MQTT, each read by a client of its own."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import paho.mqtt.client as paho
import pika
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp10.proton import SECONDS, connected, need_proton
from tests.peers import Broker, Penstock


def message(**fields: Any) -> Any:
    return need_proton().Message(**fields)


class Mqtt:
    """A client of MQTT 5.0 that waits."""

    def __init__(self, port: int) -> None:
        self.client = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
        self.client.username_pw_set("guest", "guest")
        self._got: queue.Queue[Any] = queue.Queue()
        self._granted: queue.Queue[int] = queue.Queue()
        self.client.on_message = lambda _client, _data, packet: self._got.put(packet)
        self.client.on_subscribe = lambda _client, _data, packet_id, _reasons, _properties: (
            self._granted.put(packet_id)
        )
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()

    def subscribe(self, topic: str, qos: int = 1) -> None:
        self.client.subscribe(topic, qos)
        self._granted.get(timeout=SECONDS)

    def publish(self, topic: str, body: bytes, qos: int = 1, **said: Any) -> None:
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        for name, value in said.items():
            setattr(properties, name, value)
        self.client.publish(topic, body, qos, properties=properties).wait_for_publish(SECONDS)

    def receive(self) -> Any:
        return self._got.get(timeout=SECONDS)


@contextmanager
def mqtt(port: int) -> Iterator[Mqtt]:
    client = Mqtt(port)
    try:
        yield client
    finally:
        client.client.disconnect()
        client.client.loop_stop()


@pytest.fixture
def word(name: str) -> str:
    """A name without dots: one word of a topic and of a routing key."""
    return name.replace(".", "-")


# 1.0 and 0-9-1, on both brokers.


def test_a_message_of_0_9_1_is_read_by_1_0(
    amqp10_broker: Broker, channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name, durable=True)
    properties = pika.BasicProperties(
        content_type="text/xml",
        headers={"station": "north", "depth": 3},
        delivery_mode=2,
        priority=5,
        correlation_id="c-1",
        message_id="m-1",
        timestamp=1_600_000_000,
    )
    channel.basic_publish("", name, b"<request/>", properties)
    with connected(amqp10_broker.port) as connection:
        got = connection.create_receiver(f"/amq/queue/{name}").receive(SECONDS)
    assert bytes(got.body) == b"<request/>"
    assert (got.content_type, got.durable, got.priority) == ("text/xml", True, 5)
    assert (got.id, got.correlation_id) == ("m-1", "c-1")
    if amqp10_broker.name == "penstock":  # the plugin of 3.10 leaves headers out
        assert got.properties == {"station": "north", "depth": 3}


@pytest.mark.parametrize("kind", ["symbol", "string"])
def test_a_content_type_is_read_whichever_type_it_has(
    penstock: Penstock, penstock_channel: BlockingChannel, name: str, kind: str
) -> None:
    """The thesis met a broker that took one of them only."""
    proton = need_proton()
    penstock_channel.queue_declare(name)
    sent = message(body=b"<x/>", inferred=True)
    with connected(penstock.port) as connection:
        sender = connection.create_sender(f"/queues/{name}")
        if kind == "symbol":
            sent.content_type = proton.symbol("text/xml")
            sender.send(sent)
        else:
            written = sent.encode()
            properties = b"\x00\x53\x73\xc0\x11\x07" + b"\x40" * 6 + b"\xa1\x08text/xml"
            delivery = sender.link.delivery(sender.link.delivery_tag())
            sender.link.stream(properties + written[written.index(b"\x00\x53\x75") :])
            sender.link.advance()
            connection.wait(lambda: delivery.settled or delivery.remote_state, timeout=SECONDS)
    _, got, body = penstock_channel.basic_get(name, auto_ack=True)
    assert (got.content_type, body) == ("text/xml", b"<x/>")


def test_a_message_of_1_0_is_read_by_0_9_1(
    amqp10_broker: Broker, channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name, durable=True)
    sent = message(
        body=b"data",
        inferred=True,
        id="m-1",
        correlation_id="c-1",
        content_type="text/plain",
        properties={"text": "a", "n": 5},
        durable=True,
        priority=7,
    )
    sent.ttl = 60
    with connected(amqp10_broker.port) as connection:
        connection.create_sender(f"/amq/queue/{name}").send(sent)
    _, got, body = channel.basic_get(name, auto_ack=True)
    assert body == b"data"
    assert (got.message_id, got.correlation_id) == ("m-1", "c-1")
    assert (got.delivery_mode, got.priority, got.expiration) == (2, 7, "60000")
    if amqp10_broker.name == "penstock":
        assert (got.headers["text"], got.headers["n"]) == ("a", 5)


def test_a_text_is_read_as_its_bytes(
    penstock: Penstock, penstock_channel: BlockingChannel, name: str
) -> None:
    penstock_channel.queue_declare(name)
    with connected(penstock.port) as connection:
        connection.create_sender(f"/queues/{name}").send(message(body="grüße"))
    _, _, body = penstock_channel.basic_get(name, auto_ack=True)
    assert body.decode() == "grüße"


def test_what_0_9_1_sends_on_is_what_1_0_sent(
    penstock: Penstock, penstock_channel: BlockingChannel, name: str
) -> None:
    proton = need_proton()
    for one in (name, f"{name}.next"):
        penstock_channel.queue_declare(one)
    sent = message(
        body={"a": [1, proton.ubyte(2)]},
        id=UUID(int=7),
        subject="news",
        properties={"u": proton.ubyte(5), "id": UUID(int=8), "s": proton.symbol("x")},
    )
    with connected(penstock.port) as connection:
        connection.create_sender(f"/queues/{name}").send(sent)
        _, properties, body = penstock_channel.basic_get(name, auto_ack=True)
        penstock_channel.basic_publish("", f"{name}.next", body, properties)
        got = connection.create_receiver(f"/queues/{name}.next").receive(SECONDS)
    assert (got.body, got.id, got.subject) == (sent.body, sent.id, "news")
    assert got.properties == sent.properties
    assert type(got.properties["u"]) is proton.ubyte
    assert type(got.properties["s"]) is proton.symbol


def test_a_question_of_0_9_1_is_answered_by_1_0(
    penstock: Penstock, penstock_channel: BlockingChannel, name: str
) -> None:
    penstock_channel.queue_declare(name)
    answers: list[tuple[Any, bytes]] = []
    penstock_channel.basic_consume(
        "amq.rabbitmq.reply-to",
        lambda _channel, _method, properties, body: answers.append((properties, body)),
        auto_ack=True,
    )
    question = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="7")
    penstock_channel.basic_publish("", name, b"?", question)
    with connected(penstock.port) as connection:
        service = connection.create_receiver(f"/queues/{name}")
        asked = service.receive(SECONDS)
        service.accept()
        connection.create_sender(None).send(
            message(body="!", address=asked.reply_to, correlation_id=asked.correlation_id)
        )
    while not answers:
        penstock_channel.connection.process_data_events(SECONDS)
    assert (answers[0][0].correlation_id, answers[0][1]) == ("7", b"!")


# And MQTT.


def test_a_publication_of_mqtt_is_read_by_1_0(penstock: Penstock, word: str) -> None:
    with connected(penstock.port) as connection, mqtt(penstock.mqtt_port) as client:
        receiver = connection.create_receiver(f"/topic/{word}.*")
        client.publish(
            f"{word}/report",
            b"21.5",
            ContentType="text/plain",
            CorrelationData=b"c-1",
            ResponseTopic=f"{word}/answers",
            MessageExpiryInterval=60,
            UserProperty=[("unit", "C")],
        )
        got = receiver.receive(SECONDS)
        receiver.accept()
        assert bytes(got.body) == b"21.5"
        assert (got.content_type, got.correlation_id) == ("text/plain", "c-1")
        assert got.durable
        assert got.ttl == 60
        assert got.properties == {"unit": "C"}
        client.subscribe(f"{word}/answers")
        connection.create_sender(None).send(
            message(body="thanks", address=got.reply_to, correlation_id=got.correlation_id)
        )
        answer = client.receive()
        assert answer.payload == b"thanks"
        assert answer.properties.CorrelationData == b"c-1"


def test_a_message_of_1_0_is_read_by_mqtt(penstock: Penstock, word: str) -> None:
    with connected(penstock.port) as connection, mqtt(penstock.mqtt_port) as client:
        client.subscribe(f"{word}/+")
        sent = message(
            body="21.5",
            subject=f"{word}.report",
            content_type="text/plain",
            correlation_id="c-1",
            reply_to=f"/topic/{word}.answers",
            properties={"unit": "C", "n": 5},
            durable=True,
        )
        connection.create_sender("/exchange/amq.topic").send(sent)
        got = client.receive()
        assert (got.topic, got.payload, got.qos) == (f"{word}/report", b"21.5", 1)
        told = got.properties
        assert (told.ContentType, told.CorrelationData) == ("text/plain", b"c-1")
        assert told.ResponseTopic == f"{word}/answers"
        assert sorted(told.UserProperty) == [("n", "5"), ("unit", "C")]


LARGE = bytes(range(256)) * 4096


def test_a_large_message_crosses_both_ways(
    penstock: Penstock, penstock_channel: BlockingChannel, name: str
) -> None:
    penstock_channel.queue_declare(name)
    with connected(penstock.port) as connection:
        sent = message(body=LARGE, inferred=True, subject="large", properties={"k": "v"})
        connection.create_sender(f"/queues/{name}").send(sent)
        _, properties, body = penstock_channel.basic_get(name, auto_ack=True)
        assert body == LARGE
        assert properties.headers["k"] == "v"
        penstock_channel.basic_publish("", name, body, properties)
        receiver = connection.create_receiver(f"/queues/{name}")
        got = receiver.receive(SECONDS)
        receiver.accept()
    assert (bytes(got.body), got.subject, got.properties) == (LARGE, "large", {"k": "v"})


def test_a_large_text_is_the_same_to_1_0(penstock: Penstock, name: str) -> None:
    text = "grüße " * 100_000
    with connected(penstock.port) as connection:
        connection.create_sender(f"/queue/{name}").send(message(body=text))
        receiver = connection.create_receiver(f"/queue/{name}")
        assert receiver.receive(SECONDS).body == text
        receiver.accept()


def test_round_through_all_three(
    penstock: Penstock, penstock_channel: BlockingChannel, word: str
) -> None:
    """1.0 → MQTT → 0-9-1 → 1.0: the body and what all three can say."""
    penstock_channel.queue_declare(word)
    penstock_channel.queue_bind(word, "amq.topic", f"{word}.second")
    with connected(penstock.port) as connection, mqtt(penstock.mqtt_port) as client:
        client.subscribe(f"{word}/first")
        sent = message(
            body=b"\x00\xff",
            inferred=True,
            content_type="application/octet-stream",
            correlation_id="c-1",
            properties={"k": "v"},
            durable=True,
        )
        connection.create_sender(f"/topic/{word}.first").send(sent)
        first = client.receive()
        client.publish(
            f"{word}/second",
            first.payload,
            ContentType=first.properties.ContentType,
            CorrelationData=first.properties.CorrelationData,
            UserProperty=first.properties.UserProperty,
        )
        _, properties, body = penstock_channel.basic_get(word, auto_ack=True)
        receiver = connection.create_receiver(f"/topic/{word}.third")
        penstock_channel.basic_publish("amq.topic", f"{word}.third", body, properties)
        got = receiver.receive(SECONDS)
        assert bytes(got.body) == b"\x00\xff"
        assert (got.content_type, got.correlation_id) == ("application/octet-stream", "c-1")
        assert got.properties == {"k": "v"}
        assert got.durable
