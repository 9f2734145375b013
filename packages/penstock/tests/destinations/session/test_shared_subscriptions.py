"""Shared subscriptions: each message to one of the group, and to one that can take it."""

from __future__ import annotations

from typing import Any

from penstock.broker.contract import Fragment, TopicSubscription
from penstock.broker.spool import Spool
from tests.destinations.session.given import (
    Subscriber,
    found_session,
    new_session,
    publication,
    publish,
    subscribe,
)
from tests.doubles import Stand


def group(stand: Stand, pattern: str = "a") -> Any:
    queue = stand.queue("mqtt-shared-g/" + pattern, durable=True)
    stand.vhost.bind("amq.topic", queue, pattern)
    return queue


def spooled(stand: Stand, body: bytes) -> Spool:
    spool = Spool(stand.kernel.spools.directory / "large", owned=True)
    spool.write(memoryview(body))
    return spool


def member(
    stand: Stand, queue: Any, name: str, window: int = 10, qos: int = 2
) -> tuple[Any, Subscriber]:
    session = new_session(stand, name)
    client = Subscriber(session, window)
    session.join(queue, TopicSubscription("a", qos))
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
    quick_session, quick = member(stand, queue, "quick", window=1)
    for n in range(6):
        publish(stand, publication(b"%d" % n))
        for entry in quick.inflight:
            if entry.packet_id in quick_session.inflight:
                quick.answer(entry)
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
    session.join(after.vhost.queues[queue.name], TopicSubscription("a", 1))
    client = Subscriber(session)
    (entry,) = client.inflight
    assert (entry.qos, entry.subscription.identifiers) == (1, ())
    await after.close()


async def test_what_waits_in_the_group_grows_old_there(stand: Stand) -> None:
    queue = group(stand)
    publish(stand, publication(b"old", expiry=100))
    stand.clock.advance(30)
    _, client = member(stand, queue, "late")
    (entry,) = client.inflight
    assert entry.expires - stand.clock.time() == 70


async def test_what_a_deleted_member_did_not_answer_goes_to_another(stand: Stand) -> None:
    queue = group(stand)
    first, client = member(stand, queue, "first")
    publish(stand, publication(b"at least once"), publication(b"exactly once", qos=2))
    assert len(client.inflight) == 2
    _, other = member(stand, queue, "other")
    stand.vhost.delete_queue(first.name)
    assert other.ear.bodies == [b"at least once"]


async def test_a_member_that_is_away_keeps_what_it_was_given(stand: Stand) -> None:
    queue = group(stand)
    session, client = member(stand, queue, "first")
    publish(stand, publication(b"its own"))
    client.close()
    _, other = member(stand, queue, "other")
    publish(stand, publication(b"another's"))
    assert other.ear.bodies == [b"another's"]
    assert Subscriber(session).ear.bodies == [b"its own"]


async def test_who_left_gets_nothing_more(stand: Stand) -> None:
    queue = group(stand)
    session, client = member(stand, queue, "first")
    session.leave(queue.name)
    publish(stand, publication())
    assert not client.ear.bodies
    assert queue.message_count == 1


async def test_a_group_that_is_deleted_is_left(stand: Stand) -> None:
    queue = group(stand)
    session, client = member(stand, queue, "first")
    stand.vhost.delete_queue(queue.name)
    assert session.subscription_count == 0
    publish(stand, publication())
    client.request()
    assert not client.ear.bodies


async def test_a_large_message_goes_to_one_member_whole(stand: Stand) -> None:
    queue = group(stand)
    clients = [member(stand, queue, name)[1] for name in ("one", "other")]
    body = bytes(1000) * 600
    large = publication(body)
    large.body = b""
    large.spool = spooled(stand, body)
    publish(stand, large)
    del large
    (taker,) = [client for client in clients if client.ear.forwarded]
    while taker.ear.forwarded[-1][0].more:
        seen = len(taker.ear.forwarded)
        taker.request()
        await taker.ear.until_more(seen)
    got = b""
    for fragment, _ in taker.ear.forwarded:
        got += fragment.body
        if isinstance(fragment, Fragment):
            fragment.bucket.release()
    assert got == body
    taker.answer(taker.inflight[0])
    stand.kernel.write_batch.flush()
    assert queue.message_count == queue.unacknowledged == 0
    assert not list((stand.kernel.directory / "queues").rglob("*.body"))
    assert stand.pool.used == 0
