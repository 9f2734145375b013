"""The boundary holds: a protocol is added as one file that speaks the contract, and nothing else.

The toy listens next to AMQP on one broker, and each hears what the other says.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aio_pika
import pytest

from penstock.core.config import BrokerSettings
from penstock.server import Broker
from tests.protocols import toy


class ToyClient:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def hear(self) -> str:
        return (await self._reader.readline()).decode().rstrip("\n")

    async def say(self, line: str) -> str:
        self.writer.write(line.encode() + b"\n")
        return await self.hear()


class House:
    """One broker, with a listener for each of two protocols."""

    def __init__(self, broker: Broker, toy_port: int) -> None:
        self.broker = broker
        self.amqp = broker.addresses[0].replace("amqp://", "amqp://guest:guest@")
        self._toy_port = toy_port

    @asynccontextmanager
    async def toy(self) -> AsyncIterator[ToyClient]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._toy_port)
        yield ToyClient(reader, writer)
        writer.close()


@pytest.fixture
async def house(tmp_path: Path) -> AsyncIterator[House]:
    settings = BrokerSettings(listen=["amqp://127.0.0.1:0"])
    async with Broker(settings, data=tmp_path) as broker:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: toy.ToyTerminal(broker), "127.0.0.1", 0)
        broker.vhosts["/"].declare_queue("jobs", durable=True)
        yield House(broker, server.sockets[0].getsockname()[1])
        server.close()


def test_it_takes_under_a_hundred_lines_and_nothing_but_the_contract() -> None:
    source = Path(toy.__file__).read_text()
    code = [line for line in source.split('"""', 2)[2].splitlines() if line.strip()]
    assert len(code) < 100
    assert not [
        line for line in code if "penstock.destinations" in line or "penstock.server" in line
    ]


async def test_what_one_protocol_publishes_the_other_receives(house: House) -> None:
    connection = await aio_pika.connect(house.amqp)
    channel = await connection.channel(publisher_confirms=True)
    queue = await channel.declare_queue("to-amqp")
    async with house.toy() as client:
        assert await client.say("SUB /queue/jobs") == "OK"
        await channel.default_exchange.publish(aio_pika.Message(b"from amqp"), "jobs")
        assert await client.hear() == "MSG 1 from amqp"

        assert await client.say("PUB /exchange//to-amqp from the toy") == "OK"
        message = await queue.get()
        assert (message.body, message.routing_key) == (b"from the toy", "to-amqp")
        await message.ack()
    await connection.close()


async def test_what_is_not_answered_goes_to_the_next(house: House) -> None:
    async with house.toy() as first:
        assert await first.say("PUB /exchange//jobs one") == "OK"
        assert await first.say("PUB /exchange//jobs two") == "OK"
        assert await first.say("SUB /queue/jobs") == "OK"
        assert await first.hear() == "MSG 3 one"
        assert await first.say("ACK 3") == "MSG 4 two"
        assert await first.say("REQ 4") == "MSG 5 two"
    async with house.toy() as second:
        assert await second.say("SUB /queue/jobs") == "OK"
        assert await second.hear() == "MSG 1 two"


async def test_errors_reach_the_client_in_its_own_words(house: House) -> None:
    async with house.toy() as client:
        assert await client.say("SUB /queue/none") == "ERR no queue 'none' in vhost '/'"
        assert (await client.say("PUB nonsense x")).startswith(
            "ERR 'nonsense' is not a destination"
        )
        assert (await client.say("DANCE")).startswith("ERR")
        assert await client.say("SUB /queue/jobs") == "OK"
        house.broker.vhosts["/"].delete_queue("jobs")
        house.broker.kernel.write_batch.flush()
        assert await client.hear() == "ERR queue 'jobs' in vhost '/' was deleted"
