"""What AMQP 1.0 promises beside the patterns that all ways have in common."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.client import Fabric, ReceivedMessage, RemoteError, connect
from penstock.core.errors import NotFound, PreconditionFailed, Unsupported


async def push_numbers(fabric: Fabric, queue: str, count: int) -> None:
    async with fabric.push(queue) as work:
        for number in range(count):
            await work.post(number)


class TestPublishSubscribe:
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


class TestPushPull:
    async def test_a_full_queue_refuses(self, fabric: Fabric, other: Fabric, name: str) -> None:
        arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
        async with await other.amqp.channel() as channel:
            await channel.declare_queue(name, durable=True, arguments=arguments)
        await fabric.push(name).send(b"fits")
        with pytest.raises(Exception, match=name) as caught:
            await fabric.push(name).send(b"does not")
        assert type(caught.value).__name__ == "QueueFull"


class TestRequestReply:
    async def test_each_protocol_serves_the_other(
        self, fabric: Fabric, other: Fabric, name: str
    ) -> None:
        def fail(request: ReceivedMessage) -> Any:
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
    async def test_a_header_that_has_no_type_is_refused(self, fabric: Fabric, name: str) -> None:
        with pytest.raises(PreconditionFailed, match="object"):
            await fabric.publish(name, b"", headers={"what": object()})

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
    async def test_a_virtual_host_by_name(self, url: str, name: str) -> None:
        async with connect(url + "%2F") as fabric, connect(url) as other:
            async with other.subscribe(name) as messages:
                await fabric.publish(name, b"the default one")
                assert (await messages.receive()).body == b"the default one"

    async def test_the_models_of_other_protocols_are_elsewhere(self, fabric: Fabric) -> None:
        with pytest.raises(Unsupported, match="amqp://"):
            _ = fabric.amqp
        with pytest.raises(Unsupported, match="mqtt://"):
            _ = fabric.mqtt
