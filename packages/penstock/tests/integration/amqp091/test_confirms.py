"""Publisher confirms on the wire: numbered from one, single or multiple, every one exactly once."""

from __future__ import annotations

import pytest
from pika import spec

from tests.integration.amqp091.wire import Wire, message_bytes


@pytest.fixture
def confirming(open_wire: Wire) -> Wire:
    assert open_wire.call(1, spec.Confirm.Select()).NAME == "Confirm.SelectOk"
    return open_wire


def confirmed_up_to(wire: Wire, count: int) -> list[int]:
    """Read confirms until this many messages are, and return their numbers."""
    outstanding = set(range(1, count + 1))
    order: list[int] = []
    while outstanding:
        answer = wire.receive_method()
        assert answer.NAME == "Basic.Ack", answer
        covered = {answer.delivery_tag}
        if answer.multiple:
            covered = {number for number in outstanding if number <= answer.delivery_tag}
        assert covered <= outstanding, "confirmed twice, or never published"
        outstanding -= covered
        order.extend(sorted(covered))
    return order


def test_selecting_twice_is_fine(confirming: Wire) -> None:
    assert confirming.call(1, spec.Confirm.Select()).NAME == "Confirm.SelectOk"


@pytest.mark.parametrize("mode", [1, 2], ids=["transient", "persistent"])
@pytest.mark.parametrize("durable", [False, True], ids=["transient-queue", "durable-queue"])
def test_each_message_is_confirmed_once(
    confirming: Wire, name: str, mode: int, durable: bool
) -> None:
    confirming.call(1, spec.Queue.Declare(queue=name, durable=durable))
    properties = spec.BasicProperties(delivery_mode=mode)

    confirming.send(
        b"".join(
            message_bytes(1, b"body", routing_key=name, properties=properties) for _ in range(500)
        )
    )

    assert sorted(confirmed_up_to(confirming, 500)) == list(range(1, 501))
    confirming.call(1, spec.Queue.Delete(queue=name))


def test_unroutable_messages_are_confirmed_too(confirming: Wire, name: str) -> None:
    confirming.send(message_bytes(1, b"", routing_key=name) * 10)

    assert sorted(confirmed_up_to(confirming, 10)) == list(range(1, 11))


def test_numbers_begin_when_confirms_were_selected(open_wire: Wire, name: str) -> None:
    open_wire.send(message_bytes(1, b"", routing_key=name) * 3)
    open_wire.call(1, spec.Confirm.Select())

    open_wire.send(message_bytes(1, b"", routing_key=name))

    assert open_wire.receive_method().delivery_tag == 1


def test_a_return_comes_before_its_confirm(confirming: Wire, name: str) -> None:
    confirming.send(message_bytes(1, b"", routing_key=name, mandatory=True))

    assert confirming.receive_method().NAME == "Basic.Return"
    assert confirming.receive_method().NAME == "Basic.Ack"


def test_a_message_to_several_queues_is_confirmed_once(confirming: Wire, name: str) -> None:
    for number in range(3):
        queue = f"{name}.{number}"
        confirming.call(1, spec.Queue.Declare(queue=queue, durable=number == 0, auto_delete=True))
        confirming.call(1, spec.Queue.Bind(queue=queue, exchange="amq.direct", routing_key=name))

    properties = spec.BasicProperties(delivery_mode=2)
    message = message_bytes(1, b"", exchange="amq.direct", routing_key=name, properties=properties)
    confirming.send(message * 20)

    assert sorted(confirmed_up_to(confirming, 20)) == list(range(1, 21))
    for number in range(3):
        confirming.call(1, spec.Queue.Delete(queue=f"{name}.{number}"))


def test_refused_and_safe_messages_have_one_answer_each(confirming: Wire, name: str) -> None:
    full, roomy = f"{name}.full", f"{name}.roomy"
    limits = {"x-max-length": 1, "x-overflow": "reject-publish"}
    confirming.call(1, spec.Queue.Declare(queue=full, exclusive=True, arguments=limits))
    confirming.call(1, spec.Queue.Declare(queue=roomy, durable=True, exclusive=True))
    properties = spec.BasicProperties(delivery_mode=2)
    confirming.send(message_bytes(1, b"takes the room", routing_key=full))
    assert confirming.receive_method().NAME == "Basic.Ack"

    tags = range(2, 202)
    keys = {tag: full if tag % 3 == 0 else roomy for tag in tags}
    confirming.send(
        b"".join(
            message_bytes(1, b"", routing_key=keys[tag], properties=properties) for tag in tags
        )
    )

    pending, answered = set(tags), dict[int, str]()
    while pending:
        answer = confirming.receive_method()
        assert answer.delivery_tag in pending, "it has had its answer"
        covered = {answer.delivery_tag}
        if answer.multiple:
            covered = {tag for tag in pending if tag <= answer.delivery_tag}
        pending -= covered
        answered |= dict.fromkeys(covered, answer.NAME)
    outcomes = {full: "Basic.Nack", roomy: "Basic.Ack"}
    assert answered == {tag: outcomes[key] for tag, key in keys.items()}
