"""AMQP 1.0 as RabbitMQ 4 has it: v2 addresses, outcomes, stream filters, direct reply-to.

The same tests run against Penstock and, as slow tests, against RabbitMQ 4 (`scripts/peers-new`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp10.proton import SECONDS, connected, need_proton
from tests.peers import Broker

try:
    from proton import Data, Delivery, Described, Message, Terminus, symbol
    from proton.reactor import Filter, LinkOption
except ImportError:
    Filter = LinkOption = object  # type: ignore[assignment,misc]


@pytest.fixture(
    scope="module",
    params=[
        "penstock",
        pytest.param("new_rabbitmq", marks=[pytest.mark.peer, pytest.mark.slow]),
    ],
)
def rabbitmq_4(request: pytest.FixtureRequest) -> Broker:
    need_proton()
    server: Broker = request.getfixturevalue(request.param)
    return server


@pytest.fixture
def connection(rabbitmq_4: Broker) -> Iterator[Any]:
    with connected(rabbitmq_4.port) as connection:
        yield connection


@pytest.fixture
def channel(rabbitmq_4: Broker) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(rabbitmq_4.url))
    channel = connection.channel()
    channel.confirm_delivery()
    yield channel
    connection.close()


def take(receiver: Any) -> Any:
    message = receiver.receive(timeout=SECONDS)
    receiver.accept()
    return message


@pytest.mark.parametrize("suffix", ["", "/", " %", ".é"])
def test_a_queue(connection: Any, channel: BlockingChannel, name: str, suffix: str) -> None:
    queue = name + suffix
    channel.queue_declare(queue, durable=True)
    address = f"/queues/{quote(queue, safe='')}"
    connection.create_sender(address).send(Message(body="x", durable=True), timeout=SECONDS)
    assert take(connection.create_receiver(address)).body == "x"
    channel.queue_delete(queue)


def test_an_exchange_and_a_key(connection: Any, channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, durable=True)
    channel.queue_bind(name, "amq.direct", f"{name}/key")
    connection.create_sender(f"/exchanges/amq.direct/{name}%2Fkey").send(Message(body="by address"))
    assert take(connection.create_receiver(f"/queues/{name}", credit=5)).body == "by address"
    channel.queue_delete(name)


def test_the_anonymous_terminus(connection: Any, channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, durable=True)
    sender = connection.create_sender(None)
    sender.send(Message(body="x", address=f"/queues/{name}"), timeout=SECONDS)
    assert take(connection.create_receiver(f"/queues/{name}")).body == "x"
    channel.queue_delete(name)


def test_an_unroutable_message_is_released(connection: Any, name: str) -> None:
    sender = connection.create_sender(f"/exchanges/amq.direct/{name}")
    delivery = sender.send(Message(body="x"), error_states=[])
    assert delivery.remote_state == Delivery.RELEASED


@pytest.mark.parametrize("target", ["queues", "exchanges"])
def test_what_does_not_exist_is_not_found(connection: Any, name: str, target: str) -> None:
    with pytest.raises(Exception, match="amqp:not-found"):
        connection.create_sender(f"/{target}/{name}")


def test_rejected_messages_are_dead_letters(
    connection: Any, channel: BlockingChannel, name: str
) -> None:
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}.dead"}
    channel.queue_declare(name, durable=True, arguments=dead)
    channel.queue_declare(f"{name}.dead", durable=True)
    connection.create_sender(f"/queues/{name}").send(Message(body="x", durable=True))
    receiver = connection.create_receiver(f"/queues/{name}", credit=1)
    receiver.receive(timeout=SECONDS)
    receiver.reject()
    assert take(connection.create_receiver(f"/queues/{name}.dead")).body == "x"
    for queue in (name, f"{name}.dead"):
        channel.queue_delete(queue)


# Direct reply-to.


class ReplyLink(LinkOption):  # type: ignore[misc]
    def apply(self, link: Any) -> None:
        link.snd_settle_mode = link.SND_SETTLED
        link.source.dynamic = True
        link.source.expiry_policy = Terminus.EXPIRE_WITH_LINK
        capabilities = link.source.capabilities
        capabilities.put_array(False, Data.SYMBOL)
        capabilities.enter()
        capabilities.put_symbol("rabbitmq:volatile-queue")
        capabilities.exit()


def test_replies_need_no_queue(connection: Any, channel: BlockingChannel, name: str) -> None:
    receiver = connection.create_receiver(None, options=ReplyLink(), credit=10)
    address = receiver.link.remote_source.address
    assert address.startswith("/queues/amq.rabbitmq.reply-to.")
    channel.queue_declare(name, durable=True)
    connection.create_sender(f"/queues/{name}").send(Message(body="question", reply_to=address))
    while (asked := channel.basic_get(name, auto_ack=True))[0] is None:
        pass
    channel.basic_publish("", asked[1].reply_to, b"answer of 0-9-1")
    connection.create_sender(None).send(Message(body="answer of 1.0", address=address))
    bodies = []
    for _ in range(2):
        message = receiver.receive(timeout=SECONDS)
        body = message.body  # of the message's memory
        bodies.append(body if isinstance(body, str) else bytes(body).decode())
    assert bodies == ["answer of 0-9-1", "answer of 1.0"]
    channel.queue_delete(name)


# Streams.


def read_selected(connection: Any, stream: str, filters: dict[str, Any]) -> list[str]:
    """The bodies up to the message `last`, which every filter of these tests selects."""
    wanted = {"rabbitmq:stream-offset-spec": "first", **filters}
    described = {
        # RabbitMQ ignores the filter if it has another name.
        symbol(key.replace("amqp:sql", "sql")): Described(symbol(key), value)
        for key, value in wanted.items()
    }
    receiver = connection.create_receiver(f"/queues/{stream}", options=Filter(described), credit=50)
    bodies: list[str] = []
    while not bodies or bodies[-1] != "last":
        bodies.append(take(receiver).body)
    receiver.close()
    return bodies[:-1]


@pytest.fixture(scope="module")
def stream(rabbitmq_4: Broker) -> Iterator[str]:
    name = "test.sql"
    properties = [
        {"region": "EU", "weight": 5, "ripe": True},
        {"region": "US", "weight": 2.5, "ripe": False},
        {"region": 7, "last": False},
        {"last": True, "region": "last"},
    ]
    amqp = pika.BlockingConnection(pika.URLParameters(rabbitmq_4.url))
    arguments = {"x-queue-type": "stream"}
    amqp.channel().queue_declare(name, durable=True, arguments=arguments)
    with connected(rabbitmq_4.port) as connection:
        sender = connection.create_sender(f"/queues/{name}")
        for number, application in enumerate(properties):
            message = Message(body=str(number), properties=application, durable=True)
            message.subject = f"subject.{number}"
            message.priority = number + 3
            if number == 3:
                message.body = "last"
            sender.send(message, timeout=SECONDS)
    yield name
    amqp.channel().queue_delete(name)
    amqp.close()


@pytest.mark.parametrize(
    ("expression", "bodies"),
    [
        ("region = 'EU'", "0"),
        ("region <> 'EU'", "12"),
        ("NOT region = 'EU'", "12"),
        ("region > 'A'", "01"),
        ("NOT region > 'A'", "2"),
        ("region IN ('EU', 'US')", "01"),
        ("region NOT IN ('EU')", "12"),
        ("missing NOT IN ('EU')", ""),
        ("region LIKE '_U'", "0"),
        ("region NOT LIKE 'E%'", "1"),
        ("weight > 2 AND weight < 5", "1"),
        ("weight * 2 = 5", "1"),
        ("weight + 1 > 3", "01"),
        ("weight % 2 = 1", "0"),
        ("weight IS NULL", "2"),
        ("weight IS NOT NULL AND NOT ripe", "1"),
        ("ripe", "0"),
        ("ripe = FALSE", "1"),
        ("NOT weight > 4", "1"),
        ("missing = 1 OR region = 'US'", "1"),
        ("missing = missing", ""),
        ("properties.subject LIKE 'subject.%'", "012"),
        ("p.subject = 'subject.1'", "1"),
        ("header.priority >= 4", "12"),
        ("h.priority = 3 OR h.priority = 5", "02"),
        ("region = 7", "2"),
        ("(region = 'EU' OR region = 'US') AND weight < 3", "1"),
        ("-weight < -4", "0"),
        ("weight = 5.0", "0"),
        ("0 < UTC() AND region = 'EU'", "0"),
        ("region LIKE 'E!%' ESCAPE '!'", ""),
    ],
)
def test_sql(connection: Any, stream: str, expression: str, bodies: str) -> None:
    filters = {"amqp:sql-filter": f"({expression}) OR last = TRUE"}
    assert read_selected(connection, stream, filters) == list(bodies)


def test_property_filters(connection: Any, stream: str) -> None:
    filters = {"amqp:application-properties-filter": {"region": "&p:l"}}
    assert read_selected(connection, stream, filters) == []
