"""The patterns as a program uses them, over AMQP 1.0."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.client import (
    BrokerUnreachable,
    Fabric,
    FabricClosed,
    Message,
    NoReply,
    NoService,
    RemoteError,
    connect,
)
from penstock.core.errors import AuthenticationFailed, NotFound, PreconditionFailed, Unsupported
from tests.client.amqp10.conftest import url_of
from tests.client.line import Line
from tests.peers import free_port


async def push_numbers(fabric: Fabric, queue: str, count: int) -> None:
    async with fabric.push(queue) as work:
        for number in range(count):
            await work.post(number)


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

    async def test_several_patterns_are_one_subscription(self, fabric: Fabric, name: str) -> None:
        async with fabric.subscribe(f"{name}.a", f"{name}.b", f"{name}.*") as both:
            await fabric.publish(f"{name}.a", "1")
            await fabric.publish(f"{name}.b", "2")
            assert [(await both.receive()).text, (await both.receive()).text] == ["1", "2"]

    async def test_publishing_to_nobody_is_no_error(self, fabric: Fabric, name: str) -> None:
        await fabric.publish(name, b"unheard")
        async with fabric.subscribe(name) as messages:
            await fabric.publish(name, b"heard")
            assert (await messages.receive()).body == b"heard"

    async def test_a_named_subscription_keeps_what_is_published_while_nobody_listens(
        self, url: str, name: str
    ) -> None:
        async with connect(url) as fabric:
            async with fabric.subscribe(name, name=name):
                pass
            await fabric.publish(name, b"kept")
        async with connect(url) as fabric, fabric.subscribe(name, name=name) as kept:
            assert (await kept.receive()).body == b"kept"

    async def test_those_who_use_the_same_name_share_the_messages(
        self, url: str, name: str
    ) -> None:
        async with connect(url) as one, connect(url) as two:
            async with (
                one.subscribe(name, name=name, prefetch=1) as first,
                two.subscribe(name, name=name, prefetch=1) as second,
            ):
                for number in range(2):
                    await one.publish(name, number)
                got = [await first.receive(), await second.receive()]
                assert sorted(message.json() for message in got) == [0, 1]

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
            assert (await items.receive()).json() == 0

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
        async with other.amqp.channel() as channel:
            await channel.declare_queue(name, durable=True, arguments={"x-max-length": 5})
        await push_numbers(fabric, name, 1)
        async with fabric.pull(name) as items:
            assert (await items.receive()).json() == 0

    async def test_a_queue_deleted_under_the_sender_is_made_again(
        self, fabric: Fabric, other: Fabric, name: str
    ) -> None:
        work = fabric.push(name)
        await work.send(b"gone with the queue")
        async with other.amqp.channel() as channel:
            await channel.queue_delete(name)
        await work.send(b"kept")
        async with fabric.pull(name) as items:
            assert (await items.receive()).body == b"kept"

    async def test_a_queue_deleted_under_the_receiver_is_made_again(
        self, fabric: Fabric, other: Fabric, name: str
    ) -> None:
        async with fabric.pull(name) as items:
            async with other.amqp.channel() as channel:
                await channel.queue_delete(name)
            await fabric.push(name).send(b"here")
            assert (await items.receive()).body == b"here"

    async def test_many_posts_are_safe_when_the_block_ends(
        self, fabric: Fabric, other: Fabric, name: str
    ) -> None:
        async with fabric.push(name) as work:
            for number in range(3000):
                await work.post(number)
        async with other.amqp.channel() as channel:
            queue = await channel.declare_queue(name, passive=True)
            assert queue.declaration_result.message_count == 3000

    async def test_a_full_queue_refuses(self, fabric: Fabric, other: Fabric, name: str) -> None:
        arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
        async with other.amqp.channel() as channel:
            await channel.declare_queue(name, durable=True, arguments=arguments)
        await fabric.push(name).send(b"fits")
        with pytest.raises(Exception, match=name) as caught:
            await fabric.push(name).send(b"does not")
        assert type(caught.value).__name__ == "QueueFull"


class TestRequestReply:
    async def test_a_function_is_a_service(self, fabric: Fabric, name: str) -> None:
        async def square(request: Message) -> int:
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
        def fail(request: Message) -> Any:
            raise LookupError("no such hive")

        async with fabric.serve(name, fail):
            with pytest.raises(RemoteError, match="LookupError: no such hive"):
                await fabric.request(name)
            with pytest.raises(RemoteError):  # the service has gone on
                await fabric.request(name)

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
            with pytest.raises(Unsupported, match="reply-to"):
                await (await items.receive()).reply(b"")

    async def test_each_protocol_serves_the_other(
        self, fabric: Fabric, other: Fabric, name: str
    ) -> None:
        def fail(request: Message) -> Any:
            raise LookupError("no such hive")

        async with (
            fabric.serve(f"{name}.10", lambda request: request.json() + 1),
            other.serve(f"{name}.091", lambda request: request.json() + 2),
            fabric.serve(f"{name}.10-fails", fail),
            other.serve(f"{name}.091-fails", fail),
        ):
            assert (await other.request(f"{name}.10", 1)).json() == 2
            assert (await fabric.request(f"{name}.091", 1)).json() == 3
            for asking, service in ((other, "10-fails"), (fabric, "091-fails")):
                with pytest.raises(RemoteError, match="no such hive"):
                    await asking.request(f"{name}.{service}")


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

    async def test_headers_and_ids_travel(self, fabric: Fabric, other: Fabric, name: str) -> None:
        headers = {
            "unit": "K",
            "n": 3,
            "big": 1 << 40,
            "half": 0.5,
            "yes": True,
            "none": None,
            "when": datetime(2024, 5, 1, tzinfo=UTC),
            "list": [1, "a"],
            "map": {"a": 1},
        }
        async with fabric.subscribe(name) as here, other.subscribe(name) as there:
            for sender in (fabric, other):
                await sender.publish(name, b"", headers=headers, message_id="one")
                for receiver in (here, there):
                    message = await receiver.receive()
                    told = {key: message.headers[key] for key in headers}
                    assert told == headers
                    assert message.message_id == "one"
                    assert message.timestamp is not None

    async def test_a_header_that_has_no_type_is_refused(self, fabric: Fabric, name: str) -> None:
        with pytest.raises(PreconditionFailed, match="object"):
            await fabric.publish(name, b"", headers={"what": object()})

    async def test_a_large_message_arrives_whole(self, fabric: Fabric, name: str) -> None:
        body = bytes(range(256)) * 8192
        async with fabric.subscribe(name) as messages:
            await fabric.publish(name, body)
            assert (await messages.receive()).body == body

    async def test_what_has_expired_does_not_arrive(self, fabric: Fabric, name: str) -> None:
        work = fabric.push(name)
        await work.send(b"too late", ttl=0)
        await work.send(b"in time", ttl=60)
        async with fabric.pull(name) as items:
            assert (await items.receive()).body == b"in time"


class TestStreams:
    async def test_a_stream_is_replayed_from_anywhere(self, fabric: Fabric, name: str) -> None:
        async with fabric.stream(name, max_age="1h") as stream:
            for number in range(50):
                await stream.post(number)
        for start, first in (("first", 0), (42, 42), ("1h", 0)):
            async with fabric.replay(name, start, prefetch=10) as replay:
                got = [await replay.receive() for _ in range(50 - first)]
                assert [message.json() for message in got] == list(range(first, 50))
                assert [message.offset for message in got] == list(range(first, 50))

    async def test_next_is_what_comes_from_now_on(self, fabric: Fabric, name: str) -> None:
        stream = fabric.stream(name)
        await stream.send("old")
        async with fabric.replay(name, "next") as replay:
            await stream.send("new")
            assert (await replay.receive()).text == "new"

    async def test_replaying_what_does_not_exist(self, fabric: Fabric, name: str) -> None:
        with pytest.raises(NotFound, match=name):
            await fabric.replay(name).open()

    async def test_subjects_are_bound_elsewhere(self, fabric: Fabric, name: str) -> None:
        with pytest.raises(Unsupported, match="amqp://"):
            fabric.stream(name, subjects=["a.#"])


class TestConnecting:
    async def test_nobody_there_says_where_and_what_to_do(self) -> None:
        port = free_port()
        with pytest.raises(BrokerUnreachable, match=f"127.0.0.1:{port}.*penstock up"):
            async with connect(url_of(port)):
                pass

    @pytest.mark.parametrize(
        "words", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"AMQP\x00\x00\x09\x01"]
    )
    async def test_what_is_no_broker_is_said_to_be_none(self, words: bytes) -> None:
        async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(words)
            writer.close()

        async with await asyncio.start_server(greet, "127.0.0.1") as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(BrokerUnreachable, match=f"127.0.0.1:{port}"):
                await connect(url_of(port)).open()

    async def test_a_wrong_password_is_told_apart(self, url: str) -> None:
        with pytest.raises(AuthenticationFailed, match="guest"):
            async with connect(url.replace("guest:guest", "guest:wrong")):
                pass

    async def test_a_virtual_host_that_does_not_exist(self, url: str) -> None:
        with pytest.raises(NotFound, match="nowhere"):
            async with connect(url + "nowhere"):
                pass

    async def test_a_virtual_host_by_name(self, url: str, name: str) -> None:
        async with connect(url + "%2F") as fabric, connect(url) as other:
            async with other.subscribe(name) as messages:
                await fabric.publish(name, b"the default one")
                assert (await messages.receive()).body == b"the default one"

    async def test_a_closed_fabric_says_so(self, url: str, name: str) -> None:
        async with connect(url) as fabric:
            pass
        with pytest.raises(FabricClosed):
            await fabric.publish(name, b"")
        with pytest.raises(FabricClosed):
            await fabric.request(name)
        with pytest.raises(FabricClosed):
            await fabric.pull(name).open()

    async def test_patience_waits_for_a_broker_to_appear(self, line: Line) -> None:
        await line.down()
        connecting = asyncio.create_task(connect(url_of(line.port), patience=30).open())
        await line.up()
        fabric = await connecting
        assert not fabric.blocked
        await fabric.close()

    async def test_closing_the_fabric_ends_its_loops(self, url: str, name: str) -> None:
        async with connect(url) as fabric:
            messages = await fabric.subscribe(name).open()

            async def loop() -> str:
                async for _ in messages:
                    pass
                return "ended"

            looping = asyncio.create_task(loop())
            await asyncio.sleep(0)
        assert await looping == "ended"

    async def test_the_models_of_other_protocols_are_elsewhere(self, fabric: Fabric) -> None:
        with pytest.raises(Unsupported, match="amqp://"):
            _ = fabric.amqp
        with pytest.raises(Unsupported, match="mqtt://"):
            _ = fabric.mqtt
