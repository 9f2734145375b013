"""Shared subscriptions: each message to one of the group, and to one that can take it."""

from __future__ import annotations

from typing import Any

from penstock.broker.sessions import Subscription
from tests.doubles import Stand
from tests.drivers.session.given import (
    Subscriber,
    found_session,
    new_session,
    publication,
    publish,
    subscribe,
)


def group(stand: Stand, pattern: str = "a") -> Any:
    queue = stand.queue("mqtt-shared-g/" + pattern, durable=True)
    stand.vhost.bind("amq.topic", queue, pattern)
    return queue


def member(
    stand: Stand, queue: Any, name: str, window: int = 10, qos: int = 2
) -> tuple[Any, Subscriber]:
    session = new_session(stand, name)
    client = Subscriber(session, window)
    session.join(queue, Subscription("a", qos))
    return session, client


async def test_members_take_turns(stand: Stand) -> None:
    queue = group(stand)
    _, one = member(stand, queue, "one")
    _, other = member(stand, queue, "other")
    publish(stand, *[publication(b"%d" % n) for n in range(4)])
    assert sorted(one.ear.bodies + other.ear.bodies) == [b"0", b"1", b"2", b"3"]
    assert len(one.ear.bodies) == len(other.ear.bodies) == 2


async def test_a_member_whose_window_is_full_holds_nothing_back_from_the_others(
    stand: Stand,
) -> None:
    queue = group(stand)
    slow_session, slow = member(stand, queue, "slow", window=1)
    _, quick = member(stand, queue, "quick", window=1)
    for n in range(6):
        publish(stand, publication(b"%d" % n))
        for letter in quick.letters:
            if letter.number in quick.driver.letters:
                quick.answer(letter)
    assert len(slow.ear.bodies) == 1
    assert slow_session.message_count == 0
    assert len(quick.ear.bodies) == 5


async def test_what_was_not_answered_before_a_restart_keeps_the_quality_of_its_share(
    stand: Stand,
) -> None:
    queue = group(stand)
    session, client = member(stand, queue, "one", qos=1)
    subscribe(stand, session, "b", 0, identifier=3)
    publish(stand, publication(b"shared"))
    after = await stand.reopened()
    session = found_session(after, "one")
    session.join(after.vhost.queues[queue.name], Subscription("a", 1))
    client = Subscriber(session)
    (letter,) = client.letters
    assert (letter.qos, letter.grant.identifiers) == (1, ())
    await after.close()


async def test_what_waits_in_the_group_grows_old_there(stand: Stand) -> None:
    queue = group(stand)
    publish(stand, publication(b"old", expiry=100))
    stand.clock.advance(30)
    _, client = member(stand, queue, "late")
    (letter,) = client.letters
    assert letter.expires - stand.clock.time() == 70
