"""Streams: many readers, each from where it likes, of what is on disk."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from penstock.broker.contract import Message
from penstock.core.basic_properties import decode_header
from penstock.core.errors import NotFound, PreconditionFailed, Unsupported
from tests.destinations.test_large_messages import BODY, body_of, opening, post
from tests.doubles import Client, Stand, message, persistent


def stream(stand: Stand, name: str = "s", **arguments: Any) -> Any:
    return stand.queue(name, durable=True, queue_type="stream", **arguments)


async def filled(stand: Stand, count: int = 6, **arguments: Any) -> Any:
    """A stream of chunks of two: 0 and 1, 2 and 3, 4 and 5."""
    target = stream(stand, **arguments)
    for number in range(count):
        target.push(message(b"%d" % number))
        if number % 2:
            await stand.synced()
    await stand.synced()
    return target


async def read(target: Any, offset: Any, count: int) -> list[bytes]:
    reader = Client(target, prefetch=100, x_stream_offset=offset).request(count)
    await reader.ear.until(lambda: len(reader.ear.bodies) == count)
    reader.close()
    return reader.ear.bodies


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        ("first", b"012345"),
        ("last", b"45"),  # the last chunk, as in RabbitMQ
        (0, b"012345"),
        (3, b"345"),
        (5, b"5"),
        (datetime.fromtimestamp(0, UTC), b"012345"),
        ("1h", b"012345"),
    ],
)
async def test_a_reader_begins_where_it_asks_to(stand: Stand, offset: Any, expected: bytes) -> None:
    target = await filled(stand)
    assert b"".join(await read(target, offset, len(expected))) == expected


@pytest.mark.parametrize("offset", ["next", 6, 100, None])
async def test_a_reader_may_wait_for_what_is_to_come(stand: Stand, offset: Any) -> None:
    target = await filled(stand)
    wanted = {} if offset is None else {"x_stream_offset": offset}
    reader = Client(target, prefetch=10, **wanted).request(10)
    await stand.synced()
    assert reader.ear.bodies == []
    target.push(message(b"6"))
    await stand.synced()
    if offset == 100:
        assert reader.ear.bodies == []
    else:
        await reader.ear.until(lambda: reader.ear.bodies == [b"6"])


async def test_a_time_finds_the_chunk_of_that_time(stand: Stand) -> None:
    target = await filled(stand, 2)
    now = datetime.now(UTC)
    target.log.now = lambda: int((now + timedelta(hours=1)).timestamp() * 1000)
    target.push(message(b"later"))
    await stand.synced()
    assert await read(target, now + timedelta(minutes=30), 1) == [b"later"]
    assert await read(target, "30m", 1) == [b"later"]
    assert await read(target, "2h", 3) == [b"0", b"1", b"later"]


@pytest.mark.parametrize("offset", ["start", "", 1.5, True, "5x", [1]])
async def test_any_other_beginning_is_refused(stand: Stand, offset: Any) -> None:
    with pytest.raises(PreconditionFailed, match="x-stream-offset"):
        Client(stream(stand), prefetch=10, x_stream_offset=offset)


async def test_every_message_carries_its_offset(stand: Stand) -> None:
    target = await filled(stand)
    reader = Client(target, prefetch=10, x_stream_offset=2).request(3)
    await reader.ear.until(lambda: len(reader.ear.bodies) == 3)
    seen = [one for one, _ in reader.ear.forwarded if isinstance(one, Message)]
    offsets = [(decode_header(one.header).headers or {})["x-stream-offset"] for one in seen]
    assert offsets == [2, 3, 4]
    assert [delivery.offset for delivery in reader.ear.deliveries] == [2, 3, 4]


async def test_a_reader_gets_no_more_than_its_credit_and_goes_on_where_it_was(
    stand: Stand,
) -> None:
    target = await filled(stand)
    reader = Client(target, prefetch=2, x_stream_offset="first").request(2)
    await reader.ear.until(lambda: len(reader.ear.bodies) == 2)
    reader.request(0)
    await stand.synced()
    assert reader.ear.bodies == [b"0", b"1"]
    reader.request(3)
    await reader.ear.until(lambda: len(reader.ear.bodies) == 5)
    await stand.synced()
    assert reader.ear.bodies == [b"0", b"1", b"2", b"3", b"4"]


async def test_readers_take_nothing_from_each_other(stand: Stand) -> None:
    target = await filled(stand)
    for _ in range(3):
        assert b"".join(await read(target, "first", 6)) == b"012345"
    assert target.message_count == 6


async def test_answers_delete_nothing(stand: Stand) -> None:
    target = await filled(stand)
    reader = Client(target, prefetch=10, x_stream_offset="first").request(2)
    await reader.ear.until(lambda: len(reader.ear.bodies) == 2)
    reader.confirm(reader.ear.deliveries[0])
    reader.fail(reader.ear.deliveries[1])
    assert b"".join(await read(target, "first", 6)) == b"012345"


async def test_only_what_is_on_disk_is_seen(tmp_path: Path) -> None:
    disk = Event()

    def sync(_: int) -> None:
        disk.wait()

    stand = Stand(tmp_path, sync=sync)
    target = stream(stand)
    reader = Client(target, prefetch=10, x_stream_offset="first").request(10)
    target.push(message(b"1"))
    stand.kernel.write_batch.flush()
    assert (target.log.written_offset, target.log.synced_offset) == (1, 0)
    assert reader.ear.bodies == []
    disk.set()
    await reader.ear.until(lambda: reader.ear.bodies == [b"1"])
    await stand.close()


async def test_a_reader_that_came_before_the_disk_was_done_is_served_when_it_is(
    stand: Stand,
) -> None:
    target = stream(stand)
    target.push(message(b"1"))  # nobody reads yet, and nobody waits for a confirm
    stand.kernel.write_batch.flush()
    reader = Client(target, prefetch=10, x_stream_offset="first").request(10)
    stand.kernel.write_batch.flush()
    await reader.ear.until(lambda: reader.ear.bodies == [b"1"])
    assert target.log.synced_offset == 1


async def test_a_reader_that_came_between_two_syncs_sees_what_both_brought(stand: Stand) -> None:
    target = await filled(stand, 2)
    target.push(message(b"2"))  # nobody reads yet, and nobody waits for a confirm
    stand.kernel.write_batch.flush()
    assert (target.log.synced_offset, target.log.next_offset) == (2, 3)
    reader = Client(target, prefetch=10, x_stream_offset="first").request(10)
    await reader.ear.until(lambda: reader.ear.bodies == [b"0", b"1", b"2"])


async def test_readers_are_served_again_after_a_failed_sync(tmp_path: Path) -> None:
    broken = [True]

    def sync(_: int) -> None:
        if broken.pop() if broken else False:
            raise OSError(5, "Input/output error")

    stand = Stand(tmp_path, sync=sync)
    target = stream(stand)
    reader = Client(target, prefetch=10, x_stream_offset="first").request(10)
    target.push(message(b"1"))
    stand.kernel.write_batch.flush()
    await reader.ear.until(lambda: reader.ear.bodies == [b"1"])
    assert [error.errno for error in stand.faults] == [5]
    await stand.close()


async def test_a_long_replay_leaves_room_for_others(stand: Stand) -> None:
    target = stream(stand)
    for number in range(3000):
        target.push(message(b"%d" % number))
    await stand.synced()
    seen: list[int] = []
    reader = Client(target, prefetch=10, x_stream_offset="first").request(5000)
    stand.kernel.write_batch.call_soon(lambda: seen.append(len(reader.ear.forwarded)))
    await reader.ear.until(lambda: len(reader.ear.forwarded) == 3000)
    assert 0 < seen[0] < 3000


async def test_it_goes_on_after_a_restart(stand: Stand) -> None:
    await filled(stand)
    stand = await stand.reopened()
    target: Any = stand.vhost.queues["s"]
    target.push(message(b"6"))
    await stand.synced()
    assert b"".join(await read(target, "first", 7)) == b"0123456"
    await stand.close()


async def test_old_segments_go_by_size_and_readers_go_on_behind_them(stand: Stand) -> None:
    target = stream(stand, max_length_bytes=10_000, stream_max_segment_size_bytes=2_000)
    reader = Client(target, prefetch=10, x_stream_offset="first").request(1)
    for number in range(100):
        target.push(message(b"%d" % number * 200))
        await stand.synced()
    stand.clock.advance(60)
    first = target.log.first_offset
    assert 0 < first < 99
    assert target.log.bytes <= 12_000
    assert target.message_count == 100 - first
    reader.request(1000)
    await reader.ear.until(lambda: len(reader.ear.deliveries) == 101 - first)
    assert [delivery.offset for delivery in reader.ear.deliveries] == [0, *range(first, 100)]


async def test_old_segments_go_by_age(stand: Stand) -> None:
    target = stream(stand, max_age="1h", stream_max_segment_size_bytes=1_000)
    for number in range(20):
        target.push(message(b"%d" % number * 200))
        await stand.synced()
    now = target.log.now
    target.log.now = lambda: now() + 7_200_000
    stand.clock.advance(60)
    assert target.message_count < 10


async def test_large_messages_are_drawn_and_kept_for_every_reader(stand: Stand) -> None:
    target = stream(stand)
    publisher = stand.publisher()
    await post(stand, publisher, opening("s", delivery_mode=2))
    target.push(message(b"small"))
    await stand.synced()

    async def read() -> None:
        reader = Client(target, prefetch=10, x_stream_offset="first").request(1)
        await reader.ear.until_more(0)
        assert await body_of(reader) == BODY
        reader.request(5)
        await reader.ear.until(lambda: len(reader.ear.bodies) == 2)
        assert reader.ear.bodies == [b"", b"small"]
        reader.close()

    await read()
    await read()
    assert target.load(0) == BODY
    assert stand.pool.used == 0


async def test_a_large_message_whose_body_is_gone_is_passed_over(stand: Stand) -> None:
    target = stream(stand)
    await post(stand, stand.publisher(), opening("s", delivery_mode=2))
    target.push(message(b"small"))
    await stand.synced()
    (body,) = (stand.directory / "streams").rglob("*.body")
    body.unlink()
    assert await read(target, "first", 1) == [b"small"]


async def test_a_header_that_lies_does_not_stop_the_readers(stand: Stand) -> None:
    target = stream(stand)
    good = message(b"good", headers={"x-stream-offset": 7})
    lying = good.header.replace(b"\x0fx-stream-offset", b"\xffx-stream-offset")
    target.push(Message(good.route, lying, b"lying", good.flags))
    target.push(good)
    await stand.synced()
    assert await read(target, "first", 2) == [b"lying", b"good"]


async def test_a_stream_may_be_posted_to_by_its_path(stand: Stand) -> None:
    target = stream(stand)
    publisher = Client(stand.vhost.lookup("/stream/s"), post=True)
    publisher.post(persistent(b"1", "s"), 1)
    assert target.consumer_count == 0
    stand.kernel.write_batch.flush()
    await publisher.ear.until(lambda: publisher.ear.confirmed == [1])
    publisher.close()
    assert await read(target, "first", 1) == [b"1"]


async def test_what_a_stream_does_not_do(stand: Stand) -> None:
    target = stream(stand)
    with pytest.raises(Unsupported):
        Client(target, pull=True)
    with pytest.raises(Unsupported):
        Client(target, settled=True, prefetch=10)
    with pytest.raises(PreconditionFailed, match="prefetch"):
        Client(target)
    with pytest.raises(Unsupported):
        target.purge()


async def test_deleting_tells_the_readers_and_leaves_nothing(stand: Stand) -> None:
    target = await filled(stand)
    reader = Client(target, prefetch=10)
    stand.vhost.delete_queue("s")
    ((receipt, error),) = reader.ear.failed
    assert (receipt, type(error)) == (0, NotFound)
    assert not list((stand.directory / "streams").glob("*/*"))
