"""A session as its client and the exchanges meet it."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker.sessions import Subscription
from penstock.core.config import MqttSettings
from penstock.core.errors import ResourceLocked
from tests.doubles import Client, Stand
from tests.drivers.session.given import (
    Subscriber,
    found_session,
    new_session,
    publication,
    publish,
    subscribe,
)


# Exactly once, towards the broker.


async def test_what_was_received_is_known_whatever_the_session_holds_first(stand: Stand) -> None:
    session = new_session(stand)
    subscribe(stand, session)
    session.remember(1)
    stand.kernel.turn.end()
    session.remember(7)
    publish(stand, publication())
    assert session.received == {1, 7}


async def test_what_is_released_in_the_same_turn_stays_released(stand: Stand) -> None:
    session = new_session(stand)
    subscribe(stand, session)
    session.remember(1)
    stand.kernel.turn.end()
    session.forget(1)
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
    stand.vhost.retained.keep(publication(b"kept", "kept", retain=True))
    client = Subscriber(session, 100, credit=0)
    session.recall([b"kept"], Subscription("kept", 1))
    client.request()
    assert client.ear.bodies == [b"kept", *[b"%d" % n for n in range(20)]]
    for letter in client.letters:
        client.answer(letter)
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
    stand.vhost.unbind("amq.topic", session, "a", Subscription("a", 1).arguments)
    subscribe(stand, session, "b", 0, identifier=9)
    client = Subscriber(session)
    (letter,) = client.letters
    assert (letter.qos, letter.grant.identifiers) == (1, ())


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
    client.confirm(client.letters[0])
    after = await stand.reopened()
    after.clock.advance(10)
    session = found_session(after)
    again = Subscriber(session)
    (letter,) = again.letters
    assert letter.released
    again.confirm(letter)
    assert not session.letters
    assert not session.once.released
    await after.close()


async def test_a_released_letter_is_not_dropped_for_want_of_room(tmp_path: Path) -> None:
    stand = Stand(tmp_path, mqtt=MqttSettings(max_queued=2))
    session = new_session(stand)
    subscribe(stand, session, "a", 2)
    client = Subscriber(session)
    publish(stand, publication(b"once", qos=2))
    client.confirm(client.letters[0])
    after = await stand.reopened()
    publish(after, *[publication(b"%d" % n, qos=1) for n in range(4)])
    again = Subscriber(found_session(after))
    assert again.letters[0].released
    assert again.ear.bodies[-2:] == [b"2", b"3"]
    await after.close()
