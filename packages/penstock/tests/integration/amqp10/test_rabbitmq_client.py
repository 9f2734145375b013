"""RabbitMQ's own client of AMQP 1.0."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.fixtures import missing
from tests.peers import PeerMissing, Penstock

try:
    import rabbitmq_amqp_python_client as client
    from rabbitmq_amqp_python_client.exceptions import ValidationCodeException
except ImportError:
    client = None  # type: ignore[assignment]


@pytest.fixture
def connection(penstock: Penstock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A connection of a client that has been told not to ask for RabbitMQ by name."""
    if client is None:
        missing(PeerMissing("missing: pip package rabbitmq-amqp-python-client"))
    monkeypatch.setattr(client.Connection, "_validate_server_properties", lambda _: None)
    monkeypatch.setattr(client.Connection, "_is_server_version_gte", lambda _, version: True)
    environment = client.Environment(f"amqp://guest:guest@127.0.0.1:{penstock.port}")
    connection = environment.connection()
    connection.dial()
    yield connection
    environment.close()


def test_it_publishes_to_a_queue(
    connection: Any, penstock_channel: BlockingChannel, name: str
) -> None:
    penstock_channel.queue_declare(name, durable=True)
    publisher = connection.publisher(client.AddressHelper.queue_address(name))
    status = publisher.publish(client.Message(body=client.Converter.string_to_bytes("hello")))
    assert status.remote_state == client.OutcomeState.ACCEPTED
    publisher.close()
    _, properties, body = penstock_channel.basic_get(name, auto_ack=True)
    assert body == b"hello"
    assert properties.delivery_mode == 2


def test_it_publishes_to_an_exchange_and_is_told_that_nobody_listens(
    connection: Any, penstock_channel: BlockingChannel, name: str
) -> None:
    penstock_channel.queue_declare(name, durable=True)
    penstock_channel.queue_bind(name, "amq.direct", name)
    message = client.Message(body=b"by key")
    to_queue = connection.publisher(client.AddressHelper.exchange_address("amq.direct", name))
    assert to_queue.publish(message).remote_state == client.OutcomeState.ACCEPTED
    to_nobody = connection.publisher(client.AddressHelper.exchange_address("amq.direct", "x"))
    with pytest.raises(Exception, match=str(client.OutcomeState.RELEASED.value)) as failure:
        to_nobody.publish(message)
    assert type(failure.value).__name__ == "SendException"
    assert penstock_channel.basic_get(name, auto_ack=True)[2] == b"by key"


def test_it_sends_to_the_address_of_each_message(
    connection: Any, penstock_channel: BlockingChannel, name: str
) -> None:
    penstock_channel.queue_declare(name, durable=True)
    publisher = connection.publisher()
    address = client.AddressHelper.queue_address(name)
    message = client.AddressHelper.message_to_address_helper(client.Message(body=b"to"), address)
    assert publisher.publish(message).remote_state == client.OutcomeState.ACCEPTED
    assert penstock_channel.basic_get(name, auto_ack=True)[2] == b"to"


def test_it_consumes(connection: Any, penstock_channel: BlockingChannel, name: str) -> None:
    penstock_channel.queue_declare(name, durable=True)
    for number in range(5):
        penstock_channel.basic_publish("", name, str(number).encode())
    got: list[bytes] = []

    class Handler(client.AMQPMessagingHandler):
        def on_amqp_message(self, event: Any) -> None:
            got.append(bytes(event.message.body))
            self.delivery_context.accept(event)
            if len(got) == 5:
                raise StopIteration

    consumer = connection.consumer(
        client.AddressHelper.queue_address(name), message_handler=Handler()
    )
    with pytest.raises(StopIteration):
        consumer.run()
    assert got == [b"0", b"1", b"2", b"3", b"4"]


def test_it_reads_a_stream_from_an_offset(
    connection: Any, penstock_channel: BlockingChannel, name: str
) -> None:
    penstock_channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    penstock_channel.confirm_delivery()
    for number in range(5):
        penstock_channel.basic_publish("", name, str(number).encode())
    got: list[bytes] = []

    class Handler(client.AMQPMessagingHandler):
        def on_amqp_message(self, event: Any) -> None:
            got.append(bytes(event.message.body))
            self.delivery_context.accept(event)
            if len(got) == 2:
                raise StopIteration

    consumer = connection.consumer(
        client.AddressHelper.queue_address(name),
        message_handler=Handler(),
        consumer_options=client.StreamConsumerOptions(offset_specification=3),
    )
    with pytest.raises(StopIteration):
        consumer.run()
    assert got == [b"3", b"4"]


def test_it_reads_what_it_wants_of_a_stream(
    connection: Any, penstock_channel: BlockingChannel, name: str
) -> None:
    penstock_channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    penstock_channel.confirm_delivery()
    for number in range(6):
        fruit = pika.BasicProperties(
            headers={
                "x-stream-filter-value": "apple" if number % 2 else "banana",
                "from": "italy" if number > 2 else "spain",
            }
        )
        penstock_channel.basic_publish("", name, str(number).encode(), fruit)
    got: list[bytes] = []

    class Handler(client.AMQPMessagingHandler):
        def on_amqp_message(self, event: Any) -> None:
            got.append(bytes(event.message.body))
            self.delivery_context.accept(event)
            if len(got) == 2:
                raise StopIteration

    wanted = client.StreamFilterOptions(
        values=["apple"], application_properties={"from": "italy"}, match_unfiltered=True
    )
    consumer = connection.consumer(
        client.AddressHelper.queue_address(name),
        message_handler=Handler(),
        consumer_options=client.StreamConsumerOptions(
            offset_specification=client.OffsetSpecification.first, filter_options=wanted
        ),
    )
    with pytest.raises(StopIteration):
        consumer.run()
    assert got == [b"3", b"5"]


def test_it_filters_a_stream_by_sql(
    connection: Any, penstock_channel: BlockingChannel, name: str
) -> None:
    stream = {"x-queue-type": "stream"}
    penstock_channel.queue_declare(name, durable=True, arguments=stream)
    penstock_channel.confirm_delivery()
    for number in range(6):
        fruit = pika.BasicProperties(headers={"weight": number}, priority=number)
        penstock_channel.basic_publish("", name, str(number).encode(), fruit)
    got: list[bytes] = []

    class Handler(client.AMQPMessagingHandler):
        def on_amqp_message(self, event: Any) -> None:
            got.append(bytes(event.message.body))
            self.delivery_context.accept(event)
            if len(got) == 2:
                raise StopIteration

    consumer = connection.consumer(
        client.AddressHelper.queue_address(name),
        message_handler=Handler(),
        consumer_options=client.StreamConsumerOptions(
            offset_specification=client.OffsetSpecification.first,
            filter_options=client.StreamFilterOptions(sql="weight > 2 AND header.priority <> 4"),
        ),
    )
    with pytest.raises(StopIteration):
        consumer.run()
    assert got == [b"3", b"5"]


def test_it_gets_direct_replies(
    connection: Any, penstock_channel: BlockingChannel, name: str
) -> None:
    """From a server that speaks AMQP 0-9-1."""
    got: list[bytes] = []

    class Handler(client.AMQPMessagingHandler):
        def on_amqp_message(self, event: Any) -> None:
            got.append(bytes(event.message.body))
            raise StopIteration

    strategy = client.ConsumerSettleStrategy.DirectReplyTo
    consumer = connection.consumer(
        message_handler=Handler(),
        consumer_options=client.ConsumerOptions(settle_strategy=strategy),
    )
    assert consumer.address.startswith("/queues/amq.rabbitmq.reply-to.")
    penstock_channel.queue_declare(name)
    publisher = connection.publisher(client.AddressHelper.queue_address(name))
    publisher.publish(client.Message(body=b"question", reply_to=consumer.address))
    _, properties, body = penstock_channel.basic_get(name, auto_ack=True)
    assert body == b"question"
    penstock_channel.basic_publish("", properties.reply_to, b"answer")
    with pytest.raises(StopIteration):
        consumer.run()
    assert got == [b"answer"]


# The management node.


def test_it_declares_binds_and_deletes(connection: Any, name: str) -> None:
    management = connection.management()
    try:
        exchange = client.ExchangeSpecification(
            name=name, exchange_type=client.ExchangeType.topic, is_durable=True
        )
        management.declare_exchange(exchange)
        management.declare_exchange(exchange)
        queue = client.QuorumQueueSpecification(name=name, max_len=5)
        management.declare_queue(queue)
        management.declare_queue(queue)
        with pytest.raises(ValidationCodeException) as refused:
            management.declare_queue(client.QuorumQueueSpecification(name=name, max_len=6))
        assert "PreconditionFailed" in repr(refused.value)
        binding = management.bind(
            client.ExchangeToQueueBindingSpecification(
                source_exchange=name, destination_queue=name, binding_key="a.#"
            )
        )
        publisher = connection.publisher(client.AddressHelper.exchange_address(name, "a.b"))
        for _ in range(7):
            publisher.publish(client.Message(body=b"routed"))
        info = management.queue_info(name)
        assert (info.queue_type, info.message_count, info.is_durable) == (
            client.QueueType.quorum,
            5,
            True,
        )
        assert info.arguments["x-max-length"] == 5
        assert management.purge_queue(name) == 5
        management.unbind(binding)
        with pytest.raises(Exception, match=str(client.OutcomeState.RELEASED.value)):
            publisher.publish(client.Message(body=b"unroutable"))
        publisher.close()
        assert management.queue_info(name).message_count == 0
        management.delete_queue(name)
        with pytest.raises(ValidationCodeException):
            management.queue_info(name)
        management.delete_exchange(name)
    finally:
        management.close()


def test_it_declares_every_type_of_queue(connection: Any, name: str) -> None:
    management = connection.management()
    for made in (
        client.ClassicQueueSpecification(
            name=f"{name}.classic", is_auto_delete=False, is_exclusive=False, is_durable=True
        ),
        client.ClassicQueueSpecification(
            name=f"{name}.exclusive", is_auto_delete=True, is_exclusive=True, is_durable=False
        ),
        client.StreamSpecification(name=f"{name}.stream"),
    ):
        management.declare_queue(made)
        assert management.queue_info(made.name).name == made.name
        management.delete_queue(made.name)
    management.close()
