"""Clients that have not logged in and clients that have gone: neither holds the broker's memory."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage
from pika import spec

from penstock.broker.user import User
from penstock.core.config import BrokerSettings
from penstock.core.errors import AuthenticationFailed, QueueFull
from penstock.server.broker import Broker
from penstock.server.event_loop import new_event_loop
from penstock.wire.amqp10.frames import AMQP_HEADER, SASL_HEADER
from penstock.wire.amqp10.message import Amqp10Message
from penstock.wire.amqp10.performatives import SaslInit, encode_sasl_frame
from penstock.wire.amqp10.sasl import encode_plain_response
from penstock.wire.padres.frames import PROTOCOL_HEADER as PREFACE
from penstock.wire.padres.frames import OpenFrame, PeerRole, encode_frame
from tests.integration.amqp091.wire import PROTOCOL_HEADER, method_bytes
from tests.protocols.amqp10.peer import Peer

PATIENCE = 60
MUCH = 32 << 20

START_OK = method_bytes(
    0,
    spec.Connection.StartOk(
        client_properties={"capabilities": {"authentication_failure_close": True}},
        mechanism="PLAIN",
        response="\0guest\0wrong",
        locale="en_US",
    ),
)
SASL_INIT = encode_sasl_frame(SaslInit("PLAIN", encode_plain_response("guest", "wrong")))

LOGINS = {
    "amqp091": (PROTOCOL_HEADER, START_OK, b"ACCESS_REFUSED"),
    "amqp10": (SASL_HEADER, SASL_INIT + AMQP_HEADER, b"\x00\x53\x44"),
}


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    settings = BrokerSettings(listen=["amqp://127.0.0.1:0"], drain_seconds=0.1)
    async with Broker(settings, data=tmp_path) as broker:
        yield broker


async def dial(broker: Broker) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", urlsplit(broker.addresses[0]).port))
    connection.setblocking(False)
    return connection


async def receive_until(connection: socket.socket, ending: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    data = b""
    async with asyncio.timeout(PATIENCE):
        while ending not in data:
            piece = await loop.sock_recv(connection, 65536)
            assert piece, f"the broker closed without {ending!r}: {data!r}"
            data += piece
    return data


@pytest.mark.parametrize("protocol", LOGINS)
async def test_nothing_is_read_while_a_login_is_decided(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    asked, decided = asyncio.Event(), asyncio.Event()

    async def authenticate(name: str, password: bytes, *, address: str) -> User:
        asked.set()
        await decided.wait()
        raise AuthenticationFailed("no")

    monkeypatch.setattr(broker.users, "authenticate", authenticate)
    header, login, refusal = LOGINS[protocol]
    loop = asyncio.get_running_loop()
    with closing(await dial(broker)) as stranger:
        await loop.sock_sendall(stranger, header)
        await loop.sock_recv(stranger, 65536)
        flood = asyncio.create_task(loop.sock_sendall(stranger, login + bytes(MUCH)))
        async with asyncio.timeout(PATIENCE):
            await asked.wait()
        for _ in range(4 * MUCH // 65536):  # so often that all could have been read
            await asyncio.sleep(0)

        assert not flood.done()
        decided.set()
        await receive_until(stranger, refusal)
        async with asyncio.timeout(PATIENCE):
            await flood  # what still came was read, and discarded


async def accept(message: AbstractIncomingMessage) -> None:
    await message.ack()


async def use_amqp091(broker: Broker) -> None:
    url = broker.addresses[0].replace("://", "://guest:guest@")
    connection = await aio_pika.connect(url)
    channel = await connection.channel()
    queue = await channel.declare_queue("q", durable=True)
    await queue.consume(accept)
    await channel.declare_queue("own", exclusive=True)
    persistent = aio_pika.Message(b"x", delivery_mode=2)
    await channel.default_exchange.publish(persistent, "q")
    transactional = await connection.channel(publisher_confirms=False)
    async with transactional.transaction():
        await transactional.default_exchange.publish(persistent, "q")
    await connection.close()


async def use_amqp10(broker: Broker) -> None:
    peer = await Peer().connect(urlsplit(broker.addresses[0]).port or 0)
    sender = await peer.sender("/queue/q10")
    await peer.receiver("/queue/q10", credit=1)
    await peer.send(sender, Amqp10Message(b"x"))
    await peer.take()
    await peer.hang_up()  # without a word, and a delivery open


async def fail_amqp091(broker: Broker) -> None:
    with closing(await dial(broker)) as stranger:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(stranger, PROTOCOL_HEADER)
        await loop.sock_recv(stranger, 65536)
        await loop.sock_sendall(stranger, START_OK)
        await receive_until(stranger, b"ACCESS_REFUSED")


async def fail_amqp10(broker: Broker) -> None:
    with closing(await dial(broker)) as stranger:
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(stranger, SASL_HEADER + SASL_INIT)
        await receive_until(stranger, b"\x00\x53\x44")


def port_of(broker: Broker, scheme: str) -> int:
    return next(urlsplit(one).port or 0 for one in broker.addresses if one.startswith(scheme))


async def talk_mqtt(broker: Broker, *said: tuple[bytes, int]) -> None:
    """Say each, and read so many bytes of what is answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(broker, "mqtt:"))
    for packet, answer in said:
        writer.write(packet)
        async with asyncio.timeout(PATIENCE):
            await reader.readexactly(answer)
    writer.close()
    await writer.wait_closed()


MQTT_CONNECT = b"\x10\x1d\x00\x04MQTT\x04\xc2\x00\x00\x00\x03ada\x00\x05guest\x00\x05guest"
MQTT_SUBSCRIBE = b"\x82\x06\x00\x01\x00\x01t\x01"
MQTT_PUBLISH = b"\x32\x06\x00\x01t\x00\x02x"


async def use_mqtt(broker: Broker) -> None:
    delivery_and_ack = len(MQTT_PUBLISH) + 4
    said = (MQTT_CONNECT, 4), (MQTT_SUBSCRIBE, 5), (MQTT_PUBLISH, delivery_and_ack)
    await talk_mqtt(broker, *said, (b"\xe0\x00", 0))


async def lose_mqtt(broker: Broker) -> None:
    """Without a word, and a delivery open."""
    await talk_mqtt(broker, (MQTT_CONNECT, 4), (MQTT_SUBSCRIBE, 5), (MQTT_PUBLISH, 4))


async def fail_mqtt(broker: Broker) -> None:
    await talk_mqtt(broker, (MQTT_CONNECT[:-1] + b"!", 4))


async def talk_padres(broker: Broker, password: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(broker, "padres:"))
    hello = OpenFrame(PeerRole.CLIENT, "ada", user="guest", password=password)
    writer.write(PREFACE + encode_frame(hello))
    async with asyncio.timeout(PATIENCE):
        await reader.readexactly(len(PREFACE) + 1)
    writer.close()
    await writer.wait_closed()


async def use_padres(broker: Broker) -> None:
    await talk_padres(broker, "guest")


async def fail_padres(broker: Broker) -> None:
    await talk_padres(broker, "wrong")


def living() -> Counter[str]:
    """What there is of connections, by its type."""
    modules = ("penstock.protocols", "penstock.broker.flow_control", "penstock.server.event_loop")
    kinds = (type(one) for one in gc.get_objects())
    return Counter(kind.__name__ for kind in kinds if str(kind.__module__).startswith(modules))


async def leave_nothing(folder: Path, use: Callable[[Broker], Awaitable[None]]) -> None:
    listen = [f"{scheme}://127.0.0.1:0" for scheme in ("amqp", "mqtt", "padres")]
    settings = BrokerSettings(listen=listen, drain_seconds=0.1)
    async with Broker(settings, data=folder) as broker:

        async def once() -> None:
            await use(broker)
            async with asyncio.timeout(PATIENCE):
                while broker.clients:  # noqa: ASYNC110 - it tells nobody
                    await asyncio.sleep(0)
            await asyncio.sleep(0)

        await once()
        gc.collect()
        gc.disable()
        try:
            before = living()
            await once()
            assert living() - before == Counter()
        finally:
            gc.enable()


@pytest.mark.parametrize(
    "use",
    [
        *(use_amqp091, use_amqp10, fail_amqp091, fail_amqp10),
        *(use_mqtt, lose_mqtt, fail_mqtt, use_padres, fail_padres),
    ],
)
@pytest.mark.parametrize(
    "new_loop", [new_event_loop, asyncio.new_event_loop], ids=["ours", "asyncio"]
)
def test_a_connection_that_has_ended_is_freed_at_once(
    tmp_path: Path,
    use: Callable[[Broker], Awaitable[None]],
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(leave_nothing(tmp_path, use))


async def test_answers_that_come_after_the_end_are_nobodys(broker: Broker) -> None:
    """A disk that is slow answers when the client has gone."""
    url = broker.addresses[0].replace("://", "://guest:guest@")
    connection = await aio_pika.connect(url)
    channel = await connection.channel()
    await channel.declare_queue("q")
    await channel.default_exchange.publish(aio_pika.Message(b"x"), "q")
    peer = await Peer().connect(urlsplit(broker.addresses[0]).port or 0)
    await peer.send(await peer.sender("/queue/q"), Amqp10Message(b"x"))
    exchange = cast(Any, broker.vhosts["/"].exchanges[""])
    producers = list(exchange._channels)
    assert len(producers) == 2

    await connection.close()
    await peer.hang_up()
    async with asyncio.timeout(PATIENCE):
        while broker.clients:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0)

    for producer in producers:
        producer.terminal.channel_confirm(producer, 2)
        producer.terminal.channel_failure(producer, 3, QueueFull("q"))
    broker.kernel.write_batch.flush()
    assert not broker.kernel.write_batch.to_flush
