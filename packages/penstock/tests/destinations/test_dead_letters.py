"""Dead letters: where they go, and what their history says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock.broker.contract import EXPIRES, Message
from penstock.core.basic_properties import decode_header
from tests.doubles import Client, Stand, message, persistent, push_all


def take(queue: Any) -> Message:
    consumer = Client(queue, settled=True).request(1)
    consumer.close()
    (fragment, _) = consumer.ear.forwarded[0]
    assert isinstance(fragment, Message)
    return fragment


def headers_of(one: Message) -> dict[str, Any]:
    return decode_header(one.header).headers or {}


def reject_all(queue: Any) -> None:
    consumer = Client(queue).request()
    consumer.close()
    for delivery in consumer.ear.deliveries:
        consumer.fail(delivery, requeue=False)


async def test_a_rejected_message_tells_where_it_died_and_why(stand: Stand) -> None:
    dead = stand.queue("dead")
    queue = stand.queue(dead_letter_exchange="", dead_letter_routing_key="dead")
    queue.push(message(b"body", "key", exchange="ex", headers={"mine": 1}, content_type="text/x"))
    reject_all(queue)

    letter = take(dead)
    assert (letter.exchange, letter.routing_key, letter.body) == ("", "dead", b"body")
    assert decode_header(letter.header).content_type == "text/x"
    headers = headers_of(letter)
    (death,) = headers.pop("x-death")
    when = death.pop("time")
    assert abs(when - datetime.now(UTC)) < timedelta(seconds=10)
    assert death == {
        "count": 1,
        "exchange": "ex",
        "queue": "q",
        "reason": "rejected",
        "routing-keys": ["key"],
    }
    assert headers == {
        "mine": 1,
        "x-first-death-exchange": "ex",
        "x-first-death-queue": "q",
        "x-first-death-reason": "rejected",
    }


async def test_without_a_key_of_its_own_it_keeps_its_key(stand: Stand) -> None:
    stand.exchange("dlx", "topic")
    dead = stand.queue("dead")
    stand.vhost.bind("dlx", dead, "key.#")
    queue = stand.queue(dead_letter_exchange="dlx")
    queue.push(message(b"1", "key.one"))
    reject_all(queue)
    letter = take(dead)
    assert (letter.exchange, letter.routing_key) == ("dlx", "key.one")


@pytest.mark.parametrize("reason", ["expired", "maxlen", "rejected", "delivery_limit"])
async def test_every_way_to_die_has_its_name(stand: Stand, reason: str) -> None:
    dead = stand.queue("dead")
    limits: dict[str, Any] = {
        "expired": {"message_ttl": 10},
        "maxlen": {"max_length": 1},
        "rejected": {},
        "delivery_limit": {"delivery_limit": 0},
    }[reason]
    queue = stand.queue(dead_letter_exchange="", dead_letter_routing_key="dead", **limits)
    push_all(queue, b"1")
    if reason == "expired":
        stand.clock.advance(1)
    elif reason == "maxlen":
        push_all(queue, b"2")
    else:
        consumer = Client(queue).request(1)
        consumer.fail(consumer.ear.deliveries[0], requeue=reason == "delivery_limit")
    assert headers_of(take(dead))["x-first-death-reason"] == reason


async def test_its_own_time_to_live_ends_with_its_first_life(stand: Stand) -> None:
    """Else it would expire again in the queue of the dead."""
    dead = stand.queue("dead")
    queue = stand.queue(dead_letter_exchange="", dead_letter_routing_key="dead")
    queue.push(message(expiration="100"))
    stand.clock.advance(1)
    stand.clock.advance(10)
    letter = take(dead)
    assert decode_header(letter.header).expiration is None
    assert not letter.flags & EXPIRES
    assert headers_of(letter)["x-death"][0]["original-expiration"] == "100"


async def test_dying_again_in_the_same_way_is_counted(stand: Stand) -> None:
    queue = stand.queue(dead_letter_exchange="", dead_letter_routing_key="q")
    push_all(queue, b"1")
    for _ in range(3):
        reject_all(queue)
    (death,) = headers_of(take(queue))["x-death"]
    assert (death["count"], death["reason"]) == (3, "rejected")


async def test_the_latest_death_comes_first_and_the_first_is_remembered(stand: Stand) -> None:
    one = stand.queue("one", dead_letter_exchange="", dead_letter_routing_key="two")
    two = stand.queue("two", dead_letter_exchange="", dead_letter_routing_key="three")
    three = stand.queue("three")
    push_all(one, b"1")
    reject_all(one)
    reject_all(two)
    headers = headers_of(take(three))
    assert [death["queue"] for death in headers["x-death"]] == ["two", "one"]
    assert headers["x-first-death-queue"] == "one"


async def test_a_circle_without_a_reject_ends(stand: Stand) -> None:
    queue = stand.queue(message_ttl=10, dead_letter_exchange="", dead_letter_routing_key="q")
    push_all(queue, b"1")
    stand.clock.advance(1)
    assert queue.ready == 0


async def test_a_circle_over_a_reject_goes_on(stand: Stand) -> None:
    """The way retries with a delay are built: work is rejected, waits, and comes again."""
    work = stand.queue("work", dead_letter_exchange="", dead_letter_routing_key="wait")
    stand.queue("wait", message_ttl=10, dead_letter_exchange="", dead_letter_routing_key="work")
    push_all(work, b"job")
    for _ in range(3):
        reject_all(work)
        stand.clock.advance(1)
        assert work.ready == 1
    counts = {death["queue"]: death["count"] for death in headers_of(take(work))["x-death"]}
    assert counts == {"work": 3, "wait": 3}


async def test_nonsense_under_the_names_of_history_is_ignored(stand: Stand) -> None:
    dead = stand.queue("dead")
    queue = stand.queue(dead_letter_exchange="", dead_letter_routing_key="dead")
    for nonsense in ("text", [1, "a"], [{"queue": 7}], {"a": 1}):
        queue.push(message(headers={"x-death": nonsense}))
    reject_all(queue)
    for _ in range(4):
        assert [death["queue"] for death in headers_of(take(dead))["x-death"]] == ["q"]


@pytest.mark.parametrize("exchange", ["gone", ""])
async def test_with_nowhere_to_go_it_is_dropped(stand: Stand, exchange: str) -> None:
    queue = stand.queue(dead_letter_exchange=exchange, dead_letter_routing_key="nowhere")
    push_all(queue, b"1")
    reject_all(queue)
    assert (queue.ready, queue.unacknowledged, stand.pool.used) == (0, 0, 0)


async def test_the_dead_of_a_durable_queue_are_in_one_log_at_every_moment(stand: Stand) -> None:
    stand.queue("dead", durable=True)
    queue = stand.queue(durable=True, dead_letter_exchange="", dead_letter_routing_key="dead")
    queue.push(persistent(b"1"))
    reject_all(queue)
    await stand.synced()
    stand = await stand.reopened()
    assert (stand.vhost.queues["q"].message_count, stand.vhost.queues["dead"].message_count) == (
        0,
        1,
    )
    await stand.close()
