"""One port for both versions of AMQP: the first bytes decide."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from penstock.core.config import BrokerSettings
from penstock.server.broker import Broker

HEADER_091 = b"AMQP\x00\x00\x09\x01"
HEADER_SASL = b"AMQP\x03\x01\x00\x00"


@pytest.mark.parametrize("step", [1, 3, 8])
@pytest.mark.parametrize(
    ("said", "protocol"),
    [
        (HEADER_091, "AMQP 0-9-1"),
        (HEADER_SASL, "AMQP 1.0"),
        (b"AMQP\x00\x01\x00\x00", "AMQP 1.0"),
        (b"AMQP\x02\x01\x00\x00", "AMQP 1.0"),
        (b"AMQP\x01\x01\x00\x0a", "AMQP 0-9-1"),
        (b"GET / HT", "AMQP 0-9-1"),
    ],
)
async def test_the_first_bytes_decide(
    tmp_path: Path, said: bytes, protocol: str, step: int
) -> None:
    settings = BrokerSettings(listen=["amqp://127.0.0.1:0"], drain_seconds=0.1)
    async with Broker(settings, data=tmp_path) as broker:
        port = urlsplit(broker.addresses[0]).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for at in range(0, len(said), step):
            writer.write(said[at : at + step])
            await writer.drain()
        async with asyncio.timeout(60):
            answer = await reader.readexactly(8)
        writer.close()
        if protocol == "AMQP 1.0":
            assert answer == HEADER_SASL
        else:
            assert answer == HEADER_091 or answer.startswith(b"\x01\x00\x00")


async def test_a_client_of_which_nothing_is_known_goes_with_the_broker(tmp_path: Path) -> None:
    settings = BrokerSettings(listen=["amqp://127.0.0.1:0"], drain_seconds=0.1)
    async with Broker(settings, data=tmp_path) as broker:
        port = urlsplit(broker.addresses[0]).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"AMQP")
        await writer.drain()
    async with asyncio.timeout(60):
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
    writer.close()
