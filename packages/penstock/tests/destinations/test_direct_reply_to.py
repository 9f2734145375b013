"""Direct reply-to: a reply goes straight to the channel that asked."""

from __future__ import annotations

import pytest

from penstock.broker.buckets import MESSAGE_OVERHEAD_BYTES
from penstock.core.errors import Unsupported
from penstock.destinations.direct_reply_to import MAX_WAITING_BYTES
from tests.destinations.test_large_messages import (
    BODY,
    body_of,
    nothing_is_left,
    opening,
    post,
)
from tests.doubles import Client, Stand, message


async def test_a_reply_is_forwarded_at_once_and_needs_no_answer(stand: Stand) -> None:
    name, driver = stand.vhost.open_reply("reply")
    asker = Client(driver, settled=True).request()
    stand.publisher().post(message(b"answer", name))
    assert asker.ear.bodies == [b"answer"]
    assert asker.ear.deliveries == []


async def test_every_asker_has_a_name_nobody_can_guess(stand: Stand) -> None:
    names = {stand.vhost.open_reply("reply")[0] for _ in range(10)}
    assert len(names) == 10
    assert all(name.startswith("reply.") and len(name) > 20 for name in names)


async def test_a_reply_to_one_who_left_is_dropped(stand: Stand) -> None:
    name, driver = stand.vhost.open_reply("reply")
    asker = Client(driver, settled=True).request()
    asker.close()
    publisher = stand.publisher()
    publisher.post(message(b"answer", name), 1)
    assert (asker.ear.bodies, publisher.ear.confirmed) == ([], [1])


async def test_a_large_reply_is_drawn_and_others_wait_behind_it(stand: Stand) -> None:
    name, driver = stand.vhost.open_reply("reply")
    asker = Client(driver, settled=True).request()
    publisher = stand.publisher()
    await post(stand, publisher, opening(name))
    for body in (b"1", b"2"):
        publisher.post(message(body, name))
    assert await body_of(asker) == BODY
    asker.request()
    assert asker.ear.bodies == [b"", b"1", b"2"]
    asker.ear.forwarded.clear()
    assert nothing_is_left(stand)


async def test_replies_wait_for_credit_and_go_on_in_order(stand: Stand) -> None:
    name, driver = stand.vhost.open_reply("reply")
    asker = Client(driver, settled=True).request(1)
    publisher = stand.publisher()
    for body in (b"1", b"2", b"3", b"4"):
        publisher.post(message(body, name))
    assert asker.ear.bodies == [b"1"]
    asker.request(2)
    assert asker.ear.bodies == [b"1", b"2", b"3"]
    asker.request()
    assert asker.ear.bodies == [b"1", b"2", b"3", b"4"]
    assert stand.pool.used == 0


async def test_a_large_reply_waits_for_credit_too(stand: Stand) -> None:
    name, driver = stand.vhost.open_reply("reply")
    asker = Client(driver, settled=True).request(0)
    await post(stand, stand.publisher(), opening(name))
    assert asker.ear.forwarded == []
    asker.request(1)
    assert await body_of(asker) == BODY
    asker.ear.forwarded.clear()
    assert nothing_is_left(stand)


async def test_the_oldest_of_too_many_are_dropped_and_the_log_says_how_many(
    stand: Stand, caplog: pytest.LogCaptureFixture
) -> None:
    name, driver = stand.vhost.open_reply("reply")
    asker = Client(driver, settled=True).request(0)
    publisher = stand.publisher()
    body = bytes(MAX_WAITING_BYTES // 4 - MESSAGE_OVERHEAD_BYTES)
    for number in range(7):
        publisher.post(message(bytes([number]) + body[1:], name), number + 1)
    assert stand.pool.used == MAX_WAITING_BYTES
    asker.request()
    assert publisher.ear.confirmed == [1, 2, 3, 4, 5, 6, 7]
    assert [body[0] for body in asker.ear.bodies] == [3, 4, 5, 6]
    assert ("dropped=3" in caplog.text, name in caplog.text) == (True, False)


async def test_a_requester_that_leaves_takes_what_waits_for_it_along(stand: Stand) -> None:
    name, driver = stand.vhost.open_reply("reply")
    asker = Client(driver, settled=True).request(0)
    publisher = stand.publisher()
    publisher.post(message(b"answer", name))
    await post(stand, publisher, opening(name))
    asker.close()
    assert nothing_is_left(stand)


async def test_nothing_is_posted_to_it_directly(stand: Stand) -> None:
    _, driver = stand.vhost.open_reply("reply")
    with pytest.raises(Unsupported):
        Client(driver).post(message())
