"""The patterns as a program uses them, over each broker that speaks MQTT."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock.client import (
    FabricClosed,
    NoReply,
    NoService,
    ReceivedMessage,
    RemoteError,
    connect,
)
from penstock.client.mqtt.fabric import MqttFabric
from penstock.core.errors import PreconditionFailed, Unsupported
from tests.peers import Mosquitto, MqttBroker, Penstock


class TestPublishSubscribe:
    async def test_everyone_whose_filter_matches_gets_a_copy(
        self, fabric: MqttFabric, name: str
    ) -> None:
        async with (
            fabric.subscribe(f"{name}/+") as one,
            fabric.subscribe(f"{name}/#") as other,
        ):
            await fabric.publish(f"{name}/oil", b"61")
            assert (await one.receive()).body == b"61"
            assert (await other.receive()).address == f"{name}/oil"

    async def test_two_of_one_program_may_use_the_same_filter(
        self, fabric: MqttFabric, name: str
    ) -> None:
        async with fabric.subscribe(name) as one, fabric.subscribe(name) as other:
            await fabric.publish(name, b"61")
            assert (await one.receive()).body == b"61"
            assert (await other.receive()).body == b"61"

    async def test_a_filter_stays_while_one_of_them_uses_it(
        self, fabric: MqttFabric, name: str
    ) -> None:
        async with fabric.subscribe(name) as one:
            async with fabric.subscribe(name):
                pass
            await fabric.publish(name, b"61")
            assert (await one.receive()).body == b"61"

    async def test_several_filters_are_one_subscription(
        self, fabric: MqttFabric, name: str
    ) -> None:
        async with fabric.subscribe(f"{name}/a", f"{name}/b") as both:
            await fabric.publish(f"{name}/a", "1")
            await fabric.publish(f"{name}/b", "2")
            assert [(await both.receive()).text, (await both.receive()).text] == ["1", "2"]

    @pytest.mark.parametrize("qos", [0, 1, 2])
    async def test_a_message_comes_with_the_quality_it_was_sent_with(
        self, fabric: MqttFabric, name: str, qos: int
    ) -> None:
        async with fabric.subscribe(name, qos=2) as messages:
            await fabric.publish(name, b"", qos=qos)
            assert (await messages.receive()).qos == qos

    async def test_what_the_sender_said_arrives(self, fabric: MqttFabric, name: str) -> None:
        async with fabric.subscribe(name) as messages:
            await fabric.publish(
                name, {"id": 7}, headers={"unit": "K", "n": 3}, ttl=60, message_id="m1"
            )
            message = await messages.receive()
        assert message.json() == {"id": 7}
        assert message.content_type == "application/json"
        assert message.headers == {"unit": "K", "n": "3"}
        assert message.message_id == "m1"

    async def test_a_header_may_occur_several_times(self, fabric: MqttFabric, name: str) -> None:
        async with fabric.subscribe(name) as messages:
            await fabric.publish(name, b"", headers={"tag": ["a", "b"]})
            assert (await messages.receive()).headers == {"tag": ["a", "b"]}

    async def test_a_retained_message_waits_for_those_who_subscribe_later(
        self, fabric: MqttFabric, name: str
    ) -> None:
        await fabric.publish(name, "21.5", retain=True)
        async with fabric.subscribe(name) as messages:
            kept = await messages.receive()
            assert (kept.text, kept.retained) == ("21.5", True)
            await fabric.publish(name, "22.0", retain=True)
            assert (await messages.receive()).retained is False
        await fabric.publish(name, b"", retain=True)  # clears it

    async def test_a_group_shares_the_messages(
        self, fabric: MqttFabric, mqtt_broker: MqttBroker, name: str
    ) -> None:
        async with (
            connect(mqtt_broker.mqtt_url) as helper,
            fabric.subscribe(f"$share/workers/{name}") as one,
            helper.subscribe(f"$share/workers/{name}") as other,
        ):
            for number in range(10):
                await fabric.publish(name, number)
            seen = [await asyncio.wait_for(one.receive(), 60) for _ in range(5)]
            seen += [await asyncio.wait_for(other.receive(), 60) for _ in range(5)]
        assert sorted(message.json() for message in seen) == list(range(10))

    async def test_more_than_the_prefetch_flows(self, fabric: MqttFabric, name: str) -> None:
        async with fabric.subscribe(name, prefetch=10) as numbers:
            async with fabric.publisher(name, qos=0) as publisher:
                for number in range(300):
                    await publisher.post(number)
            assert [(await numbers.receive()).json() for _ in range(300)] == list(range(300))

    async def test_a_loop_with_a_full_buffer_may_publish(
        self, fabric: MqttFabric, name: str
    ) -> None:
        async with (
            fabric.subscribe(f"{name}/in", prefetch=2) as questions,
            fabric.subscribe(f"{name}/out") as answers,
        ):
            for number in range(50):
                await fabric.publish(f"{name}/in", number, qos=0)
            async with asyncio.timeout(10):
                for _ in range(50):
                    question = await questions.receive()
                    await fabric.publish(f"{name}/out", question.json())
                    assert (await answers.receive()).json() == question.json()

    async def test_mqtt_3_1_1_carries_bodies(self, mqtt_broker: MqttBroker, name: str) -> None:
        async with connect(f"{mqtt_broker.mqtt_url}?version=3.1.1") as fabric:
            async with fabric.subscribe(f"{name}/+") as messages:
                await fabric.publish(f"{name}/a", {"id": 7})
                assert (await messages.receive()).json() == {"id": 7}
            with pytest.raises(Unsupported, match="MQTT 5"):
                await fabric.publish(name, b"", headers={"unit": "K"})

    @pytest.mark.parametrize(
        "server", ["mqtt_penstock", pytest.param("mosquitto", marks=pytest.mark.peer)]
    )
    async def test_a_websocket_carries_the_same(
        self, server: str, name: str, request: pytest.FixtureRequest
    ) -> None:
        broker: Penstock | Mosquitto = request.getfixturevalue(server)
        async with connect(broker.ws_url) as fabric, fabric.subscribe(name) as numbers:
            for number in range(200):
                await fabric.publish(name, number)
            await fabric.publish(name, b"x" * 100_000)
            assert [(await numbers.receive()).json() for _ in range(200)] == list(range(200))
            assert len((await numbers.receive()).body) == 100_000


class TestSessions:
    async def test_a_named_subscription_keeps_what_is_published_while_nobody_listens(
        self, fabric: MqttFabric, name: str
    ) -> None:
        async with fabric.subscribe(name, name=name):
            pass
        await fabric.publish(name, b"kept")
        async with fabric.subscribe(name, name=name) as kept:
            assert (await kept.receive()).body == b"kept"

    @pytest.mark.parametrize("version", ["5", "3.1.1"])
    async def test_a_session_of_the_urls_own_lasts_too(
        self, mqtt_broker: MqttBroker, name: str, version: str
    ) -> None:
        url = f"{mqtt_broker.mqtt_url}?client_id={name}&session_expiry=60&version={version}"
        async with connect(url) as first, first.subscribe(name):
            pass
        async with connect(mqtt_broker.mqtt_url) as other:
            for number in range(3):
                await other.publish(name, number)
        async with connect(url) as again, again.subscribe(name) as kept:
            assert [(await kept.receive()).json() for _ in range(3)] == [0, 1, 2]

    async def test_what_comes_before_anybody_asks_waits(
        self, mqtt_broker: MqttBroker, name: str
    ) -> None:
        url = f"{mqtt_broker.mqtt_url}?client_id={name}&session_expiry=60"
        async with connect(url) as first, first.subscribe(name):
            pass
        async with connect(mqtt_broker.mqtt_url) as other:
            await other.publish(name, b"kept")
        async with connect(url) as again:
            await again.publish(f"{name}/other", b"")  # the word for it comes after what was kept
            async with again.subscribe(name) as kept:
                message = await kept.receive()
                assert message.body == b"kept"
                await message.ack()

    async def test_what_was_not_acknowledged_comes_again(
        self, fabric: MqttFabric, name: str
    ) -> None:
        async with fabric.subscribe(name, name=name) as messages:
            await fabric.publish(name, b"work")
            await messages.receive()
        async with fabric.subscribe(name, name=name) as messages:
            again = await messages.receive()
            assert (again.body, again.redelivered) == (b"work", True)
            await again.ack()

    async def test_the_loop_acknowledges_what_it_has_done(
        self, fabric: MqttFabric, name: str
    ) -> None:
        async with fabric.subscribe(name, name=name) as messages:
            await fabric.publish(name, b"done")
            async for _ in messages:
                break
        await fabric.publish(name, b"next")
        async with fabric.subscribe(name, name=name) as messages:
            assert (await messages.receive()).body == b"next"


class TestRequestReply:
    async def test_a_function_is_a_service(self, fabric: MqttFabric, name: str) -> None:
        async def square(request: ReceivedMessage) -> int:
            number: int = request.json()
            return number * number

        async with fabric.serve(name, square):
            assert (await fabric.request(name, 7)).json() == 49

    async def test_many_at_a_time_get_each_their_own_answer(
        self, fabric: MqttFabric, name: str
    ) -> None:
        async with fabric.serve(name, lambda request: request.body):
            answers = await asyncio.gather(*(fabric.request(name, n) for n in range(50)))
        assert [answer.json() for answer in answers] == list(range(50))

    async def test_each_request_goes_to_one_of_those_who_serve(
        self, fabric: MqttFabric, mqtt_broker: MqttBroker, name: str
    ) -> None:
        asked: list[int] = []
        async with connect(mqtt_broker.mqtt_url) as other:

            def note(request: ReceivedMessage) -> None:
                asked.append(request.json())

            async with fabric.serve(name, note), other.serve(name, note):
                for number in range(10):
                    await fabric.request(name, number)
        assert sorted(asked) == list(range(10))

    async def test_an_exception_travels_back(self, fabric: MqttFabric, name: str) -> None:
        def fail(request: ReceivedMessage) -> None:
            raise LookupError("no such hive")

        async with fabric.serve(name, fail):
            with pytest.raises(RemoteError, match="LookupError: no such hive"):
                await fabric.request(name)

    async def test_nobody_serving_is_known_at_once(self, fabric: MqttFabric, name: str) -> None:
        async with asyncio.timeout(5):
            with pytest.raises(NoService, match=name):
                await fabric.request(name)

    async def test_no_answer_in_time(self, fabric: MqttFabric, name: str) -> None:
        async with fabric.reply(name):
            with pytest.raises(NoReply, match=name):
                await fabric.request(name, timeout=0.1)

    async def test_a_message_that_asks_for_no_answer(self, fabric: MqttFabric, name: str) -> None:
        async with fabric.subscribe(name) as messages:
            await fabric.publish(name, b"")
            with pytest.raises(Unsupported, match="no response topic"):
                await (await messages.receive()).reply(b"")

    async def test_mqtt_3_1_1_has_no_requests(self, mqtt_broker: MqttBroker, name: str) -> None:
        async with connect(f"{mqtt_broker.mqtt_url}?version=3.1.1") as fabric:
            with pytest.raises(Unsupported, match="MQTT 5"):
                await fabric.request(name)
            with pytest.raises(Unsupported, match="MQTT 5"):
                fabric.reply(name)


@pytest.mark.parametrize(
    ("use", "instead"),
    [
        (lambda fabric: fabric.push("work"), r"amqp://.*\$share/GROUP/work"),
        (lambda fabric: fabric.pull("work"), r"amqp://.*\$share/GROUP/work"),
        (lambda fabric: fabric.stream("sensors"), "amqp://"),
        (lambda fabric: fabric.replay("sensors"), "replay 'sensors' over amqp://"),
        (lambda fabric: fabric.publisher("a", exchange="mine"), "no exchanges"),
        (lambda fabric: fabric.amqp, "amqp:// URL"),
    ],
)
def test_what_mqtt_cannot_do_says_what_to_use_instead(
    use: Callable[[Any], Any], instead: str
) -> None:
    with pytest.raises(Unsupported, match=instead):
        use(connect("mqtt://localhost"))


@pytest.mark.parametrize(
    "use",
    [
        lambda fabric: fabric.publisher("a/#"),
        lambda fabric: fabric.publisher("a", qos=3),
        lambda fabric: fabric.subscribe("a#"),
        lambda fabric: fabric.reply("a/+"),
    ],
)
def test_what_cannot_be_sent_or_asked_for_is_refused(use: Callable[[Any], Any]) -> None:
    with pytest.raises(PreconditionFailed):
        use(connect("mqtt://localhost"))


async def test_what_cannot_be_written_as_mqtt_fails_alone(fabric: MqttFabric, name: str) -> None:
    with pytest.raises(PreconditionFailed, match="cannot be sent"):
        await fabric.publish(name, b"", headers={"x": "y" * 70_000})
    with pytest.raises(PreconditionFailed, match="strings and numbers"):
        await fabric.publish(name, b"", headers={"x": {"nested": 1}})
    await fabric.publish(name, b"fine")


async def test_a_message_cannot_be_handed_back(fabric: MqttFabric, name: str) -> None:
    async with fabric.subscribe(name) as messages:
        await fabric.publish(name, b"")
        message = await messages.receive()
        with pytest.raises(Unsupported, match="cannot requeue"):
            await message.requeue()
        await message.reject()


async def test_a_closed_fabric_says_so(mqtt_broker: MqttBroker, name: str) -> None:
    async with connect(mqtt_broker.mqtt_url) as fabric:
        pass
    with pytest.raises(FabricClosed):
        await fabric.publish(name, b"")
    with pytest.raises(FabricClosed):
        await fabric.request(name)
    with pytest.raises(FabricClosed):
        await fabric.subscribe(name).open()


async def test_closing_the_fabric_ends_its_loops(mqtt_broker: MqttBroker, name: str) -> None:
    async with connect(mqtt_broker.mqtt_url) as fabric:
        messages = await fabric.subscribe(name).open()

        async def loop() -> str:
            async for _ in messages:
                pass
            return "ended"

        looping = asyncio.create_task(loop())
        await asyncio.sleep(0)
    assert await looping == "ended"
