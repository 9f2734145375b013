"""Direct reply-to: a reply goes straight to the channel that asked."""

from __future__ import annotations

import pytest

from penstock.core.errors import Unsupported
from tests.doubles import Client, Stand, message
from tests.drivers.test_large_messages import BODY, body_of, nothing_is_left, opening, post


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
    await asker.ear.until(lambda: len(asker.ear.bodies) == 3)
    assert asker.ear.bodies == [b"", b"1", b"2"]
    asker.ear.forwarded.clear()
    assert nothing_is_left(stand)


async def test_nothing_is_posted_to_it_directly(stand: Stand) -> None:
    _, driver = stand.vhost.open_reply("reply")
    with pytest.raises(Unsupported):
        Client(driver).post(message())
