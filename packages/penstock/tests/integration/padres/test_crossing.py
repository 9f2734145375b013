"""One content space: what enters by PADRES, AMQP or MQTT reaches who wants it by any of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import aio_pika
import aiomqtt
import paho.mqtt.client as paho
import pytest
from aio_pika.abc import AbstractChannel, AbstractQueue
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from penstock.client.padres import PadresClient
from penstock.content.parser import format_time
from tests.padres import SECONDS, PadresBroker, Watcher

EXCHANGE = "content"
#: Of this many bytes a message goes by a file of the broker's.
LARGE = 300_000


@pytest.fixture
async def channel(padres: PadresBroker, ada: PadresClient) -> AsyncIterator[AbstractChannel]:
    """With a client of PADRES connected there is an exchange to publish to."""
    connection = await aio_pika.connect(padres.server.url)
    async with connection:
        yield await connection.channel()


@pytest.fixture
async def mqtt(padres: PadresBroker) -> AsyncIterator[aiomqtt.Client]:
    async with aiomqtt.Client(
        "127.0.0.1",
        padres.server.mqtt_port,
        username="guest",
        password="guest",
        protocol=aiomqtt.ProtocolVersion.V5,
    ) as client:
        yield client


async def wanting(channel: AbstractChannel, subscription: str, **more: Any) -> AbstractQueue:
    queue = await channel.declare_queue(exclusive=True)
    await queue.bind(EXCHANGE, "", arguments={"x-subscription": subscription, **more})
    return queue


async def publish(channel: AbstractChannel, body: bytes, **headers: Any) -> None:
    exchange = await channel.get_exchange(EXCHANGE)
    await exchange.publish(aio_pika.Message(body, headers=headers), "any.key", mandatory=False)


async def take(queue: AbstractQueue, count: int = 1) -> list[Any]:
    """The next messages, without those that come behind."""
    found: list[Any] = []
    async with asyncio.timeout(SECONDS), queue.iterator() as messages:
        async for message in messages:
            await message.ack()
            found.append(message)
            if len(found) == count:
                break
    return found


def attributes(**values: str) -> Properties:
    properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    properties.UserProperty = list(values.items())
    return properties


async def next_of(client: aiomqtt.Client) -> aiomqtt.Message:
    async with asyncio.timeout(SECONDS):
        return await anext(aiter(client.messages))


# AMQP.


async def test_a_queue_gets_what_a_client_publishes(
    ada: PadresClient, channel: AbstractChannel, kind: str
) -> None:
    queue = await wanting(channel, f"[class,eq,{kind}],[price,<,50]")
    await ada.advertise(f"[class,eq,{kind}],[price,>,0],[symbol,isPresent,'']")
    await ada.publish(f"[class,{kind}],[price,55]")
    published = await ada.publish(f"[class,{kind}],[price,45.5],[symbol,'IBM']", b"payload")

    (message,) = await take(queue)
    assert message.body == b"payload"
    assert message.headers == {"class": kind, "price": 45.5, "symbol": "IBM"}
    assert message.message_id == published


async def test_a_client_gets_what_is_published_to_the_exchange(
    bob: Watcher, channel: AbstractChannel, kind: str
) -> None:
    await bob.client.subscribe(f"[class,eq,{kind}],[price,<,50]")
    await publish(channel, b"one", **{"class": kind, "price": 45, "symbol": "IBM"})
    await publish(channel, b"two", **{"class": kind, "price": 55})

    (received,) = await bob.got()
    assert received.attributes == {"price": 45, "symbol": "IBM"}
    assert received.payload == b"one"
    assert received.source == "Broker1-exchange-content"


async def test_a_large_message_has_its_payload_for_clients_too(
    bob: Watcher, channel: AbstractChannel, kind: str
) -> None:
    large = bytes(range(256)) * 4 * 1024  # 1 MiB: it goes by a file of the broker's
    queue = await wanting(channel, f"[class,eq,{kind}]")
    await bob.client.subscribe(f"[class,eq,{kind}]")
    await publish(channel, large, **{"class": kind})

    (received,) = await bob.got()
    assert received.payload == large
    (message,) = await take(queue)
    assert message.body == large


async def test_a_payload_of_many_mebibytes_comes_whole_and_one_too_large_is_left_out(
    bob: Watcher, channel: AbstractChannel, kind: str
) -> None:
    await bob.client.subscribe(f"[class,eq,{kind}]")
    for size in (16, 17):
        await publish(channel, bytes(size * 1024 * 1024), **{"class": kind, "size": size})

    whole, without = await bob.got()
    assert (whole["size"], len(whole.payload)) == (16, 16 * 1024 * 1024)
    assert (without.attributes, without.payload) == ({"size": 17}, b"")


@pytest.mark.parametrize("year", [2008, 1960])
async def test_a_publication_may_bring_its_time(
    ada: PadresClient, bob: Watcher, channel: AbstractChannel, kind: str, year: int
) -> None:
    said = datetime(year, 6, 19, 17, 14, 58, tzinfo=UTC)
    queue = await wanting(channel, f"[class,eq,{kind}]")
    await bob.client.subscribe(f"[class,eq,{kind}]")
    await ada.advertise(f"[class,eq,{kind}]")
    await ada.publish(f"[class,{kind}];{format_time(said)};")

    (received,) = await bob.got()
    (message,) = await take(queue)
    assert received.time == said
    assert message.timestamp == (said if year > 1970 else None)


async def test_a_header_without_a_name_in_the_language_is_left_out(
    bob: Watcher, channel: AbstractChannel, kind: str
) -> None:
    await bob.client.subscribe(f"[class,eq,{kind}]")
    await publish(channel, b"", **{"class": kind, "two words": 1, "x-one": 2})

    (received,) = await bob.got()
    assert received.attributes == {"x-one": 2}


async def test_a_queue_gets_a_message_of_the_exchange_once(
    bob: Watcher, channel: AbstractChannel, kind: str
) -> None:
    queue = await wanting(channel, f"[class,eq,{kind}]")
    await bob.client.subscribe(f"[class,eq,{kind}]")
    await publish(channel, b"once", **{"class": kind})
    await publish(channel, b"again", **{"class": kind})

    assert [one.body for one in await take(queue, 2)] == [b"once", b"again"]
    assert [one.payload for one in await bob.got()] == [b"once", b"again"]


async def test_a_binding_that_goes_brings_no_more(
    ada: PadresClient, channel: AbstractChannel, kind: str
) -> None:
    queue = await wanting(channel, f"[class,eq,{kind}]")
    await ada.advertise(f"[class,eq,{kind}]")
    await queue.unbind(EXCHANGE, "", arguments={"x-subscription": f"[class,eq,{kind}]"})
    await ada.publish(f"[class,{kind}]")

    assert await queue.get(fail=False) is None


async def test_a_composite_binding_brings_all_of_a_match(
    ada: PadresClient, channel: AbstractChannel, kind: str
) -> None:
    parts = [f"{{[class,eq,{kind}],[part,eq,{part}],[n,=,$I$x]}}" for part in "AB"]
    queue = await wanting(channel, f"{{{'&'.join(parts)}}}", **{"x-policy": "consume-once"})
    await ada.advertise(f"[class,eq,{kind}],[part,isPresent,''],[n,isPresent,0]")
    await ada.publish(f"[class,{kind}],[part,A],[n,1]", b"A1")
    await publish(channel, b"B2", **{"class": kind, "part": "B", "n": 2})
    await publish(channel, b"B1", **{"class": kind, "part": "B", "n": 1})

    assert [one.body for one in await take(queue, 2)] == [b"A1", b"B1"]
    assert await queue.get(fail=False) is None


async def test_large_messages_are_parts_of_composite_bindings(
    channel: AbstractChannel, kind: str
) -> None:
    parts = [f"{{[class,eq,{kind}],[part,eq,{part}]}}" for part in "AB"]
    queue = await wanting(channel, f"{{{'&'.join(parts)}}}")
    bodies = [part * LARGE for part in (b"A", b"B")]
    for part, body in zip("AB", bodies, strict=True):
        await publish(channel, body, **{"class": kind, "part": part})

    assert [one.body for one in await take(queue, 2)] == bodies


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"x-subscription": "{[class,eq,a]}&{[class,eq,b]}"}, "column"),
        ({"x-subscription": "{{[class,eq,a]}&{[class,eq,b]}}", "x-policy": "never"}, "x-policy"),
        ({}, "x-subscription"),
    ],
)
async def test_a_binding_that_makes_no_sense_is_refused(
    channel: AbstractChannel, arguments: dict[str, Any], why: str
) -> None:
    queue = await channel.declare_queue(exclusive=True)

    with pytest.raises(aio_pika.exceptions.ChannelPreconditionFailed, match=why):
        await queue.bind(EXCHANGE, "", arguments=arguments)


async def test_all_that_is_published_is_kept_in_a_stream(
    padres: PadresBroker, ada: PadresClient, channel: AbstractChannel, kind: str
) -> None:
    await ada.advertise(f"[class,eq,{kind}]")
    await ada.publish(f"[class,{kind}]", b"by PADRES, wanted by nobody")
    await publish(channel, b"by AMQP", **{"class": kind})
    await wanting(channel, f"[class,eq,{kind}]")
    await ada.publish(f"[class,{kind}]", b"by PADRES")

    await channel.set_qos(prefetch_count=100)
    stream = await channel.get_queue("publications")
    kept: list[bytes] = []
    async with (
        asyncio.timeout(SECONDS),
        stream.iterator(arguments={"x-stream-offset": "first"}) as messages,
    ):
        async for message in messages:
            if message.headers.get("class") == kind:
                kept.append(message.body)
            await message.ack()
            if message.body == b"by PADRES":
                break

    assert kept == [b"by PADRES, wanted by nobody", b"by AMQP", b"by PADRES"]


# MQTT.


async def test_a_filter_is_a_subscription(
    ada: PadresClient, channel: AbstractChannel, mqtt: aiomqtt.Client, kind: str
) -> None:
    await mqtt.subscribe(f"$content/[class,eq,{kind}],[price,<,50]", qos=1)
    await ada.advertise(f"[class,eq,{kind}],[price,>,0]")
    await ada.publish(f"[class,{kind}],[price,55]", b"dear")
    await ada.publish(f"[class,{kind}],[price,45]", b"cheap")
    await publish(channel, b"cheaper", **{"class": kind, "price": 44})

    first, second = await next_of(mqtt), await next_of(mqtt)
    assert (first.payload, first.qos) == (b"cheap", 1)
    assert str(first.topic) == str(second.topic) == f"$content/{kind}"
    assert dict(getattr(first.properties, "UserProperty", [])) == {"class": kind, "price": "45"}
    assert second.payload == b"cheaper"


async def test_user_properties_are_attributes(
    bob: Watcher, mqtt: aiomqtt.Client, kind: str
) -> None:
    await bob.client.subscribe(f"[class,eq,{kind}],[price,<,50]")
    told = {"price": "45.5", "n": "-7", "symbol": "IBM", "code": "007", "text": "'12'"}
    await mqtt.publish(f"$content/{kind}", b"one", qos=1, properties=attributes(**told))
    await mqtt.publish(
        "$content", b"two", qos=1, properties=attributes(price="1", **{"class": kind})
    )
    await mqtt.publish(f"$content/{kind}", b"three", qos=1, properties=attributes(price="60"))

    first, second = await bob.got()
    assert first.attributes == {
        "price": 45.5,
        "n": -7,
        "symbol": "IBM",
        "code": "007",
        "text": "12",
    }
    assert first.payload == b"one"
    assert (second.payload, second["price"]) == (b"two", 1)


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_large_message_is_published_by_content(
    bob: Watcher, mqtt: aiomqtt.Client, kind: str, qos: int
) -> None:
    await bob.client.subscribe(f"[class,eq,{kind}],[price,<,50]")
    large = b"large" * LARGE
    await mqtt.publish(f"$content/{kind}", large, qos=qos, properties=attributes(price="45"))
    await mqtt.publish(f"$content/{kind}", b"behind", qos=1, properties=attributes(price="46"))

    assert [(one["price"], one.payload) for one in await bob.got()] == [
        (45, large),
        (46, b"behind"),
    ]


async def test_a_large_text_in_the_language_is_refused_and_the_client_stays(
    bob: Watcher, mqtt: aiomqtt.Client, kind: str
) -> None:
    await bob.client.subscribe(f"[class,eq,{kind}]")
    properties = attributes()
    properties.ContentType = "application/x-padres"
    text = f"[class,{kind}],[text,'{'x' * LARGE}']"
    await mqtt.publish("$content", text, qos=1, properties=properties)
    await mqtt.publish(f"$content/{kind}", b"behind", qos=1)

    assert [one.payload for one in await bob.got()] == [b"behind"]


async def test_mqtt_clients_reach_each_other_by_content(
    padres: PadresBroker, mqtt: aiomqtt.Client, kind: str
) -> None:
    await mqtt.subscribe(
        f"$content/{{{{[class,eq,{kind}],[part,eq,A]}}&{{[class,eq,{kind}],[part,eq,B]}}}}"
    )
    await mqtt.publish(f"$content/{kind}", b"A", qos=1, properties=attributes(part="A"))
    await mqtt.publish(f"$content/{kind}", b"B", qos=1, properties=attributes(part="B"))

    assert [(await next_of(mqtt)).payload for _ in range(2)] == [b"A", b"B"]


async def test_the_place_of_a_mistake_is_in_the_reason(padres: PadresBroker) -> None:
    granted, words = await _subscribe(padres, "$content/[class,eq,stock],[price,<,x]")

    assert granted == 0x8F
    assert words == "column 27: expected a number after <, found 'x]'"


async def test_a_subscription_by_content_cannot_be_shared(padres: PadresBroker) -> None:
    granted, words = await _subscribe(padres, "$share/group/$content/[class,eq,stock]")

    assert granted == 0x9E
    assert "cannot be shared" in words


async def _subscribe(padres: PadresBroker, topic: str) -> tuple[int, str]:
    """The reason in a SUBACK, and the words beside it."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[tuple[int, str]] = loop.create_future()
    client = paho.Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)

    def on_connect(*_: Any) -> None:
        client.subscribe(topic)

    def on_subscribe(_: Any, __: Any, ___: int, codes: list[ReasonCode], said: Any) -> None:
        told = (codes[0].value, getattr(said, "ReasonString", ""))
        loop.call_soon_threadsafe(answered.set_result, told)

    client.on_connect = on_connect
    client.on_subscribe = on_subscribe
    client.username_pw_set("guest", "guest")
    client.connect("127.0.0.1", padres.server.mqtt_port)
    client.loop_start()
    try:
        async with asyncio.timeout(SECONDS):
            return await answered
    finally:
        client.disconnect()
        client.loop_stop()


async def test_nothing_comes_after_unsubscribing(
    ada: PadresClient, mqtt: aiomqtt.Client, kind: str
) -> None:
    await mqtt.subscribe(f"$content/[class,eq,{kind}]")
    await mqtt.unsubscribe(f"$content/[class,eq,{kind}]")
    await mqtt.subscribe(f"end/{kind}")
    await ada.advertise(f"[class,eq,{kind}]")
    await ada.publish(f"[class,{kind}]")
    await mqtt.publish(f"end/{kind}", json.dumps({"end": True}))

    assert str((await next_of(mqtt)).topic) == f"end/{kind}"
