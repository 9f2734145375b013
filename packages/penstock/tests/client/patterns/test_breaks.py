"""What a broken connection leaves of the patterns' promises: all of them."""

from __future__ import annotations

import asyncio

import pytest

from penstock.client import NoReply, ReceivedMessage, connect
from tests.client.line import Line
from tests.client.patterns.conftest import Way


async def test_what_was_not_confirmed_is_sent_again_with_the_same_id(line: Line, name: str) -> None:
    async with connect(line.url) as fabric:
        work = fabric.push(name)
        await work.send(b"before")
        line.hold()
        sending = asyncio.create_task(work.send(b"x" * 1000, message_id="once"))
        await line.wait_for_bytes(1000)  # the broker has it, and cannot say so
        line.cut()
        await sending
        async with fabric.pull(name) as items:
            assert (await items.receive()).body == b"before"
            copies = [await items.receive(), await items.receive()]
            assert [copy.message_id for copy in copies] == ["once", "once"]


async def test_sends_wait_for_the_broker_to_come_back(line: Line, name: str) -> None:
    async with connect(line.url) as fabric:
        await line.down()
        sending = asyncio.create_task(fabric.push(name).send(b"patience"))
        await line.up()
        await sending
        async with fabric.pull(name) as items:
            assert (await items.receive()).body == b"patience"


async def test_a_cancelled_send_is_not_sent_later(line: Line, name: str) -> None:
    async with connect(line.url) as fabric:
        work = fabric.push(name)
        await work.send(b"first")
        await line.down()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(work.send(b"too late"), 0.05)
        await line.up()
        await work.send(b"second")
        async with fabric.pull(name) as items:
            assert [(await items.receive()).body for _ in range(2)] == [b"first", b"second"]


async def test_nothing_confirmed_is_lost_over_many_cuts(line: Line, name: str) -> None:
    async with connect(line.url) as fabric:

        async def push() -> None:
            async with fabric.push(name) as work:
                for number in range(2000):
                    await work.post(number, message_id=str(number))
                    if number % 500 == 250:
                        line.cut()

        pushing = asyncio.create_task(push())
        seen: dict[int, None] = {}
        async with fabric.pull(name, prefetch=100) as items:
            async for item in items:
                seen[item.json()] = None
                if len(seen) == 2000:
                    break
        await pushing
    assert set(seen) == set(range(2000))


async def test_what_is_sent_again_is_sent_in_order(line: Line, name: str) -> None:
    async with connect(line.url) as fabric:
        async with fabric.stream(name) as stream:
            for number in range(2000):
                await stream.post(number)
                if number % 500 == 250:
                    line.cut()
            await stream.flush()
            await stream.send("end")
        seen: dict[int, None] = {}  # by first appearance; copies may follow
        async for message in fabric.replay(name):
            if message.text == "end":
                break
            seen.setdefault(message.json())
    assert list(seen) == list(range(2000))


async def test_a_subscription_goes_on(line: Line, name: str) -> None:
    async with connect(line.url) as fabric, fabric.subscribe(name) as messages:
        await fabric.publish(name, b"before")
        assert (await messages.receive()).body == b"before"
        line.cut()
        receiving = asyncio.create_task(messages.receive())
        while not receiving.done():  # until the subscription is back, nobody gets a copy
            await fabric.publish(name, b"after")
        assert (await receiving).body == b"after"


async def test_an_item_in_hand_when_the_connection_breaks_comes_again(
    line: Line, name: str
) -> None:
    async with connect(line.url) as fabric, fabric.pull(name) as items:
        await fabric.push(name).send(b"work")
        first = await items.receive()
        line.cut()
        second = await items.receive()
        await first.ack()  # too late, and harmless
        assert second.redelivered
        assert second.message_id == first.message_id


async def test_a_replay_goes_on_after_the_last_message_seen(line: Line, name: str) -> None:
    async with connect(line.url) as fabric:
        async with fabric.stream(name) as stream:
            for number in range(1000):
                await stream.post(number)
        offsets = []
        async with fabric.replay(name, prefetch=50) as replay:
            async for message in replay:
                offsets.append(message.offset)
                if len(offsets) in (100, 500):
                    line.cut()
                if len(offsets) == 1000:
                    break
    assert offsets == list(range(1000))


async def test_an_unanswered_request_is_asked_again(line: Line, way: Way, name: str) -> None:
    async with connect(line.url) as fabric, connect(way.url()) as server:
        async with server.reply(name) as requests:
            asking = asyncio.create_task(fabric.request(name, b"?"))
            first = await requests.receive()
            line.cut()
            second = await requests.receive()
            assert second.message_id == first.message_id
            await first.reply(b"to nobody")
            await second.reply(b"!")
            assert (await asking).body == b"!"


async def test_a_request_waits_for_its_service_to_come_back_too(line: Line, name: str) -> None:
    async def answer(request: ReceivedMessage) -> bytes:
        if not broken.is_set():
            broken.set()
            line.cut()
        return b"!"

    broken = asyncio.Event()
    async with connect(line.url) as fabric, fabric.serve(name, answer):
        assert (await fabric.request(name)).body == b"!"


async def test_a_request_over_a_dead_line_ends_by_its_timeout(line: Line, name: str) -> None:
    async with connect(line.url) as fabric:
        await line.down()
        with pytest.raises(NoReply):
            await fabric.request(name, timeout=0.2)
