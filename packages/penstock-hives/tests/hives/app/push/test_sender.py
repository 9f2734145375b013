"""What lies in the outbox is sent, again if need be, and a device that is gone is forgotten."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from penstock_hives.database import DatabasePool
from penstock_hives.push.models import Notification, PushMessage, PushOutcome, PushStatus
from penstock_hives.push.repository import LEASE, Outbox
from penstock_hives.push.sender import MAX_ATTEMPTS, RETENTION, RETRY, PushSender
from tests.hives.app.alerts.given import NOW, Clock


class Recorded:
    """A channel that answers as told, and remembers what it sent."""

    def __init__(self) -> None:
        self.sent: list[PushMessage] = []
        self.outcome = PushOutcome(PushStatus.SENT)
        self.reached = asyncio.Event()

    async def send(self, push: PushMessage) -> PushOutcome:
        self.sent.append(push)
        self.reached.set()
        return self.outcome

    async def close(self) -> None: ...


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def channel() -> Recorded:
    return Recorded()


@pytest.fixture
def sender(pool: DatabasePool, channel: Recorded, clock: Clock) -> PushSender:
    return PushSender(pool, {"webpush": channel}, clock)


async def put(pool: DatabasePool, key: str = "k", **facts: Any) -> int:
    told: dict[str, Any] = {"push_at": NOW, **facts}
    async with pool.transaction() as connection:
        return await Outbox(connection).add(
            [Notification(1, "system", "Hello", "World", key, **told)]
        )


async def states(pool: DatabasePool) -> list[tuple[str, str, int]]:
    rows = await pool.rows("SELECT channel, state, attempts FROM notification_delivery ORDER BY 1")
    return [(row["channel"], row["state"], row["attempts"]) for row in rows]


async def test_a_note_goes_to_every_device_and_once(
    pool: DatabasePool, sender: PushSender, channel: Recorded
) -> None:
    assert await put(pool) == 1
    assert await put(pool) == 0  # the same key
    assert await sender.send_due() == 1
    assert await sender.send_due() == 0
    (push,) = channel.sent
    assert (push.address, push.keys, push.title) == ("browser", {"auth": "x"}, "Hello")
    # There is no channel to phones here: another sender has it.
    assert await states(pool) == [("fcm", "pending", 0), ("webpush", "sent", 1)]


async def test_what_is_rolled_back_is_never_sent(pool: DatabasePool, sender: PushSender) -> None:
    async def failing() -> None:
        async with pool.transaction() as connection:
            await Outbox(connection).add([Notification(1, "system", "a", "b", "k", push_at=NOW)])
            raise RuntimeError("what brought it about has failed")

    with pytest.raises(RuntimeError):
        await failing()
    assert await sender.send_due() == 0


async def test_a_note_for_the_inbox_is_not_pushed(pool: DatabasePool, sender: PushSender) -> None:
    await put(pool, push_at=None)
    assert await sender.send_due() == 0
    (row,) = await pool.rows("SELECT title, read_at FROM notification")
    assert row == {"title": "Hello", "read_at": None}


async def test_a_push_waits_for_its_time(
    pool: DatabasePool, sender: PushSender, clock: Clock
) -> None:
    await put(pool, push_at=NOW + timedelta(hours=1))
    assert await sender.send_due() == 0
    clock.passes(hours=1)
    assert await sender.send_due() == 1


async def test_what_fails_is_tried_again_with_longer_pauses(
    pool: DatabasePool, sender: PushSender, channel: Recorded, clock: Clock
) -> None:
    await put(pool)
    channel.outcome = PushOutcome(PushStatus.AGAIN, "busy")
    for attempt in range(1, MAX_ATTEMPTS + 1):
        assert await sender.send_due() == 1
        clock.passes(seconds=RETRY.delay(attempt) - 1)
        assert await sender.send_due() == 0
        clock.passes(seconds=1)
    assert ("webpush", "failed", MAX_ATTEMPTS) in await states(pool)
    assert [RETRY.delay(each) for each in (1, 2, 3, 20)] == [5, 10, 20, 3600]


async def test_the_services_own_word_on_when_counts(
    pool: DatabasePool, sender: PushSender, channel: Recorded, clock: Clock
) -> None:
    await put(pool)
    channel.outcome = PushOutcome(PushStatus.AGAIN, "busy", after=300)
    await sender.send_due()
    clock.passes(seconds=299)
    assert await sender.send_due() == 0
    clock.passes(seconds=1)
    channel.outcome = PushOutcome(PushStatus.SENT)
    assert await sender.send_due() == 1
    assert ("webpush", "sent", 2) in await states(pool)


async def test_a_device_that_is_gone_is_forgotten(
    pool: DatabasePool, sender: PushSender, channel: Recorded
) -> None:
    await put(pool)
    channel.outcome = PushOutcome(PushStatus.GONE, "410")
    await sender.send_due()
    rows = await pool.rows("SELECT kind FROM push_endpoint")
    assert [row["kind"] for row in rows] == ["fcm"]
    assert await put(pool, "another") == 1
    assert await sender.send_due() == 0


async def test_what_is_no_longer_worth_telling_is_dropped(
    pool: DatabasePool, sender: PushSender, channel: Recorded, clock: Clock
) -> None:
    await put(pool, expires_at=NOW + timedelta(minutes=15))
    clock.passes(minutes=16)
    await sender.send_due()
    assert channel.sent == []
    assert ("webpush", "dropped", 1) in await states(pool)


async def test_a_push_of_a_sender_that_died_is_due_again(
    pool: DatabasePool, sender: PushSender, clock: Clock
) -> None:
    await put(pool)
    async with pool.transaction() as connection:
        assert len(await Outbox(connection).lease(["webpush"], clock(), 10)) == 1
    assert await sender.send_due() == 0
    clock.now += LEASE
    assert await sender.send_due() == 1


async def test_two_senders_never_take_the_same(
    pool: DatabasePool, channel: Recorded, clock: Clock
) -> None:
    senders = [PushSender(pool, {"webpush": channel}, clock) for _ in range(2)]
    for number in range(50):
        await put(pool, f"k{number}")
    while sum(await asyncio.gather(*(each.send_due() for each in senders))):
        pass
    assert sorted(push.notification_id for push in channel.sent) == sorted(
        {push.notification_id for push in channel.sent}
    )
    assert len(channel.sent) == 50


async def test_a_sender_that_runs_is_woken(pool: DatabasePool, channel: Recorded) -> None:
    sender = PushSender(pool, {"webpush": channel})
    running = asyncio.create_task(sender.run())
    try:
        await put(pool)
        sender.wake()
        await asyncio.wait_for(channel.reached.wait(), 60)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_for_devices_only_leaves_nothing_unread(pool: DatabasePool) -> None:
    await put(pool, silent=True)
    (row,) = await pool.rows("SELECT read_at IS NOT NULL AS read FROM notification")
    assert row["read"]


async def test_notes_are_deleted_when_they_are_ninety_days_old(
    pool: DatabasePool, sender: PushSender, clock: Clock
) -> None:
    await put(pool, "old")
    await pool.execute("UPDATE notification SET created_at = %s", (NOW - RETENTION,))
    await put(pool, "new")
    await pool.execute(
        "UPDATE notification SET created_at = %s WHERE idempotency_key = 'new'", (NOW,)
    )
    assert await sender.sweep() == 0

    clock.now += timedelta(seconds=1)
    assert await sender.sweep() == 1

    [kept] = await pool.rows("SELECT idempotency_key FROM notification")
    assert kept["idempotency_key"] == "new"
    assert len(await states(pool)) == 2  # what became of the other's pushes is gone with it
