"""Large messages through a driver: fragments in, a file between, fragments out as they are drawn.

At the end nothing is left of them: no file in the spool directory, no bucket out of the pool.
"""

from __future__ import annotations

import errno
import gc
import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.broker.buckets import BUCKET_BYTES, MemoryAccount
from penstock.broker.content_header import message_flags
from penstock.broker.contract import MANDATORY, PERSISTENT, Fragment, Message
from penstock.broker.spool import Spool
from penstock.core.basic_properties import BasicProperties, encode_header, encode_route
from penstock.core.errors import NoRoute, QueueFull
from tests.doubles import Client, Stand, message, persistent, unchecked_settings

BODY = random.Random(7).randbytes(2 * BUCKET_BYTES + 1000)


def opening(key: str = "q", size: int = len(BODY), **properties: Any) -> Message:
    header = encode_header(BasicProperties(**properties), size)
    return Message(encode_route("", key), header, b"", message_flags(header), more=True)


def fragments(stand: Stand, body: bytes = BODY) -> Iterator[Fragment]:
    account = MemoryAccount(stand.pool, 1 << 30, lambda: None)
    for at in range(0, len(body), BUCKET_BYTES):
        bucket = account.take()
        bucket.fill(memoryview(body)[at : at + BUCKET_BYTES])
        yield Fragment(bucket, bucket.content, more=at + BUCKET_BYTES < len(body))


async def post(stand: Stand, publisher: Client, first: Message) -> None:
    """Hand over a whole large message; returns when it is routed."""
    publisher.post(first)
    receipt = 1 + len(publisher.ear.confirmed)
    for fragment in fragments(stand):
        publisher.post(fragment, 0 if fragment.more else receipt)
    await publisher.ear.until(lambda: len(publisher.ear.confirmed) == receipt)


async def body_of(client: Client) -> bytes:
    """Draw the message that has been opened to its end."""
    taken: list[bytes] = []
    more = True
    while more:
        seen = len(client.ear.forwarded)
        client.draw()
        await client.ear.until_more(seen)
        fragment = client.ear.forwarded[seen][0]
        assert isinstance(fragment, Fragment), "only its own fragments may follow a large message"
        taken.append(bytes(fragment.body))
        more = fragment.more
        fragment.bucket.release()
    return b"".join(taken)


def nothing_is_left(stand: Stand) -> bool:
    # The thread lets go of what it last worked on when it comes to the next.
    passed = threading.Event()
    stand.kernel.spools._thread.submit(passed.set, lambda _: None)
    passed.wait()
    gc.collect()
    return stand.pool.used == 0 and not stand.spooled


@pytest.mark.parametrize("durable", [False, True])
@pytest.mark.parametrize("settled", [False, True])
async def test_fragments_go_in_and_come_out_when_they_are_asked_for(
    stand: Stand, durable: bool, settled: bool
) -> None:
    queue = stand.queue(durable=durable)
    publisher = stand.publisher()
    consumer = Client(queue, settled=settled).request(1)
    await post(stand, publisher, opening(delivery_mode=2))

    first = consumer.ear.forwarded[0][0]
    assert isinstance(first, Message)
    assert (first.more, first.body, first.size) == (True, b"", len(BODY))
    assert len(consumer.ear.forwarded) == 1, "nothing is forwarded before it is asked for"
    assert await body_of(consumer) == BODY

    if not settled:
        consumer.confirm(consumer.ear.deliveries[0])
    consumer.ear.forwarded.clear()
    assert (queue.ready, queue.unacknowledged) == (0, 0)
    assert nothing_is_left(stand)
    assert not list((stand.directory / "queues").rglob("*.body"))


async def test_a_waiting_one_is_counted_by_its_size_and_holds_no_memory(stand: Stand) -> None:
    queue = stand.queue()
    await post(stand, stand.publisher(), opening())
    assert (queue.ready, queue.ready_bytes) == (1, len(BODY))
    assert stand.pool.used < 1000
    assert queue.purge() == 1
    assert nothing_is_left(stand)


async def test_what_follows_a_large_message_waits_for_its_last_fragment(stand: Stand) -> None:
    queue = stand.queue()
    await post(stand, stand.publisher(), opening())
    queue.push(message(b"small"))
    consumer = Client(queue).request(10)
    assert await body_of(consumer) == BODY
    consumer.request(10)
    assert consumer.ear.bodies == [b"", b"small"]


async def test_a_message_posted_behind_a_large_one_does_not_overtake_it(stand: Stand) -> None:
    queue = stand.queue()
    publisher = stand.publisher()
    publisher.post(opening())
    for fragment in fragments(stand):
        publisher.post(fragment, 0 if fragment.more else 1)
    publisher.post(message(b"small", "q"), 2)
    publisher.post(opening())
    for fragment in fragments(stand):
        publisher.post(fragment, 0 if fragment.more else 3)
    await publisher.ear.until(lambda: len(publisher.ear.confirmed) == 3)
    assert publisher.ear.confirmed == [1, 2, 3]
    consumer = Client(queue).request(10)
    assert await body_of(consumer) == BODY
    consumer.request(10)
    assert consumer.ear.bodies == [b"", b"small", b""]
    assert await body_of(consumer) == BODY


async def test_a_sender_that_goes_away_in_the_middle_leaves_nothing(stand: Stand) -> None:
    queue = stand.queue()
    publisher = stand.publisher()
    publisher.post(opening())
    publisher.post(next(fragments(stand)))
    publisher.close()
    other = stand.publisher()
    await post(stand, other, opening())  # the spool's thread has passed the half one by now
    assert queue.ready == 1
    queue.purge()
    assert nothing_is_left(stand)


async def test_one_posted_behind_it_goes_with_a_sender_that_goes_away(stand: Stand) -> None:
    queue = stand.queue()
    publisher = stand.publisher()
    for _ in range(2):
        publisher.post(opening())
        for fragment in fragments(stand):
            publisher.post(fragment)
    publisher.close()
    await post(stand, stand.publisher(), opening())
    queue.purge()
    assert nothing_is_left(stand)


async def test_a_consumer_that_goes_away_in_the_middle_gives_it_back(stand: Stand) -> None:
    queue = stand.queue()
    await post(stand, stand.publisher(), opening())
    consumer = Client(queue).request(1)
    consumer.draw()  # and the answer is under way when
    consumer.close()
    consumer.fail(consumer.ear.deliveries[0])
    assert (queue.ready, queue.unacknowledged) == (1, 0)

    again = Client(queue).request(1)
    assert await body_of(again) == BODY
    assert again.ear.deliveries[0].count == 1
    again.confirm(again.ear.deliveries[0])
    for client in (consumer, again):
        client.ear.forwarded.clear()
    assert nothing_is_left(stand)


async def test_a_deleted_queue_leaves_nothing_of_it(stand: Stand) -> None:
    queue = stand.queue(durable=True)
    publisher = stand.publisher()
    await post(stand, publisher, opening(delivery_mode=2))
    await post(stand, publisher, opening(delivery_mode=2))
    consumer = Client(queue).request(1)
    consumer.draw()
    stand.vhost.delete_queue("q")
    assert [receipt for receipt, _ in consumer.ear.failed] == [0]
    stand.queue("q")
    await post(stand, publisher, opening())  # the spool's thread has passed the cancelled read
    stand.vhost.delete_queue("q")
    del queue
    consumer.ear.forwarded.clear()
    consumer.state = None
    assert nothing_is_left(stand)


async def test_fan_out_shares_one_file(stand: Stand) -> None:
    queues = [stand.queue(name, durable=name == "c") for name in "abc"]
    stand.exchange("f", "fanout")
    for queue in queues:
        stand.vhost.bind("f", queue)
    await post(stand, stand.publisher("f"), opening(delivery_mode=2))
    (file,) = stand.spooled
    (link,) = (stand.directory / "queues").rglob("*.body")
    assert link.samefile(file)
    for queue in queues:
        consumer = Client(queue, settled=True).request(1)
        assert await body_of(consumer) == BODY
        consumer.ear.forwarded.clear()
    assert nothing_is_left(stand)
    assert not link.exists()


async def test_a_durable_queue_keeps_it_over_a_restart(stand: Stand) -> None:
    stand.queue(durable=True)
    await post(stand, stand.publisher(), opening(delivery_mode=2))
    stand.vhost.queues["q"].push(persistent(b"small"))
    stand = await stand.reopened()
    queue: Any = stand.vhost.queues["q"]
    assert (queue.ready, queue.ready_bytes) == (2, len(BODY) + 5)
    consumer = Client(queue, settled=True).request(1)
    assert await body_of(consumer) == BODY
    consumer.request(1)
    assert consumer.ear.bodies[-1] == b"small"
    assert not list((stand.directory / "queues").rglob("*.body"))
    await stand.close()


async def test_a_kept_one_is_dead_lettered_whole_into_a_queue_in_memory(stand: Stand) -> None:
    """Its file goes with the queue that gives it up: the other needs a hold of its own."""
    dead_letters = {"dead_letter_exchange": "", "dead_letter_routing_key": "dead"}
    stand.queue(durable=True, message_ttl=60_000, **dead_letters)
    await post(stand, stand.publisher(), opening(delivery_mode=2))
    stand = await stand.reopened()
    dead = stand.queue("dead")
    stand.clock.advance(60)
    assert not list((stand.directory / "queues").rglob("*.body"))
    heir = Client(dead).request(1)
    assert await body_of(heir) == BODY
    heir.confirm(heir.ear.deliveries[0])
    heir.close()
    heir.ear.forwarded.clear()
    assert nothing_is_left(stand)
    await stand.close()


async def test_nobody_wants_it_and_the_sender_hears_of_it(stand: Stand) -> None:
    publisher = stand.publisher()
    first = opening("nowhere")
    first.flags |= MANDATORY
    publisher.post(first)
    for fragment in fragments(stand):
        publisher.post(fragment, 0 if fragment.more else 1)
    await publisher.ear.until(lambda: publisher.ear.failed)
    ((receipt, error),) = publisher.ear.failed
    assert receipt == 1
    assert isinstance(error, NoRoute)


async def test_one_that_cannot_be_routed_is_refused_and_lets_its_memory_go(stand: Stand) -> None:
    stand.queue()
    publisher = stand.publisher()
    publisher.post(opening(headers={"CC": "not a list"}))
    for fragment in fragments(stand):
        publisher.post(fragment, 0 if fragment.more else 1)
    await publisher.ear.until(lambda: publisher.ear.failed)
    await post(stand, stand.publisher(), opening())
    assert publisher.ear.failed[0][0] == 1
    stand.vhost.queues["q"].purge()
    publisher.ear.failed.clear()
    assert nothing_is_left(stand)


async def test_one_that_the_disk_has_no_room_for_is_refused(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    stand.queue(durable=True)
    monkeypatch.setattr(Spool, "link", full)
    publisher = stand.publisher()
    publisher.post(opening(delivery_mode=2))
    for fragment in fragments(stand):
        publisher.post(fragment, 0 if fragment.more else 1)
    publisher.post(message(b"small", "q"), 2)
    await publisher.ear.until(lambda: publisher.ear.failed and publisher.ear.confirmed)
    ((receipt, error),) = publisher.ear.failed
    assert receipt == 1
    assert isinstance(error, QueueFull)


async def test_one_that_overflows_memory_is_paged_like_the_rest(stand: Stand) -> None:
    stand.kernel.settings = unchecked_settings(queue_memory_bytes=500)
    queue = stand.queue()
    for body in (b"1", b"2", b"3"):
        queue.push(message(body))
    await post(stand, stand.publisher(), opening())
    queue.push(message(b"4"))
    consumer = Client(queue, settled=True).request(4)
    assert await body_of(consumer) == BODY
    consumer.request(1)
    assert consumer.ear.bodies == [b"1", b"2", b"3", b"", b"4"]
    assert consumer.ear.forwarded[0][0].flags & PERSISTENT == 0  # type: ignore[union-attr]
