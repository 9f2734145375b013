"""A session as its client and the exchanges meet it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker import write_batch as write_batch_module
from penstock.broker.contract import TopicSubscription
from penstock.core.config import MqttSettings
from penstock.core.errors import NotFound, ResourceLocked
from tests.destinations.session.given import (
    Subscriber,
    found_session,
    new_session,
    publication,
    publish,
    publish_run,
    subscribe,
)
from tests.doubles import Client, Stand

# Exactly once, towards the broker.


async def test_what_was_received_is_known_whatever_the_session_holds_first(stand: Stand) -> None:
    session = new_session(stand)
    subscribe(stand, session)
    session.add_received(1)
    stand.kernel.write_batch.flush()
    session.add_received(7)
    publish(stand, publication())
    assert session.received == {1, 7}


async def test_what_is_released_in_the_same_turn_stays_released(stand: Stand) -> None:
    session = new_session(stand)
    subscribe(stand, session)
    session.add_received(1)
    stand.kernel.write_batch.flush()
    session.release_received(1)
    publish(stand, publication())
    assert session.received == set()


# What is kept for those who come later.


async def test_recalled_messages_do_not_come_again_behind_what_waits_on_disk(
    tmp_path: Path,
) -> None:
    stand = Stand(tmp_path, queue_memory_bytes=1000)
    session = new_session(stand)
    subscribe(stand, session, "#", 1)
    publish(stand, *[publication(b"%d" % n) for n in range(20)])
    stand.vhost.retained.retain(publication(b"kept", "kept", retain=True))
    client = Subscriber(session, 100, credit=0)
    session.deliver_past(stand.vhost.retained.messages(b"kept"), TopicSubscription("kept", 1))
    client.request()
    assert sorted(client.ear.bodies) == sorted([b"kept", *[b"%d" % n for n in range(20)]])
    for entry in client.inflight:
        client.answer(entry)
    client.close()
    publish(stand, publication(b"next"))
    assert Subscriber(session).ear.bodies == [b"next"]
    await stand.close()


# Who may read from it.


async def test_nobody_but_the_client_reads_from_it(stand: Stand) -> None:
    session = new_session(stand)
    with pytest.raises(ResourceLocked):
        Client(session)
    with pytest.raises(ResourceLocked):
        Client(session, pull=True)


# Quality.


async def test_what_waited_is_delivered_as_the_subscription_that_brought_it_says(
    stand: Stand,
) -> None:
    session = new_session(stand)
    subscribe(stand, session, "a", 1)
    publish(stand, publication(b"promised"))
    stand.vhost.unbind("amq.topic", session, "a", TopicSubscription("a", 1).arguments)
    subscribe(stand, session, "b", 0, identifier=9)
    client = Subscriber(session)
    (entry,) = client.inflight
    assert (entry.qos, entry.subscription.identifiers) == (1, ())


async def test_what_need_not_arrive_does_not_push_out_what_must(tmp_path: Path) -> None:
    stand = Stand(tmp_path, mqtt=MqttSettings(max_queued=3))
    session = new_session(stand)
    subscribe(stand, session, "a", 1)
    client = Subscriber(session, credit=0)
    publish(stand, *[publication(b"must %d" % n, qos=1) for n in range(3)])
    publish(stand, *[publication(b"may %d" % n, qos=0) for n in range(3)])
    client.request()
    assert client.ear.bodies == [b"must 0", b"must 1", b"must 2"]
    await stand.close()


# Released letters.


async def test_a_released_letter_does_not_expire(stand: Stand) -> None:
    session = new_session(stand)
    subscribe(stand, session, "a", 2)
    client = Subscriber(session)
    publish(stand, publication(b"once", qos=2, expiry=5))
    client.confirm(client.inflight[0])
    after = await stand.reopened()
    after.clock.advance(10)
    session = found_session(after)
    again = Subscriber(session)
    (entry,) = again.inflight
    assert entry.released
    again.confirm(entry)
    assert not session.inflight
    assert not session.exactly_once.released
    await after.close()


async def test_a_released_letter_is_not_dropped_for_want_of_room(tmp_path: Path) -> None:
    stand = Stand(tmp_path, mqtt=MqttSettings(max_queued=2))
    session = new_session(stand)
    subscribe(stand, session, "a", 2)
    client = Subscriber(session)
    publish(stand, publication(b"once", qos=2))
    client.confirm(client.inflight[0])
    after = await stand.reopened()
    publish(after, *[publication(b"%d" % n, qos=1) for n in range(4)])
    again = Subscriber(found_session(after))
    assert again.inflight[0].released
    assert again.ear.bodies[-2:] == [b"2", b"3"]
    await after.close()


# Numbers.


async def test_numbers_are_the_same_after_a_restart(stand: Stand) -> None:
    session = new_session(stand)
    subscribe(stand, session, "a", 2)
    client = Subscriber(session)
    publish(stand, *[publication(b"%d" % n, qos=1 + n % 2) for n in range(5)])
    client.answer(client.inflight[1])
    out = {entry.message.body: entry.packet_id for entry in session.inflight.values()}
    after = await stand.reopened()
    again = Subscriber(found_session(after))
    assert {entry.message.body: entry.packet_id for entry in again.inflight} == out
    assert all(entry.count for entry in again.inflight), "they may have been delivered before"
    await after.close()


async def test_only_what_was_sent_before_a_restart_is_sent_again(stand: Stand) -> None:
    session = new_session(stand)
    subscribe(stand, session, "a", 2)
    client = Subscriber(session, 3)
    publish(stand, *[publication(b"%d" % n, qos=1) for n in range(6)])
    client.answer(client.inflight[0])  # makes room for one more
    client.request()
    after = await stand.reopened()
    again = Subscriber(found_session(after))
    assert [(entry.message.body, entry.count) for entry in again.inflight] == [
        (b"1", 1),
        (b"2", 1),
        (b"3", 1),
        (b"4", 0),
        (b"5", 0),
    ]
    await after.close()


async def test_numbers_go_round(stand: Stand) -> None:
    session = new_session(stand, durable=False)
    subscribe(stand, session)
    client = Subscriber(session)
    session._last_packet_id = 65534
    publish(stand, publication(), publication())
    assert client.numbers == [65535, 1]


async def test_a_run_whose_numbers_are_in_use_does_not_take_those_of_the_next(stand: Stand) -> None:
    session = new_session(stand, durable=False)
    subscribe(stand, session)
    client = Subscriber(session)
    publish(stand, publication(), publication())
    publish_run(stand, session, publication(), publication())
    publish_run(stand, session, publication(), publication())
    first, second = client.numbers[2:4]
    assert second == first + 1 > 1_000
    assert client.numbers == [1, 2, first, second, 3, 4]


# Room.


async def test_of_too_many_the_oldest_go(tmp_path: Path) -> None:
    stand = Stand(tmp_path, mqtt=MqttSettings(max_queued=3))
    session = new_session(stand)
    subscribe(stand, session)
    publish(stand, *[publication(b"%d" % n) for n in range(5)])
    assert session.dropped == stand.kernel.metrics.dropped == 2
    assert Subscriber(session).ear.bodies == [b"2", b"3", b"4"]
    after = await stand.reopened()
    assert Subscriber(found_session(after)).ear.bodies == [b"2", b"3", b"4"]
    await after.close()


async def test_what_need_not_arrive_is_not_kept_for_who_is_away(stand: Stand) -> None:
    session = new_session(stand)
    subscribe(stand, session)
    publish(stand, publication(b"may", qos=0), publication(b"must", qos=1))
    assert Subscriber(session).ear.bodies == [b"must"]


async def test_what_need_not_arrive_is_dropped_when_memory_is_short(tmp_path: Path) -> None:
    stand = Stand(tmp_path, queue_memory_bytes=1000)
    session = new_session(stand)
    subscribe(stand, session, "a", 0)
    client = Subscriber(session, credit=0)
    publish(stand, *[publication(b"%d" % n, qos=0) for n in range(10)])
    assert session.dropped > 0
    client.request()
    assert len(client.ear.bodies) + session.dropped == 10
    assert stand.pool.used == 0
    await stand.close()


# Recalling.


async def test_what_is_kept_is_drawn_as_the_client_takes_it(stand: Stand) -> None:
    session = new_session(stand)
    client = Subscriber(session, window=2)
    for n in range(5):
        stand.vhost.retained.retain(publication(b"%d" % n, f"kept.{n}", retain=True))
    session.deliver_past(stand.vhost.retained.messages(b"kept.#"), TopicSubscription("kept.#", 1))
    assert client.ear.bodies == [b"0", b"1"]
    stand.vhost.retained.retain(publication(b"newer", "kept.4", retain=True))
    stand.vhost.retained.retain(publication(b"", "kept.3"))
    for _ in range(4):
        client.answer(next(iter(session.inflight.values())))
    assert client.ear.bodies == [b"0", b"1", b"2", b"newer"]


async def test_much_that_is_kept_is_delivered_over_several_turns(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write_batch_module, "MAX_BATCH_SECONDS", -1.0)
    session = new_session(stand)
    subscribe(stand, session, "#", 0)
    client = Subscriber(session)
    keys = [b"kept.%03d" % n for n in range(500)]
    for key in keys:
        stand.vhost.retained.retain(publication(key, key.decode(), qos=0, retain=True))
    session.deliver_past(stand.vhost.retained.messages(b"kept.#"), TopicSubscription("kept.#", 0))
    publish(stand, publication(b"later", qos=0))
    assert 0 < len(client.ear.bodies) < 500
    await client.ear.until(lambda: b"later" in client.ear.bodies)
    assert client.ear.bodies == [*keys, b"later"]


async def test_a_choked_client_recalls_nothing(stand: Stand) -> None:
    session = new_session(stand)
    client = Subscriber(session, credit=0)
    stand.vhost.retained.retain(publication(b"kept", "kept", qos=0, retain=True))
    session.deliver_past(stand.vhost.retained.messages(b"kept"), TopicSubscription("kept", 0))
    assert not client.ear.bodies
    client.request()
    assert client.ear.bodies == [b"kept"]


# One's own.


async def test_a_client_is_spared_what_it_publishes_itself(stand: Stand) -> None:
    session = new_session(stand)
    subscribe(stand, session, "a", 1, no_local=True)
    client = Subscriber(session)
    session.own_message = publication(b"mine")
    publish(stand, session.own_message, publication(b"another's"))
    assert client.ear.bodies == [b"another's"]


# An operator's hand.


async def test_purging_takes_what_waits_and_leaves_what_is_out(stand: Stand) -> None:
    session = new_session(stand)
    subscribe(stand, session)
    client = Subscriber(session, window=1)
    publish(stand, *[publication(b"%d" % n) for n in range(4)])
    assert session.purge() == 3
    assert len(session.inflight) == 1
    client.answer(client.inflight[0])
    assert client.ear.bodies == [b"0"]
    after = await stand.reopened()
    assert found_session(after).message_count == 0
    await after.close()


async def test_what_is_deleted_is_gone_and_its_client_told(stand: Stand) -> None:
    session = new_session(stand)
    subscribe(stand, session, "a", 2)
    client = Subscriber(session, window=1)
    publish(stand, *[publication(b"%d" % n, qos=2) for n in range(4)])
    client.confirm(client.inflight[0])
    stand.vhost.delete_queue(session.name)
    ((receipt, error),) = client.ear.failed
    assert (receipt, type(error)) == (0, NotFound)
    assert stand.pool.used == 0
    assert not list((stand.kernel.directory / "queues").glob("*/*"))
    client.close()


async def test_what_is_described_is_what_is_there(stand: Stand) -> None:
    session = new_session(stand)
    subscribe(stand, session)
    Subscriber(session, window=1)
    publish(stand, publication(b"12345"), publication(b"123"))
    described = session.describe()
    assert (described["messages_ready"], described["messages_unacknowledged"]) == (1, 1)
    assert described["message_bytes_ready"] == 3
    assert described["consumers"] == 1
