"""qpid-proton's blocking client and what RabbitMQ's plugin of 3.10 has not got."""

from __future__ import annotations

from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.integration.amqp10.proton import SECONDS, connected, need_proton
from tests.peers import Penstock


@pytest.fixture
def connection(penstock: Penstock) -> Any:
    with connected(penstock.port) as connection:
        yield connection


def message(**fields: Any) -> Any:
    return need_proton().Message(**fields)


def condition(failure: Any) -> str:
    return str(failure.value.condition)


@pytest.mark.parametrize("body", [[1, "two", 3.0], -1.5, {"k": [0.5]}], ids=repr)
def test_a_body_of_any_kind_is_the_same(connection: Any, name: str, body: Any) -> None:
    connection.create_sender(f"/queue/{name}").send(message(body=body))
    assert connection.create_receiver(f"/queue/{name}").receive(SECONDS).body == body


def test_what_was_tried_and_failed_is_counted(connection: Any, name: str) -> None:
    connection.create_sender(f"/queue/{name}").send(message(body="again"))
    receiver = connection.create_receiver(f"/queue/{name}")
    first = receiver.receive(SECONDS)
    assert (first.delivery_count, first.first_acquirer) == (0, True)
    receiver.fetcher.unsettled[0].local.failed = True
    receiver.release(delivered=True)
    second = receiver.receive(SECONDS)
    assert (second.delivery_count, second.first_acquirer) == (1, False)
    receiver.accept()


def test_an_address_that_names_nothing_is_refused(connection: Any, name: str) -> None:
    proton = need_proton()
    for address in (f"/exchange/{name}/key", f"/queues/{name}", "/nowhere/at/all"):
        with pytest.raises(proton.utils.LinkDetached) as failure:
            connection.create_sender(address)
        assert "amqp:not-found" in condition(failure)
        with pytest.raises(proton.utils.LinkDetached) as failure:
            connection.create_receiver(address)
        assert "amqp:not-found" in condition(failure)


def test_a_message_goes_where_it_says(connection: Any, name: str) -> None:
    relay = connection.create_sender(None)
    receiver = connection.create_receiver(f"/queue/{name}")
    relay.send(message(body="by address", address=f"/queue/{name}"))
    assert receiver.receive(SECONDS).body == "by address"
    receiver.accept()
    relay.send(message(body="by name", address=name))
    assert receiver.receive(SECONDS).body == "by name"
    receiver.accept()


def test_what_nobody_takes_is_released(connection: Any, name: str) -> None:
    proton = need_proton()
    sender = connection.create_sender(f"/exchange/amq.direct/{name}")
    with pytest.raises(proton.utils.SendException) as failure:
        sender.send(message(body="lost"))
    assert failure.value.state == proton.Delivery.RELEASED


def test_a_dynamic_node_takes_answers(connection: Any, name: str) -> None:
    answers = connection.create_receiver(None, dynamic=True)
    address = answers.link.remote_source.address
    asker = connection.create_sender(f"/queue/{name}")
    asker.send(message(body="?", reply_to=address, correlation_id=7))
    service = connection.create_receiver(f"/queue/{name}")
    asked = service.receive(SECONDS)
    service.accept()
    relay = connection.create_sender(None)
    answer = message(body="!", address=asked.reply_to, correlation_id=asked.correlation_id)
    relay.send(answer)
    got = answers.receive(SECONDS)
    assert (got.body, got.correlation_id) == ("!", 7)


def test_a_stream_is_read_from_an_offset(
    connection: Any, penstock_channel: BlockingChannel, name: str
) -> None:
    proton = need_proton()
    penstock_channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
    sender = connection.create_sender(f"/stream/{name}")
    for number in range(5):
        sender.send(message(body=number))
    spec = proton.symbol("rabbitmq:stream-offset-spec")

    class From(proton.reactor.Filter):  # type: ignore[name-defined,misc]
        def __init__(self, value: Any) -> None:
            super().__init__({spec: proton.Described(spec, value)})

    for start, expected in (("first", 0), (proton.ulong(3), 3), ("last", None)):
        receiver = connection.create_receiver(
            f"/stream/{name}", options=From(start), credit=10, name=f"{name}-{start}"
        )
        got = receiver.receive(SECONDS)
        offset = got.annotations[proton.symbol("x-stream-offset")]
        assert got.body == offset
        if expected is not None:
            assert offset == expected
        receiver.close()


def test_a_receiver_takes_what_there_is_and_no_more(connection: Any, name: str) -> None:
    proton = need_proton()
    sender = connection.create_sender(f"/queue/{name}")
    sender.send(message(body="only"))
    receiver = connection.create_receiver(f"/queue/{name}", credit=0)
    link = receiver.link
    link.drain(10)
    connection.wait(lambda: receiver.fetcher.has_message and not link.credit, timeout=SECONDS)
    assert receiver.receive(SECONDS).body == "only"
    with pytest.raises(proton.Timeout):
        receiver.receive(timeout=0.05)


def test_a_durable_subscription_waits_for_its_subscriber(penstock: Penstock, name: str) -> None:
    proton = need_proton()
    durable = proton.reactor.DurableSubscription()
    topic = f"/topic/{name}.*"
    with connected(penstock.port, container=_container(name)) as connection:
        subscription = connection.create_receiver(topic, name="mine", options=durable)
        subscription.link.detach()
    with connected(penstock.port) as connection:
        connection.create_sender("/exchange/amq.topic").send(
            message(body="while away", subject=f"{name}.news")
        )
    with connected(penstock.port, container=_container(name)) as connection:
        subscription = connection.create_receiver(topic, name="mine", options=durable)
        assert subscription.receive(SECONDS).body == "while away"
        subscription.accept()
        subscription.close()


def _container(name: str) -> Any:
    container = need_proton().reactor.Container()
    container.container_id = name
    return container


def test_idle_connections_are_kept_by_heartbeats(penstock: Penstock, name: str) -> None:
    with connected(penstock.port, heartbeat=0.4) as connection:
        receiver = connection.create_receiver(f"/queue/{name}")
        proton = need_proton()
        with pytest.raises(proton.Timeout):
            receiver.receive(timeout=1.5)  # longer than either side would wait in silence
        connection.create_sender(f"/queue/{name}").send(message(body="still here"))
        assert receiver.receive(SECONDS).body == "still here"


def test_a_gigantic_message_is_refused_and_the_connection_lives(
    new_penstock: Any, name: str
) -> None:
    proton = need_proton()
    server = new_penstock(environment={"PENSTOCK_BROKER__MAX_MESSAGE_BYTES": "1MiB"})
    with connected(server.port) as connection:
        sender = connection.create_sender(f"/queue/{name}")
        with pytest.raises((proton.utils.LinkDetached, proton.utils.SendException)):
            sender.send(message(body=bytes(3 << 20)))
        connection.create_sender(f"/queue/{name}", name="again").send(message(body="small"))
        assert connection.create_receiver(f"/queue/{name}").receive(SECONDS).body == "small"
