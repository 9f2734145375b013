"""Where messages come from: what each pattern declares and consumes.

A source is attached to every new channel in turn, so it declares all it needs each time and knows
where to go on. Whether it `redelivers` decides how it is received: a source that does hands out
again what was not acknowledged, so the receiver acknowledges when done; from one that does not,
acknowledgements are only credit for more.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from aiormq import Channel
from aiormq import exceptions as aiormq
from aiormq.abc import DeliveredMessage

from penstock.client.amqp.faults import Reopen
from penstock.client.fabric import Start

OFFSET: Final = "x-stream-offset"

Arguments = dict[str, Any]


class Source(Protocol):
    """What an inlet draws from."""

    prefetch: int
    redelivers: bool

    async def attach(self, channel: Channel) -> tuple[str, Arguments]:
        """Declare what is needed; the queue to consume and the arguments to consume it with."""

    def admit(self, delivered: DeliveredMessage) -> bool:
        """Whether the program should see this message."""


class WorkQueue:
    """A durable queue, declared so, or taken as it is found when it was declared otherwise."""

    __slots__ = ("_found", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._found = False

    async def declare(self, channel: Channel) -> None:
        try:
            await channel.queue_declare(self.name, durable=True, passive=self._found)
        except aiormq.ChannelPreconditionFailed:
            if self._found:
                raise
            self._found = True
            raise Reopen from None
        except aiormq.ChannelNotFoundEntity:
            if not self._found:
                raise
            self._found = False
            raise Reopen from None


class Topic:
    """A topic exchange, declared so, or taken as it is found where it may not be declared.

    Those named `amq.` are always there.
    """

    __slots__ = ("_found", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self._found = name.startswith("amq.")

    async def declare(self, channel: Channel) -> None:
        if self.name.startswith("amq."):
            return
        try:
            await channel.exchange_declare(
                self.name, exchange_type="topic", durable=True, passive=self._found
            )
        except (aiormq.ChannelPreconditionFailed, aiormq.ChannelAccessRefused):
            if self._found:
                raise
            self._found = True
            raise Reopen from None
        except aiormq.ChannelNotFoundEntity:
            self._found = False  # by the next attempt it may be there, or ours to make
            raise


class Work:
    """Push/pull: items of a work queue, each to one of those who pull."""

    redelivers = True

    def __init__(self, queue: str, prefetch: int) -> None:
        self.prefetch = prefetch
        self._queue = WorkQueue(queue)

    async def attach(self, channel: Channel) -> tuple[str, Arguments]:
        await self._queue.declare(channel)
        return self._queue.name, {}

    def admit(self, delivered: DeliveredMessage) -> bool:
        return True


class Calls:
    """Request/reply: the requests to a service. The queue goes with the last who serves it, so
    that a request nobody would answer is returned at once."""

    redelivers = True

    def __init__(self, service: str, prefetch: int) -> None:
        self.prefetch = prefetch
        self._service = service

    async def attach(self, channel: Channel) -> tuple[str, Arguments]:
        await channel.queue_declare(self._service, durable=False, auto_delete=True)
        return self._service, {}

    def admit(self, delivered: DeliveredMessage) -> bool:
        return True


class Subscription:
    """Publish/subscribe: copies of what matches, from now on; or, with a name, since it was made.

    Without a name the queue is the connection's own and ends with it: what is published while the
    connection is broken is not seen.
    """

    def __init__(
        self, patterns: Sequence[str], exchange: str, name: str | None, prefetch: int
    ) -> None:
        self.prefetch = prefetch
        self.redelivers = name is not None
        self._patterns = patterns
        self._exchange = Topic(exchange)
        self._queue = None if name is None else WorkQueue(name)

    async def attach(self, channel: Channel) -> tuple[str, Arguments]:
        await self._exchange.declare(channel)
        if self._queue is None:
            declared = await channel.queue_declare("", exclusive=True, auto_delete=True)
            queue = str(declared.queue)
        else:
            await self._queue.declare(channel)
            queue = self._queue.name
        for pattern in self._patterns:
            await channel.queue_bind(queue, self._exchange.name, pattern)
        return queue, {}

    def admit(self, delivered: DeliveredMessage) -> bool:
        return True


class Replay:
    """A stream from a point on; after a break, from the message after the last one seen."""

    redelivers = False

    def __init__(self, stream: str, start: Start, prefetch: int) -> None:
        self.prefetch = prefetch
        self._stream = stream
        self._start = _stream_offset(start)
        self._last = -1

    async def attach(self, channel: Channel) -> tuple[str, Arguments]:
        await channel.queue_declare(self._stream, durable=True, passive=True)
        begin = self._start if self._last < 0 else self._last + 1
        if self._start == "next":
            # Should the connection break before the first message, "next" would then mean later.
            self._start = datetime.now(UTC)
        return self._stream, {OFFSET: begin}

    def admit(self, delivered: DeliveredMessage) -> bool:
        offset = offset_of(delivered)
        if offset is None or offset <= self._last:
            return False
        self._last = offset
        return True


def offset_of(delivered: DeliveredMessage) -> int | None:
    headers = delivered.header.properties.headers or {}
    offset = headers.get(OFFSET)
    return offset if isinstance(offset, int) else None


async def declare_stream(
    channel: Channel,
    name: str,
    subjects: Sequence[str],
    exchange: str,
    max_age: str | None,
    max_bytes: int | None,
) -> None:
    arguments: Arguments = {"x-queue-type": "stream"}
    if max_age is not None:
        arguments["x-max-age"] = max_age
    if max_bytes is not None:
        arguments["x-max-length-bytes"] = max_bytes
    await channel.queue_declare(name, durable=True, arguments=arguments)
    for subject in subjects:
        await channel.queue_bind(name, exchange, subject)


def _stream_offset(start: Start) -> str | int | datetime:
    if isinstance(start, timedelta):
        return f"{round(start.total_seconds())}s"
    if isinstance(start, datetime):
        return start.astimezone(UTC)
    return start
