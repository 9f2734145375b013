"""The patterns as a program uses them, in every way."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Any

import pytest

from penstock.client import (
    BrokerUnreachable,
    Fabric,
    FabricClosed,
    NoReply,
    NoService,
    ReceivedMessage,
    RemoteError,
    connect,
)
from penstock.core.errors import AuthenticationFailed, NotFound, Unsupported
from tests.client.line import Line
from tests.client.patterns.conftest import Way
from tests.peers import free_port


class TestPublishSubscribe:
    async def test_everyone_whose_pattern_matches_gets_a_copy(
        self, fabric: Fabric, name: str
    ) -> None:
        async with (
            fabric.subscribe(f"{name}.*") as one,
            fabric.subscribe(f"{name}.#") as other,
        ):
            await fabric.publish(f"{name}.oil", b"61")
            assert (await one.receive()).body == b"61"
            assert (await other.receive()).address == f"{name}.oil"

    async def test_a_star_is_one_word(self, fabric: Fabric, name: str) -> None:
        async with fabric.subscribe(f"{name}.*") as prices:
            await fabric.publish(f"{name}.oil.brent", b"two words")
            await fabric.publish(f"{name}.oil", b"one word")
            assert (await prices.receive()).body == b"one word"

    async def test_several_patterns_are_one_subscription(self, fabric: Fabric, name: str) -> None:
        async with fabric.subscribe(f"{name}.a", f"{name}.b") as both:
            await fabric.publish(f"{name}.a", "1")
            await fabric.publish(f"{name}.b", "2")
            assert [(await both.receive()).text, (await both.receive()).text] == ["1", "2"]

    async def test_publishing_to_nobody_is_no_error(self, fabric: Fabric, name: str) -> None:
        await fabric.publish(name, b"unheard")
        async with fabric.subscribe(name) as messages:
            await fabric.publish(name, b"heard")
            assert (await messages.receive()).body == b"heard"

    async def test_a_named_subscription_keeps_what_is_published_while_nobody_listens(
        self, fabric: Fabric, name: str
    ) -> None:
        async with fabric.subscribe(name, name=name):
            pass
        await fabric.publish(name, b"kept")
        async with fabric.subscribe(name, name=name) as kept:
            assert (await kept.receive()).body == b"kept"

    async def test_more_than_the_prefetch_flows(self, fabric: Fabric, name: str) -> None:
        async with fabric.subscribe(name, prefetch=10) as numbers:
            async with fabric.publisher(name) as publisher:
                for number in range(100):
                    await publisher.post(number)
            assert [(await numbers.receive()).json() for _ in range(100)] == list(range(100))

    async def test_an_exchange_that_does_not_exist_fails_the_send_and_not_the_next(
        self, fabric: Fabric, name: str
    ) -> None:
        for _ in range(2):
            with pytest.raises(NotFound, match=r"amq\.nowhere"):
                await fabric.publish(name, b"", exchange="amq.nowhere")
        await fabric.publish(name, b"unheard")
        async with fabric.subscribe(name) as messages:
            await fabric.publish(name, b"heard")
            assert (await messages.receive()).body == b"heard"


class TestPushPull:
    async def test_an_item_goes_to_one_who_pulls(self, fabric: Fabric, name: str) -> None:
        work = fabric.push(name)
        for number in range(20):
            await work.send(number)
        seen = []
        async with fabric.pull(name, prefetch=1) as one, fabric.pull(name, prefetch=1) as other:
            for _ in range(10):
                for worker in (one, other):
                    item = await worker.receive()
                    seen.append(item.json())
                    await item.ack()
        assert sorted(seen) == list(range(20))

    async def test_the_loop_acknowledges_what_it_has_done(self, fabric: Fabric, name: str) -> None:
        await push_numbers(fabric, name, 3)
        async with fabric.pull(name) as items:
            async for item in items:
                if item.json() == 2:
                    break
        await push_numbers(fabric, name, 1)
        async with fabric.pull(name) as items:
            assert (await items.receive()).redelivered is False

    async def test_an_exception_puts_the_item_back(self, fabric: Fabric, name: str) -> None:
        await push_numbers(fabric, name, 2)

        async def divide() -> None:
            async for item in fabric.pull(name):
                1 // item.json()

        with pytest.raises(ZeroDivisionError):
            await divide()
        async with fabric.pull(name) as items:
            again = await items.receive()
            assert (again.json(), again.redelivered) == (0, True)

    async def test_leaving_a_bare_loop_puts_the_item_back(self, fabric: Fabric, name: str) -> None:
        await push_numbers(fabric, name, 2)
        async with aclosing(aiter(fabric.pull(name))) as items:
            async for _ in items:
                break
        async with fabric.pull(name) as again:
            assert (await again.receive()).json() == 0

    async def test_requeue_hands_it_out_again_and_reject_drops_it(
        self, fabric: Fabric, name: str
    ) -> None:
        await push_numbers(fabric, name, 2)
        async with fabric.pull(name, prefetch=1) as items:
            await (await items.receive()).requeue()
            again = await items.receive()
            assert (again.json(), again.redelivered) == (0, True)
            await again.reject()
            assert (await items.receive()).json() == 1

    async def test_a_queue_declared_otherwise_is_taken_as_it_is(
        self, fabric: Fabric, other: Fabric, name: str
    ) -> None:
        async with await other.amqp.channel() as channel:
            await channel.declare_queue(name, durable=True, arguments={"x-max-length": 5})
        await push_numbers(fabric, name, 1)
        async with fabric.pull(name) as items:
            assert (await items.receive()).json() == 0

    async def test_a_queue_deleted_under_the_sender_is_declared_again(
        self, fabric: Fabric, other: Fabric, name: str
    ) -> None:
        work = fabric.push(name)
        await work.send(b"gone with the queue")
        async with await other.amqp.channel() as channel:
            await channel.delete_queue(name)
        await work.send(b"kept")
        async with fabric.pull(name) as items:
            assert (await items.receive()).body == b"kept"

    async def test_a_queue_deleted_under_the_receiver_is_declared_again(
        self, fabric: Fabric, other: Fabric, name: str
    ) -> None:
        async with fabric.pull(name) as items:
            async with await other.amqp.channel() as channel:
                await channel.delete_queue(name)
            await fabric.push(name).send(b"here")
            assert (await items.receive()).body == b"here"

    async def test_many_posts_are_safe_when_the_block_ends(
        self, fabric: Fabric, other: Fabric, name: str
    ) -> None:
        async with fabric.push(name) as work:
            for number in range(3000):
                await work.post(number)
        async with await other.amqp.channel() as channel:
            queue = await channel.declare_queue(name, passive=True)
            assert queue.message_count == 3000


class TestRequestReply:
    async def test_a_function_is_a_service(self, fabric: Fabric, name: str) -> None:
        async def square(request: ReceivedMessage) -> int:
            number: int = request.json()
            return number * number

        async with fabric.serve(name, square):
            assert (await fabric.request(name, 7)).json() == 49

    async def test_a_loop_is_a_service(self, fabric: Fabric, name: str) -> None:
        async with fabric.reply(name) as requests:
            asking = asyncio.create_task(fabric.request(name, "ping"))
            request = await requests.receive()
            await request.reply(request.text + " pong")
            assert (await asking).text == "ping pong"

    async def test_many_at_a_time_get_each_their_own_answer(
        self, fabric: Fabric, name: str
    ) -> None:
        async with fabric.serve(name, lambda request: -request.json()):
            answers = await asyncio.gather(*(fabric.request(name, n) for n in range(200)))
        assert [answer.json() for answer in answers] == [-n for n in range(200)]

    async def test_an_error_in_the_service_travels_back(self, fabric: Fabric, name: str) -> None:
        def fail(request: ReceivedMessage) -> Any:
            raise LookupError("no such hive")

        async with fabric.serve(name, fail):
            with pytest.raises(RemoteError, match="LookupError: no such hive") as caught:
                await fabric.request(name)
            assert (caught.value.kind, caught.value.reason) == ("LookupError", "no such hive")
            with pytest.raises(RemoteError):  # the service has gone on
                await fabric.request(name)

    async def test_an_error_in_the_loop_travels_back(self, fabric: Fabric, name: str) -> None:
        async def serve_one() -> None:
            async with fabric.reply(name) as requests:
                ready.set()
                async for _ in requests:
                    raise LookupError("gone")

        ready = asyncio.Event()
        serving = asyncio.create_task(serve_one())
        await ready.wait()
        with pytest.raises(RemoteError, match="gone"):
            await fabric.request(name)
        with pytest.raises(LookupError):
            await serving

    async def test_no_service_is_known_at_once(self, fabric: Fabric, name: str) -> None:
        with pytest.raises(NoService, match=name):
            await fabric.request(name, timeout=None)

    async def test_a_service_that_has_left_is_no_service(self, fabric: Fabric, name: str) -> None:
        async with fabric.serve(name, lambda request: b""):
            await fabric.request(name)
        with pytest.raises(NoService):
            await fabric.request(name, timeout=None)

    async def test_no_answer_in_time_is_no_reply(self, fabric: Fabric, name: str) -> None:
        async with fabric.reply(name):
            with pytest.raises(NoReply, match=r"within 0\.2 s"):
                await fabric.request(name, timeout=0.2)

    async def test_a_message_that_asks_for_no_answer_gets_none(
        self, fabric: Fabric, name: str
    ) -> None:
        await fabric.push(name).send(b"")
        async with fabric.pull(name) as items:
            with pytest.raises(Unsupported, match=r"reply.to"):
                await (await items.receive()).reply(b"")


class TestMessages:
    @pytest.mark.parametrize(
        ("body", "raw", "content_type"),
        [
            (b"\x00\xff", b"\x00\xff", None),
            ("käse", "käse".encode(), "text/plain; charset=utf-8"),
            ({"a": [1, None]}, b'{"a":[1,null]}', "application/json"),
        ],
    )
    async def test_bodies_are_bytes_text_or_json(
        self, fabric: Fabric, name: str, body: Any, raw: bytes, content_type: str | None
    ) -> None:
        async with fabric.subscribe(name) as messages:
            await fabric.publish(name, body)
            message = await messages.receive()
            assert (message.body, message.content_type) == (raw, content_type)

    async def test_headers_and_ids_travel(self, fabric: Fabric, name: str) -> None:
        async with fabric.subscribe(name) as messages:
            await fabric.publish(name, b"", headers={"unit": "K", "n": 3}, message_id="one")
            message = await messages.receive()
            assert message.headers == {"unit": "K", "n": 3}
            assert message.message_id == "one"
            assert message.timestamp is not None

    async def test_a_large_message_arrives_whole(self, fabric: Fabric, name: str) -> None:
        body = bytes(range(256)) * 8192
        async with fabric.subscribe(name) as messages:
            await fabric.publish(name, body)
            assert (await messages.receive()).body == body


class TestConnecting:
    async def test_nobody_there_says_where_and_what_to_do(self, way: Way) -> None:
        port = free_port()
        with pytest.raises(BrokerUnreachable, match=f"127.0.0.1:{port}.*penstock up"):
            async with connect(way.url(port)):
                pass

    @pytest.mark.parametrize(
        "words", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"AMQP\x09\x09\x09\x09"]
    )
    async def test_what_is_no_broker_is_said_to_be_none(self, way: Way, words: bytes) -> None:
        async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(words)
            writer.close()

        async with await asyncio.start_server(greet, "127.0.0.1") as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(BrokerUnreachable, match=f"127.0.0.1:{port}"):
                await connect(way.url(port)).open()

    async def test_a_wrong_password_is_told_apart(self, way: Way) -> None:
        with pytest.raises(AuthenticationFailed, match="guest"):
            async with connect(way.url().replace("guest:guest", "guest:wrong")):
                pass

    async def test_a_virtual_host_that_does_not_exist(self, way: Way) -> None:
        with pytest.raises(NotFound, match="nowhere"):
            async with connect(way.url().replace("%2F", "nowhere")):
                pass

    async def test_a_closed_fabric_says_so(self, way: Way, name: str) -> None:
        async with connect(way.url()) as fabric:
            pass
        with pytest.raises(FabricClosed):
            await fabric.publish(name, b"")
        with pytest.raises(FabricClosed):
            await fabric.request(name)
        with pytest.raises(FabricClosed):
            await fabric.pull(name).open()

    async def test_patience_waits_for_a_broker_to_appear(self, line: Line) -> None:
        await line.down()
        connecting = asyncio.create_task(connect(line.url, retry_seconds=30).open())
        await line.up()
        fabric = await connecting
        assert not fabric.blocked
        await fabric.close()

    async def test_closing_the_fabric_ends_its_loops(self, way: Way, name: str) -> None:
        async with connect(way.url()) as fabric:
            messages = await fabric.subscribe(name).open()

            async def loop() -> str:
                async for _ in messages:
                    pass
                return "ended"

            looping = asyncio.create_task(loop())
            await asyncio.sleep(0)
        assert await looping == "ended"


async def push_numbers(fabric: Fabric, queue: str, count: int) -> None:
    async with fabric.push(queue) as work:
        for number in range(count):
            await work.post(number)
