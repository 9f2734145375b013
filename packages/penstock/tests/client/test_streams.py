"""Streams: appended to by anyone, replayed from anywhere."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from itertools import cycle

import pytest

from penstock.client import Fabric, MessageReceiver
from penstock.core.errors import NotFound, PreconditionFailed


async def take(replay: MessageReceiver, count: int) -> list[int]:
    return [(await replay.receive()).json() for _ in range(count)]


async def append(fabric: Fabric, name: str, numbers: range) -> None:
    async with fabric.stream(name) as stream:
        for number in numbers:
            await stream.post(number)


async def test_a_stream_is_replayed_from_the_first_message(fabric: Fabric, name: str) -> None:
    await append(fabric, name, range(100))
    async with fabric.replay(name) as replay:
        assert await take(replay, 100) == list(range(100))


async def test_whoever_gives_up_waiting_loses_nothing(fabric: Fabric, name: str) -> None:
    await append(fabric, name, range(200))
    async with fabric.replay(name, prefetch=2) as replay:
        found: list[int] = []
        for patience in cycle(range(12)):  # passes of the loop
            receiving = asyncio.create_task(replay.receive())
            for _ in range(patience):
                await asyncio.sleep(0)
            receiving.cancel()
            with suppress(asyncio.CancelledError):
                found.append((await receiving).json())
            if len(found) == 200:
                break
        assert found == list(range(200))


async def test_many_replay_the_same(fabric: Fabric, name: str) -> None:
    await append(fabric, name, range(10))
    async with fabric.replay(name) as one, fabric.replay(name) as other:
        assert await take(one, 10) == await take(other, 10)


async def test_messages_carry_their_offsets(fabric: Fabric, name: str) -> None:
    await append(fabric, name, range(5))
    async with fabric.replay(name) as replay:
        assert [(await replay.receive()).offset for _ in range(5)] == [0, 1, 2, 3, 4]


async def test_from_an_offset(fabric: Fabric, name: str) -> None:
    await append(fabric, name, range(50))
    async with fabric.replay(name, start=42) as replay:
        assert await take(replay, 8) == list(range(42, 50))


async def test_next_is_what_comes_from_now_on(fabric: Fabric, name: str) -> None:
    await append(fabric, name, range(5))
    async with fabric.replay(name, start="next") as replay:
        await append(fabric, name, range(5, 7))
        assert await take(replay, 2) == [5, 6]


@pytest.mark.parametrize(
    "start", ["1h", timedelta(hours=1), datetime(2020, 1, 1, tzinfo=UTC), "first"]
)
async def test_from_a_moment(fabric: Fabric, name: str, start: str | timedelta | datetime) -> None:
    await append(fabric, name, range(3))
    async with fabric.replay(name, start=start) as replay:
        assert await take(replay, 3) == [0, 1, 2]


async def test_last_ends_with_the_newest(fabric: Fabric, name: str) -> None:
    await append(fabric, name, range(3))
    async with fabric.replay(name, start="last") as replay:
        seen = await take(replay, 1)
        while seen[-1] != 2:
            seen += await take(replay, 1)
    assert seen == list(range(seen[0], 3))


async def test_more_than_the_prefetch_flows(fabric: Fabric, name: str) -> None:
    await append(fabric, name, range(1000))
    async with fabric.replay(name, prefetch=10) as replay:
        assert await take(replay, 1000) == list(range(1000))


async def test_a_stream_keeps_what_is_published_to_its_subjects(fabric: Fabric, name: str) -> None:
    await fabric.stream(name, subjects=[f"{name}.#"]).send("first")
    await fabric.publish(f"{name}.7.report", "second")
    async with fabric.replay(name) as replay:
        messages = [await replay.receive(), await replay.receive()]
        assert [message.text for message in messages] == ["first", "second"]
        assert messages[1].address == f"{name}.7.report"


async def test_replaying_what_does_not_exist(fabric: Fabric, name: str) -> None:
    with pytest.raises(NotFound, match=name):
        await fabric.replay(name).open()


async def test_a_queue_is_no_stream(fabric: Fabric, name: str) -> None:
    await fabric.push(name).send(b"")
    with pytest.raises(PreconditionFailed, match=name):
        await fabric.stream(name).send(b"")


async def test_a_failed_send_does_not_hold_up_the_next(fabric: Fabric, name: str) -> None:
    await fabric.push(name).send(b"")
    stream = fabric.stream(name)
    for _ in range(2):
        with pytest.raises(PreconditionFailed):
            await stream.send(b"")
    async with await fabric.amqp.channel() as channel:
        await channel.delete_queue(name)
    async with asyncio.timeout(5):
        await stream.send(b"")
