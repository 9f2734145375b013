"""Messages to exchanges, each until the broker has it safe.

Over AMQP 0-9-1 many are under way on one channel, and leave in one write for each turn of the loop.
When the connection breaks, what was not confirmed is sent again over the next, with the same
message id: a receiver that minds can tell the copies.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.client import Fabric
from penstock.client.amqp091.channel import Channel
from penstock.client.amqp091.connection import Connection
from penstock.client.amqp091.link import Link
from penstock.client.body import JSON
from penstock.core.properties import PERSISTENT, TRANSIENT, Properties
from penstock.pump.flow.declaring import declare_exchange
from penstock.wire.amqp091.address import parse_address
from penstock.wire.amqp091.faults import Lost


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message as it leaves."""

    exchange: str
    topic: str
    body: bytes
    content_type: str | None = None
    headers: Mapping[str, Any] = field(default_factory=dict)
    ttl: float | None = None  #: seconds after which the broker may forget it
    persistent: bool = True


class Outward(Protocol):
    async def send(self, message: Outgoing) -> None:
        """Returns when it is safe."""


class Exchanges:
    """Keeps `Outward`; opened once, closed once."""

    def __init__(self, url: str, patience: float = 0.0) -> None:
        self._link = Link(parse_address(url), "pump sender", self._prepare, patience=patience)
        self._channel: Channel | None = None
        self._declared: set[str] = set()
        self._preparing = asyncio.Lock()
        self._ids = message_ids()

    async def open(self) -> None:
        await self._link.open()

    async def close(self) -> None:
        await self._link.close()

    async def send(self, message: Outgoing) -> None:
        said = properties(message, next(self._ids))
        while True:
            try:
                channel = await self._ready(message.exchange)
                await channel.publish_safely(message.exchange, message.topic, message.body, said)
                return
            except Lost:
                continue

    async def _prepare(self, connection: Connection) -> None:
        self._declared.clear()
        self._channel = await connection.channel()
        await self._channel.confirm()

    async def _ready(self, exchange: str) -> Channel:
        """A channel that confirms, of a connection on which the exchange is declared."""
        channel = self._channel
        if channel is not None and channel.failure is None and exchange in self._declared:
            return channel
        async with self._preparing:
            connection = await self._link.connection()
            if self._channel is None or self._channel.failure is not None:
                await self._prepare(connection)  # a message was refused, and the channel with it
            if exchange not in self._declared:
                await declare_exchange(connection, exchange)
                self._declared.add(exchange)
            assert self._channel is not None
            return self._channel


class Published:
    """Keeps `Outward`, over the client's patterns: MQTT and AMQP 1.0."""

    def __init__(self, fabric: Fabric, *, mqtt: bool) -> None:
        self._fabric = fabric
        self._mqtt = mqtt

    async def send(self, message: Outgoing) -> None:
        if self._mqtt:
            outflow = self._fabric.publisher(message.topic)
        else:
            outflow = self._fabric.publisher(message.topic, exchange=message.exchange)
        body: Any = message.body
        if message.content_type is not None:
            text = message.body.decode()
            body = json.loads(text) if message.content_type == JSON else text
        await outflow.send(body, headers=message.headers or None, ttl=message.ttl)


def properties(message: Outgoing, message_id: str) -> Properties:
    """What is said about it over AMQP 0-9-1."""
    ttl = message.ttl
    return Properties(
        message.content_type,
        dict(message.headers) or None,
        PERSISTENT if message.persistent else TRANSIENT,
        message_id=message_id,
        expiration=None if ttl is None else str(max(0, round(ttl * 1000))),
    )


def message_ids() -> Iterator[str]:
    ours = uuid.uuid4().hex[:20]
    return (f"{ours}{number:012x}" for number in itertools.count())
