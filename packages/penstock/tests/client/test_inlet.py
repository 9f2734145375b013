"""What a consumer over AMQP 0-9-1 does with deliveries that are hard to read."""

from __future__ import annotations

import asyncio

from penstock.client import Fabric
from penstock.core.basic_properties import BasicProperties, encode_header, encode_route

SECONDS = 60


async def test_a_timestamp_beyond_the_year_9999_is_no_timestamp(fabric: Fabric, name: str) -> None:
    beyond = 0xFFFF_FFFF_FFFF_FFFF
    async with asyncio.timeout(SECONDS), fabric.pull(name) as items:
        async with await fabric.amqp.channel(confirm=True) as channel:
            for seconds in (beyond, 253_402_300_800, 0):
                properties = BasicProperties(timestamp=seconds, headers={"n": seconds % 97})
                await channel.post("", name, b"", properties, mandatory=True)
        found = [await items.receive() for _ in range(3)]

    assert [message.headers["n"] for message in found] == [beyond % 97, 253_402_300_800 % 97, 0]
    assert [message.timestamp is None for message in found] == [True, True, False]


async def test_headers_that_cannot_be_read_end_no_consumer(fabric: Fabric, name: str) -> None:
    header = bytearray(encode_header(BasicProperties(headers={"x": 1}), 0))
    at = header.index(b"\x01x") + 2
    header[at : at + 1] = b"?"  # no type of a value
    async with asyncio.timeout(SECONDS), fabric.subscribe(name) as messages:
        async with await fabric.amqp.channel() as channel:
            try:
                channel.publish_encoded(encode_route("amq.topic", name), bytes(header), b"")
                await channel.prefetch(0)  # an answer behind it
            except Exception:  # a broker may refuse it
                assert channel.failure is not None
        await fabric.publish(name, b"next")
        assert (await messages.receive()).body == b"next"
