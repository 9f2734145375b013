"""A queue as its clients meet it, one behaviour at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.broker.contract import ACCEPTED, LOGGED
from penstock.broker.message_run import MessageRun
from penstock.core.errors import NotFound, PreconditionFailed
from tests.doubles import Client, Stand, message, persistent, push_all


async def test_messages_wait_for_a_consumer_and_come_in_order(stand: Stand) -> None:
    queue = stand.queue()
    push_all(queue, b"1", b"2", b"3")
    assert Client(queue).request().ear.bodies == [b"1", b"2", b"3"]
    assert (queue.ready, queue.unacknowledged) == (0, 3)


async def test_a_consumer_gets_no_more_than_its_credit(stand: Stand) -> None:
    queue = stand.queue()
    consumer = Client(queue).request(2)
    push_all(queue, b"1", b"2", b"3")
    assert (consumer.ear.bodies, consumer.credit) == ([b"1", b"2"], 0)
    consumer.request(1)
    assert consumer.ear.bodies == [b"1", b"2", b"3"]


async def test_no_credit_is_a_pause(stand: Stand) -> None:
    queue = stand.queue()
    consumer = Client(queue).request(5)
    consumer.request(0)
    push_all(queue, b"1")
    assert (consumer.ear.bodies, queue.ready) == ([], 1)


async def test_consumers_are_served_in_turn(stand: Stand) -> None:
    queue = stand.queue()
    one, other = Client(queue).request(), Client(queue).request()
    push_all(queue, b"1", b"2", b"3", b"4")
    assert (one.ear.bodies, other.ear.bodies) == ([b"1", b"3"], [b"2", b"4"])


async def test_what_is_put_back_stands_where_it_stood_and_says_so(stand: Stand) -> None:
    queue = stand.queue()
    push_all(queue, b"1", b"2", b"3", b"4")
    consumer = Client(queue).request(3)
    first, second, third = consumer.ear.deliveries
    consumer.fail(third)
    consumer.fail(first)
    consumer.confirm(second)
    again = Client(queue).request()
    assert again.ear.bodies == [b"1", b"3", b"4"]
    assert [delivery.count for delivery in again.ear.deliveries] == [1, 1, 0]


async def test_a_consumer_may_answer_after_it_has_left(stand: Stand) -> None:
    queue = stand.queue()
    push_all(queue, b"1", b"2")
    consumer = Client(queue).request(2)
    consumer.close()
    consumer.confirm(consumer.ear.deliveries[0])
    consumer.fail(consumer.ear.deliveries[1])
    assert (queue.ready, queue.unacknowledged, queue.consumer_count) == (1, 0, 0)


async def test_a_pull_takes_one_and_is_no_consumer(stand: Stand) -> None:
    queue = stand.queue()
    push_all(queue, b"1", b"2")
    puller = Client(queue, pull=True)
    assert queue.consumer_count == 0
    puller.request(1)
    assert (puller.ear.bodies, queue.ready) == ([b"1"], 1)
    puller.close()


async def test_a_settled_consumer_owes_no_answer(stand: Stand) -> None:
    queue = stand.queue()
    push_all(queue, b"1")
    consumer = Client(queue, settled=True).request()
    push_all(queue, b"2")
    assert (consumer.ear.bodies, queue.unacknowledged) == ([b"1", b"2"], 0)


async def test_posting_to_a_queue_is_posting_to_the_default_exchange(stand: Stand) -> None:
    """`/queue/NAME` is an address to publish to as well: such a channel is no consumer."""
    queue = stand.queue(auto_delete=False)
    publisher = Client(stand.vhost.lookup("/queue/q"), post=True)
    assert queue.consumer_count == 0
    publisher.post(message(b"1", "q"), 7)
    assert publisher.ear.confirmed == [7]
    publisher.close()
    assert Client(queue).request().ear.bodies == [b"1"]


async def test_persistence_is_the_durable_queues(stand: Stand) -> None:
    durable, transient = stand.queue("d", durable=True), stand.queue("t")
    assert durable.push(persistent()) == LOGGED
    assert durable.push(message()) == ACCEPTED
    assert transient.push(persistent()) == ACCEPTED


async def test_a_persistent_message_is_logged_on_its_way_to_a_waiting_consumer(
    stand: Stand,
) -> None:
    queue = stand.queue(durable=True)
    Client(queue).request(1)
    assert queue.push(persistent(b"1")) == LOGGED
    stand = await stand.reopened()
    again = Client(stand.vhost.queues["q"]).request(1)
    assert again.ear.bodies == [b"1"]
    assert again.ear.deliveries[0].count > 0
    await stand.close()


async def test_every_message_that_comes_back_from_a_restart_is_marked_also_those_that_are_paged(
    stand: Stand,
) -> None:
    queue = stand.queue(durable=True)
    for number in range(20):
        queue.push(persistent(b"%d" % number))
    await stand.close()
    stand = Stand(stand.directory, queue_memory_bytes=1000)
    again = Client(stand.vhost.queues["q"]).request()
    assert [delivery.count for delivery in again.ear.deliveries] == [1] * 20
    await stand.close()


async def test_what_was_confirmed_does_not_come_back(stand: Stand) -> None:
    queue = stand.queue(durable=True)
    consumer = Client(queue).request()
    for body in (b"1", b"2", b"3"):
        queue.push(persistent(body))
    consumer.confirm(consumer.ear.deliveries[1])
    stand = await stand.reopened()
    assert Client(stand.vhost.queues["q"]).request().ear.bodies == [b"1", b"3"]
    await stand.close()


async def test_what_was_confirmed_together_does_not_come_back(stand: Stand) -> None:
    queue = stand.queue(durable=True)
    consumer = Client(queue).request()
    for number in range(10):
        queue.push(persistent(b"%d" % number) if number != 8 else message(b"8"))
    deliveries = consumer.ear.deliveries
    queue.channel_confirm_run(consumer, deliveries[:3])  # from the first on
    queue.channel_confirm_run(consumer, deliveries[5:7])  # after a gap
    queue.channel_confirm_run(consumer, deliveries[7:9])  # one of them is transient
    assert (queue.unacknowledged, queue.acknowledged) == (3, 7)
    stand = await stand.reopened()
    assert Client(stand.vhost.queues["q"]).request().ear.bodies == [b"3", b"4", b"9"]
    await stand.close()


async def test_a_purge_empties_what_waits_and_leaves_what_is_out(stand: Stand) -> None:
    queue = stand.queue(durable=True)
    for body in (b"1", b"2", b"3"):
        queue.push(persistent(body))
    consumer = Client(queue).request(1)
    assert queue.purge() == 2
    assert (queue.ready, queue.ready_bytes, queue.unacknowledged) == (0, 0, 1)
    stand = await stand.reopened()
    assert Client(stand.vhost.queues["q"]).request().ear.bodies == [b"1"]
    del consumer
    await stand.close()


async def test_deleting_tells_the_consumers_and_gives_the_memory_back(stand: Stand) -> None:
    queue = stand.queue(durable=True)
    for body in (b"1", b"2", b"3"):
        queue.push(persistent(body))
    consumer = Client(queue).request(1)
    assert stand.vhost.delete_queue("q") == 2
    ((receipt, error),) = consumer.ear.failed
    assert (receipt, type(error)) == (0, NotFound)
    consumer.fail(consumer.ear.deliveries[0])  # the answer it owed
    assert stand.pool.used == 0
    assert not list((stand.directory / "queues").glob("*/*"))


async def test_an_auto_delete_queue_goes_with_its_last_consumer(stand: Stand) -> None:
    queue = stand.vhost.declare_queue("q", auto_delete=True)
    one, other = Client(queue), Client(queue)
    one.close()
    assert "q" in stand.vhost.queues
    other.close()
    assert "q" not in stand.vhost.queues


@pytest.mark.parametrize("priority", ["high", 1.5, True])
async def test_a_consumer_priority_is_a_whole_number(stand: Stand, priority: Any) -> None:
    queue = stand.queue()
    with pytest.raises(PreconditionFailed, match="x-priority"):
        Client(queue, x_priority=priority)
    assert queue.consumer_count == 0


@pytest.mark.parametrize("kind", ["classic", "stream"])
async def test_a_name_may_be_as_long_as_the_protocol_allows(tmp_path: Path, kind: str) -> None:
    stand = Stand(tmp_path)
    names = ["n" * 255, "n" * 254 + "o", "é" * 127, "a/b", ".."]
    for name in names:
        queue = stand.queue(name, durable=True, queue_type=kind)
        queue.push(persistent(name.encode()))
    stand = await stand.reopened()
    assert sorted(stand.vhost.queues) == sorted(names)
    assert all(stand.vhost.queues[name].message_count == 1 for name in names)
    await stand.close()


async def test_describe_speaks_rabbitmqs_words(stand: Stand) -> None:
    queue = stand.queue(max_length=9)
    push_all(queue, b"12", b"345")
    Client(queue).request(1)
    told = queue.describe()
    assert told["arguments"] == {"x-max-length": 9}
    assert (told["messages"], told["messages_ready"], told["messages_unacknowledged"]) == (2, 1, 1)
    assert (told["message_bytes_ready"], told["consumers"]) == (3, 1)


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("credit", [1, 2, 5, 6])
async def test_a_run_goes_to_a_consumer_as_far_as_it_has_credit(
    stand: Stand, durable: bool, credit: int
) -> None:
    queue = stand.queue(durable=durable)
    bodies = [b"%d" % number for number in range(6)]
    consumer = Client(queue).request(credit)
    consumer.request(credit)
    queue.push_run(MessageRun.of([persistent(body) for body in bodies]))
    assert consumer.ear.bodies == bodies[:credit]
    assert (queue.unacknowledged, queue.ready) == (credit, 6 - credit)
    consumer.request(6)
    assert consumer.ear.bodies == bodies
