"""What a broken connection leaves of the patterns' promises over MQTT."""

from __future__ import annotations

import asyncio

import pytest

from penstock.client import connect
from penstock.core.errors import AccessRefused, ProtocolError, ResourceLocked
from tests.client.line import Line
from tests.peers import Mosquitto, MqttBroker, Penstock

TAKEN_OVER = bytes.fromhex("e0028e00")
NOT_AUTHORIZED = bytes.fromhex("e0028700")


async def test_what_was_not_acknowledged_is_sent_again(
    line: Line, mqtt_broker: MqttBroker, name: str
) -> None:
    async with (
        connect(mqtt_broker.mqtt_url) as other,
        other.subscribe(name) as messages,
        connect(line.mqtt_url) as fabric,
    ):
        line.hold()
        sending = asyncio.create_task(fabric.publish(name, b"x" * 1000))
        await line.wait_for_bytes(1000)  # the broker has it, and cannot say so
        line.cut()
        await sending
        assert (await messages.receive()).body == b"x" * 1000


async def test_sends_wait_for_the_broker_to_come_back(line: Line, name: str) -> None:
    async with connect(line.mqtt_url) as fabric:
        await line.down()
        sending = asyncio.create_task(fabric.mqtt.publish(name, b"patience", retain=True))
        await line.up()
        await sending
        async with fabric.subscribe(name) as kept:
            assert (await kept.receive()).body == b"patience"
        await fabric.mqtt.publish(name, b"", retain=True)


async def test_a_send_given_up_before_it_left_is_not_sent_later(
    line: Line, mqtt_broker: MqttBroker, name: str
) -> None:
    async with (
        connect(mqtt_broker.mqtt_url) as other,
        other.subscribe(name) as messages,
        connect(line.mqtt_url) as fabric,
    ):
        await fabric.publish(name, b"first")
        await line.down()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(fabric.publish(name, b"too late"), 0.3)
        await line.up()
        await fabric.publish(name, b"second")
        assert [(await messages.receive()).body for _ in range(2)] == [b"first", b"second"]


async def test_nothing_acknowledged_is_lost_over_many_cuts(
    line: Line, mqtt_broker: MqttBroker, name: str
) -> None:
    async with (
        connect(mqtt_broker.mqtt_url) as other,
        other.subscribe(name) as messages,
        connect(line.mqtt_url) as fabric,
    ):

        async def publish() -> None:
            async with fabric.publisher(name) as publisher:
                for number in range(400):
                    await publisher.post(number)
                    if number % 150 == 100:
                        await publisher.flush()
                        line.cut()

        publishing = asyncio.create_task(publish())
        seen: dict[int, None] = {}  # by first appearance; copies may follow
        async for message in messages:
            seen.setdefault(message.json())
            if len(seen) == 400:
                break
        await publishing
    assert list(seen) == list(range(400))


async def test_a_subscription_goes_on(line: Line, mqtt_broker: MqttBroker, name: str) -> None:
    async with (
        connect(mqtt_broker.mqtt_url) as other,
        connect(line.mqtt_url) as fabric,
        fabric.subscribe(name) as messages,
    ):
        await other.publish(name, b"before")
        assert (await messages.receive()).body == b"before"
        line.cut()
        receiving = asyncio.create_task(messages.receive())
        while not receiving.done():  # until the subscription is back, nobody gets a copy
            await other.publish(name, b"after")
        assert (await receiving).body == b"after"


async def test_a_session_that_lasts_misses_nothing(
    line: Line, mqtt_broker: MqttBroker, name: str
) -> None:
    async with (
        connect(mqtt_broker.mqtt_url) as other,
        connect(f"{line.mqtt_url}?session_expiry=60") as fabric,
        fabric.subscribe(name) as messages,
    ):
        await line.down()
        for number in range(3):
            await other.publish(name, number)
        await line.up()
        assert [(await messages.receive()).json() for _ in range(3)] == [0, 1, 2]


async def test_what_was_in_hand_when_the_connection_broke_comes_again_once(
    line: Line, mqtt_broker: MqttBroker, name: str
) -> None:
    async with (
        connect(mqtt_broker.mqtt_url) as other,
        connect(f"{line.mqtt_url}?session_expiry=60") as fabric,
        fabric.subscribe(name) as messages,
    ):
        await other.publish(name, b"work")
        first = await messages.receive()
        line.cut()
        second = await messages.receive()
        await first.ack()  # too late, and harmless
        assert (second.body, second.redelivered) == (b"work", True)
        await second.ack()
        await other.publish(name, b"next")
        assert (await messages.receive()).body == b"next"


async def test_exactly_once_over_cuts(line: Line, mqtt_broker: MqttBroker, name: str) -> None:
    async with (
        connect(mqtt_broker.mqtt_url) as other,
        other.mqtt.subscribe(name, qos=2) as messages,
        connect(f"{line.mqtt_url}?session_expiry=60") as fabric,
    ):
        for number in range(6):
            sending = asyncio.create_task(fabric.mqtt.publish(name, number, qos=2))
            if number in (1, 3):
                line.hold()
                await line.wait_for_bytes(1)
                line.cut()
            await sending
        assert [(await messages.receive()).json() for _ in range(6)] == list(range(6))


async def test_an_unanswered_request_is_asked_again(
    line: Line, mqtt_broker: MqttBroker, name: str
) -> None:
    async with connect(line.mqtt_url) as fabric, connect(mqtt_broker.mqtt_url) as server:
        async with server.reply(name) as requests:
            asking = asyncio.create_task(fabric.request(name, b"?"))
            first = await requests.receive()
            line.cut()
            second = await requests.receive()
            assert second.message_id == first.message_id
            await second.reply(b"!")
            assert (await asking).body == b"!"


async def test_a_request_waits_for_its_service_to_come_back_too(line: Line, name: str) -> None:
    async with connect(line.mqtt_url) as fabric:
        async with fabric.serve(name, lambda request: request.body):
            await fabric.request(name, b"there")
            line.cut()
            assert (await fabric.request(name, b"again")).body == b"again"


async def test_one_whose_name_was_taken_over_does_not_fight_for_it(line: Line, name: str) -> None:
    async with connect(line.mqtt_url) as fabric, fabric.subscribe(name) as messages:
        line.tell(TAKEN_OVER)
        with pytest.raises(ResourceLocked, match=r"\$share/GROUP/FILTER"):
            await messages.receive()
        with pytest.raises(ResourceLocked, match="choose another name"):
            await fabric.publish(name, b"")


async def test_a_message_that_ends_the_connection_fails_with_the_brokers_reason(
    line: Line, name: str
) -> None:
    async with connect(line.mqtt_url) as fabric:
        line.hold()
        sending = asyncio.create_task(fabric.publish(name, b"forbidden"))
        await line.wait_for_bytes(1)
        line.tell(NOT_AUTHORIZED)
        with pytest.raises(AccessRefused, match=name):
            await sending
        line.cut()
        await fabric.publish(name, b"allowed")


async def test_a_message_that_always_ends_the_connection_is_given_up(name: str) -> None:
    async def let_in_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(bytes.fromhex("20020000"))
        await reader.read(1000)  # the message, or its end
        writer.close()

    async with await asyncio.start_server(let_in_and_close, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        async with connect(f"mqtt://127.0.0.1:{port}?version=3.1.1") as fabric:
            with pytest.raises(ProtocolError, match="closed the connection 3 times"):
                await fabric.publish(name, b"forbidden")


async def test_what_comes_with_the_greeting_belongs_to_the_new_connection() -> None:
    """It is not taken for a copy from before the break, and its acknowledgement counts."""
    acknowledged = asyncio.Event()
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.read(1000)
        if connections == 1:
            writer.write(bytes.fromhex("2003000000"))
            subscribe = await reader.read(1000)
            writer.write(b"\x90\x04" + subscribe[2:4] + b"\x00\x01")
            writer.write(bytes.fromhex("3207000174000100") + b"x")  # quality 1, packet 1
            await writer.drain()
            writer.close()
        else:
            writer.write(bytes.fromhex("20030100003a07000174000100") + b"x")
            if (await reader.read(1000)).startswith(bytes.fromhex("40020001")):
                acknowledged.set()

    async with await asyncio.start_server(serve, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        async with asyncio.timeout(60):
            fabric = await connect(f"mqtt://127.0.0.1:{port}?session_expiry=60").open()
            messages = await fabric.subscribe("t").open()
            again = await messages.receive()
            while not again.redelivered:
                again = await messages.receive()
            await again.ack()
            await acknowledged.wait()
        await fabric.close()
    assert (connections, again.body) == (2, b"x")


async def test_a_taken_over_client_stays_away(line: Line, name: str) -> None:
    async with connect(line.mqtt_url) as fabric, fabric.subscribe(name) as messages:
        line.tell(TAKEN_OVER)
        with pytest.raises(ResourceLocked):
            await messages.receive()
        line.hold()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(line.wait_for_bytes(1), 1.0)


@pytest.mark.parametrize("server", ["penstock", pytest.param("mosquitto", marks=pytest.mark.peer)])
async def test_a_fabric_outlives_its_broker(
    server: str, name: str, request: pytest.FixtureRequest
) -> None:
    """The broker restarts: what it was given stays, and both sides go on."""
    start = request.getfixturevalue(f"new_{server}")
    broker: Penstock | Mosquitto = start(mqtt=True) if server == "penstock" else start()
    async with (
        connect(f"{broker.mqtt_url}?session_expiry=60") as fabric,
        fabric.subscribe(name) as messages,
    ):
        await fabric.publish(name, b"before")
        await asyncio.to_thread(broker.stop)
        sending = asyncio.create_task(fabric.publish(name, b"after"))
        await asyncio.to_thread(broker.start)
        await sending
        bodies = {(await messages.receive()).body for _ in range(2)}
    assert bodies == {b"before", b"after"}
