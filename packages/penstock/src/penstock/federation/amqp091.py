"""The sides of a transfer that are AMQP 0-9-1 brokers."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from penstock.client.amqp091.channel import AmqpClientChannel
from penstock.client.amqp091.connection import AmqpClientConnection, connect
from penstock.core.errors import NotFound, PenstockError
from penstock.federation.transfer import TransferFailed, TransferMessage, TransferOutcome
from penstock.wire.amqp091.address import AmqpAddress
from penstock.wire.amqp091.content import AmqpContent

#: Declares what is needed on the connection; returns the queue to consume and its length.
SetupSource = Callable[[AmqpClientConnection], Awaitable[tuple[str, int]]]
SetupDestination = Callable[[AmqpClientConnection], Awaitable[None]]

CONSUMER_TAG = "penstock"


async def ensure_queue(
    connection: AmqpClientConnection, name: str, arguments: dict[str, Any], predeclared: bool
) -> int:
    """Declare a durable queue unless it exists, with any arguments; returns its length."""
    try:
        async with await connection.channel() as channel:
            declared = await channel.declare_queue(name, passive=True)
    except NotFound:
        if predeclared:
            raise
        async with await connection.channel() as channel:
            declared = await channel.declare_queue(name, arguments=arguments)
    return int(declared.message_count)


class Amqp091TransferSource:
    def __init__(
        self,
        addresses: Sequence[AmqpAddress],
        name: str,
        setup: SetupSource,
        prefetch: int,
        arguments: dict[str, Any] | None = None,
        *,
        paused: bool = False,
    ) -> None:
        """`name` is the name of the connection, `arguments` are those of the consumer."""
        self.address = random.choice(addresses)
        self._name = name
        self._setup = setup
        self._prefetch = prefetch
        self._arguments = arguments or {}
        self._paused = paused
        self._queue = ""
        self.connection: AmqpClientConnection | None = None
        self.channel: AmqpClientChannel | None = None
        self.backlog: int | None = None

    async def open(
        self, arrived: Callable[[TransferMessage], None], failed: TransferFailed
    ) -> None:
        self.connection = connection = await connect(self.address, self._name)
        self._queue, self.backlog = await self._setup(connection)
        self.channel = channel = await connection.channel()

        def deliver(contents: list[AmqpContent]) -> None:
            for content in contents:
                arrived(
                    TransferMessage(
                        content.route, content.header, content.body, content.tag,
                        content.redelivered,
                    )
                )  # fmt: skip

        channel.on_deliveries = deliver
        channel.on_closed = failed
        channel.on_cancelled = lambda _: failed(NotFound(f"queue '{self._queue}' was deleted"))
        await channel.prefetch(self._prefetch)
        if not self._paused:
            await self.consume()

    async def consume(self) -> None:
        assert self.channel is not None
        await self.channel.consume(self._queue, CONSUMER_TAG, self._arguments)

    async def pause(self) -> None:
        assert self.channel is not None
        await self.channel.cancel(CONSUMER_TAG)

    def ack(self, message: TransferMessage) -> None:
        if self.channel is not None:
            self.channel.ack(message.tag)

    async def close(self) -> None:
        connection, self.connection, self.channel = self.connection, None, None
        if connection is not None:
            await connection.close()


class Amqp091TransferDestination:
    def __init__(
        self,
        addresses: Sequence[AmqpAddress],
        name: str,
        setup: SetupDestination,
    ) -> None:
        self.address = random.choice(addresses)
        self._name = name
        self._setup = setup
        self._connection: AmqpClientConnection | None = None
        self._channel: AmqpClientChannel | None = None

    @property
    def flowing(self) -> bool:
        return self._connection is None or self._connection.flowing

    async def open(self, failed: TransferFailed) -> None:
        self._connection = connection = await connect(self.address, self._name)
        await self._setup(connection)
        self._channel = channel = await connection.channel()
        channel.on_closed = failed
        await channel.confirm()

    async def flow(self) -> None:
        assert self._connection is not None
        await self._connection.flow()

    def send(self, message: TransferMessage, outcome: TransferOutcome) -> None:
        assert self._channel is not None
        try:
            self._channel.post_encoded(message.route, message.header, message.body, outcome)
        except PenstockError as error:
            outcome(error)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()
