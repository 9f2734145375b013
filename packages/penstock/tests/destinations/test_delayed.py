"""Delayed exchanges: a message waits its time, and then goes where the rule behind says."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker.contract import Message
from penstock.core.basic_properties import decode_header
from penstock.core.errors import PreconditionFailed
from tests.destinations.test_large_messages import (
    BODY,
    body_of,
    nothing_is_left,
    opening,
    post,
)
from tests.doubles import Client, Stand, message, persistent


def delayed(stand: Stand, name: str = "later", rule: str = "direct", durable: bool = True) -> Any:
    return stand.exchange(
        name, "x-delayed-message", durable=durable, arguments={"x-delayed-type": rule}
    )


def bound(stand: Stand, exchange: str = "later", **options: Any) -> Any:
    queue = stand.queue(**options)
    stand.vhost.bind(exchange, queue, "key")
    return queue


async def test_a_message_waits_its_time(stand: Stand) -> None:
    delayed(stand)
    queue = bound(stand)
    publisher = stand.publisher("later")
    publisher.post(message(b"late", headers={"x-delay": 2000}), 1)
    publisher.post(message(b"soon", headers={"x-delay": 1000}))
    publisher.post(message(b"now"))
    assert (queue.ready, publisher.ear.confirmed) == (1, [1])
    stand.clock.advance(1.5)
    assert queue.ready == 2
    stand.clock.advance(1)
    assert Client(queue).request().ear.bodies == [b"now", b"soon", b"late"]


async def test_equals_keep_their_order(stand: Stand) -> None:
    delayed(stand)
    queue = bound(stand)
    for number in range(5):
        stand.publisher("later").post(message(b"%d" % number, headers={"x-delay": 10}))
    stand.clock.advance(1)
    assert Client(queue).request().ear.bodies == [b"0", b"1", b"2", b"3", b"4"]


async def test_its_delay_is_negated_so_that_a_consumer_sees_it(stand: Stand) -> None:
    delayed(stand)
    queue = bound(stand)
    stand.publisher("later").post(message(headers={"x-delay": 10, "mine": "a"}))
    stand.clock.advance(1)
    seen = Client(queue).request().ear.forwarded[0][0]
    assert isinstance(seen, Message)
    assert decode_header(seen.header).headers == {"x-delay": -10, "mine": "a"}


@pytest.mark.parametrize("delay", [0, -5, "10", None])
async def test_what_is_no_delay_delays_nothing(stand: Stand, delay: Any) -> None:
    delayed(stand)
    queue = bound(stand)
    stand.publisher("later").post(message(headers={"x-delay": delay}))
    assert queue.ready == 1


async def test_what_waits_survives_a_restart_and_its_waiting_goes_on(stand: Stand) -> None:
    delayed(stand)
    bound(stand, durable=True)
    publisher = stand.publisher("later")
    publisher.post(persistent(b"kept", headers={"x-delay": 60_000}))
    publisher.post(message(b"lost", headers={"x-delay": 60_000}))
    stand = await stand.reopened()
    queue = stand.vhost.queues["q"]
    assert queue.message_count == 0
    stand.clock.advance(61)
    assert Client(queue).request().ear.bodies == [b"kept"]
    await stand.synced()
    stand = await stand.reopened()
    stand.clock.advance(120)
    assert stand.vhost.queues["q"].message_count == 1, "once, and from the queue's log"
    await stand.close()


async def test_a_dead_letter_may_be_delayed_by_an_exchange_of_its_queues_name(
    stand: Stand,
) -> None:
    delayed(stand, "q")
    queue = stand.queue(message_ttl=0, dead_letter_exchange="q", dead_letter_routing_key="key")
    other = stand.queue("other")
    stand.vhost.bind("q", other, "key")
    queue.push(message(headers={"x-delay": 1000}))
    stand.clock.advance(0)
    assert other.ready == 0
    stand.clock.advance(2)
    assert other.ready == 1


async def test_a_deleted_exchange_forgets_what_waits(stand: Stand) -> None:
    delayed(stand)
    queue = bound(stand)
    stand.publisher("later").post(persistent(headers={"x-delay": 1000}))
    stand.vhost.delete_exchange("later")
    stand.clock.advance(2)
    assert queue.ready == 0
    assert not list((stand.directory / "delayed").iterdir())


async def test_a_large_message_waits_over_a_restart_and_arrives_whole(stand: Stand) -> None:
    delayed(stand)
    await post(
        stand,
        stand.publisher("later"),
        opening("key", delivery_mode=2, headers={"x-delay": 60_000}),
    )
    stand = await stand.reopened()
    queue = bound(stand)
    stand.clock.advance(61)
    consumer = Client(queue, settled=True).request(1)
    assert await body_of(consumer) == BODY
    consumer.ear.forwarded.clear()
    assert nothing_is_left(stand)
    await stand.close()


@pytest.mark.parametrize("rule", [None, "x-delayed-message", "unheard"])
async def test_the_rule_behind_must_exist(stand: Stand, rule: Any) -> None:
    with pytest.raises(PreconditionFailed, match="x-delayed-type"):
        delayed(stand, rule=rule)
    assert "later" not in stand.vhost.exchanges
