"""qpid-proton's blocking client against Penstock and against RabbitMQ's plugin."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp10.proton import SECONDS, connected, need_proton
from tests.peers import Broker


@pytest.fixture
def connection(amqp10_broker: Broker) -> Any:
    with connected(amqp10_broker.port) as connection:
        yield connection


def message(**fields: Any) -> Any:
    return need_proton().Message(**fields)


def test_what_is_sent_to_a_queue_is_received_from_it(connection: Any, name: str) -> None:
    sender = connection.create_sender(f"/queue/{name}")
    for number in range(10):
        sender.send(message(body=f"hello {number}"))
    receiver = connection.create_receiver(f"/queue/{name}", credit=10)
    for number in range(10):
        assert receiver.receive(SECONDS).body == f"hello {number}"
        receiver.accept()


@pytest.mark.parametrize(
    "body",
    ["text", b"bytes", {"a": [1, 2, {"b": None}]}, 1 << 40, True],
    ids=repr,
)
def test_a_body_of_any_kind_is_the_same_to_1_0(connection: Any, name: str, body: Any) -> None:
    connection.create_sender(f"/queue/{name}").send(message(body=body))
    assert connection.create_receiver(f"/queue/{name}").receive(SECONDS).body == body


@pytest.mark.parametrize("identity", ["m-1", 7, UUID(int=7)], ids=repr)
def test_properties_are_the_same_to_1_0(connection: Any, name: str, identity: Any) -> None:
    sent = message(
        body=b"",
        inferred=True,
        id=identity,
        correlation_id=identity,
        subject="news",
        address=f"/queue/{name}",
        reply_to="/queue/answers",
        content_type="text/xml",
        content_encoding="utf-8",
        creation_time=1_600_000_000.123,
        group_id="g",
        group_sequence=4,
        reply_to_group_id="r",
        properties={"text": "a", "n": 5, "half": 0.5, "yes": True},
        durable=True,
        priority=7,
    )
    connection.create_sender(f"/queue/{name}").send(sent)
    got = connection.create_receiver(f"/queue/{name}").receive(SECONDS)
    for field in (
        "id",
        "correlation_id",
        "subject",
        "address",
        "reply_to",
        "content_type",
        "content_encoding",
        "creation_time",
        "group_id",
        "group_sequence",
        "reply_to_group_id",
        "durable",
        "priority",
    ):
        assert getattr(got, field) == getattr(sent, field), field
    assert got.properties["text"] == "a"
    assert got.properties["n"] == 5
    assert got.properties["yes"] is True


def test_an_exchange_routes_by_the_address(
    connection: Any, channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(name)
    channel.queue_bind(name, "amq.direct", "red")
    sender = connection.create_sender("/exchange/amq.direct/red")
    sender.send(message(body=b"stop", inferred=True))
    _, _, body = channel.basic_get(name, auto_ack=True)
    assert body == b"stop"


def test_an_exchange_is_a_source(connection: Any, channel: BlockingChannel, name: str) -> None:
    receiver = connection.create_receiver(f"/exchange/amq.topic/{name}.*", credit=10)
    channel.basic_publish("amq.topic", f"{name}.oil", b"61")
    assert bytes(receiver.receive(SECONDS).body) == b"61"


def test_what_is_released_comes_again(connection: Any, name: str) -> None:
    connection.create_sender(f"/queue/{name}").send(message(body="again"))
    receiver = connection.create_receiver(f"/queue/{name}")
    assert receiver.receive(SECONDS).delivery_count == 0
    receiver.release(delivered=False)
    assert receiver.receive(SECONDS).body == "again"
    receiver.accept()


def test_what_is_rejected_is_a_dead_letter(
    connection: Any, channel: BlockingChannel, name: str
) -> None:
    channel.queue_declare(f"{name}.dead")
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}.dead"}
    channel.queue_declare(name, durable=True, arguments=arguments)
    connection.create_sender(f"/amq/queue/{name}").send(message(body="bad"))
    receiver = connection.create_receiver(f"/amq/queue/{name}")
    receiver.receive(SECONDS)
    receiver.reject()
    dead = connection.create_receiver(f"/amq/queue/{name}.dead")
    assert dead.receive(SECONDS).body == "bad"


def test_those_who_receive_from_a_queue_share_it(connection: Any, name: str) -> None:
    one = connection.create_receiver(f"/queue/{name}", credit=2, name="one")
    two = connection.create_receiver(f"/queue/{name}", credit=2, name="two")
    sender = connection.create_sender(f"/queue/{name}")
    for number in range(4):
        sender.send(message(body=number))
    got = [receiver.receive(SECONDS).body for receiver in (one, two) for _ in range(2)]
    assert sorted(got) == [0, 1, 2, 3]


def test_priorities_are_the_queues(connection: Any, channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, durable=True, arguments={"x-max-priority": 9})
    sender = connection.create_sender(f"/amq/queue/{name}")
    for priority in (1, 9, 5):
        sender.send(message(body=priority, priority=priority))
    receiver = connection.create_receiver(f"/amq/queue/{name}")
    order = []
    for _ in range(3):
        order.append(receiver.receive(SECONDS).body)
        receiver.accept()
    assert order == [9, 5, 1]


def test_what_has_expired_is_not_received(
    connection: Any, channel: BlockingChannel, name: str
) -> None:
    sender = connection.create_sender(f"/queue/{name}")
    gone = message(body="gone")
    gone.ttl = 0.001
    sender.send(gone)
    sender.send(message(body="here"))
    receiver = connection.create_receiver(f"/queue/{name}")
    got = receiver.receive(SECONDS).body
    if got == "gone":  # it may still have been in time
        got = receiver.receive(SECONDS).body
    assert got == "here"


def test_a_large_message_arrives_whole(connection: Any, name: str) -> None:
    body = bytes(range(256)) * 8192
    connection.create_sender(f"/queue/{name}").send(message(body=body))
    receiver = connection.create_receiver(f"/queue/{name}")
    assert receiver.receive(SECONDS).body == body
    receiver.accept()


def test_a_wrong_password_is_refused(amqp10_broker: Broker) -> None:
    proton = need_proton()
    with (
        pytest.raises((proton.ConnectionException, proton.utils.ConnectionClosed)),
        connected(amqp10_broker.port, user="nobody"),
    ):
        pass
