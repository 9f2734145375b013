"""Receivers: one source of messages, and the buffer between the socket and the program."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Callable
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from penstock.client.errors import FabricClosed
from penstock.client.message import ReceivedMessage
from penstock.core.errors import PenstockError


class RecoveringConsumer(Protocol):
    """Receives across reconnects."""

    async def open(self) -> None: ...

    async def receive(self) -> ReceivedMessage: ...

    async def close(self) -> None: ...


class MessageReceiver:
    """One source of messages: iterate over it, or `receive()` one message at a time.

    Iteration acknowledges: a message is acknowledged when the loop requests the next one. If the
    loop is left early, its last message is delivered again, unless an `async with` block ends
    without an exception: that acknowledges it. A message from `receive()` is acknowledged by the
    program.
    """

    def __init__(self, consumer: RecoveringConsumer, *, replies: bool = False) -> None:
        self._consumer = consumer
        self._replies = replies  #: an exception in `async with` is the reply to the message
        self._current: ReceivedMessage | None = None
        self._in_block = False  #: an `async with` block closes it

    async def open(self) -> Self:
        """Returns when messages that are sent from now on are received."""
        await self._consumer.open()
        return self

    async def receive(self) -> ReceivedMessage:
        return await self._consumer.receive()

    async def close(self) -> None:
        await self._consumer.close()

    async def __aiter__(self) -> AsyncGenerator[ReceivedMessage, None]:
        try:
            while True:
                try:
                    message = self._current = await self._consumer.receive()
                except FabricClosed:
                    return
                yield message
                self._current = None
                await message.ack()
        finally:
            if not self._in_block:
                await self.close()

    async def __aenter__(self) -> Self:
        self._in_block = True
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        message, self._current = self._current, None
        try:
            if message is not None and error is None:
                await message.ack()
            elif message is not None and self._replies and isinstance(error, Exception):
                with contextlib.suppress(PenstockError):
                    await message.fail(error)
                    await message.ack()
        finally:
            await self.close()


T = TypeVar("T")


class DeliveryBuffer(Generic[T]):
    """Deliveries that wait for the program, or the error that ended the source."""

    def __init__(self) -> None:
        self._waiting: deque[T] = deque()
        self._change = asyncio.Event()  #: something arrived, or there was a failure
        self._failure: PenstockError | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, arrival: T) -> None:
        self._waiting.append(arrival)
        self._change.set()

    async def take(self) -> T:
        while not self._waiting:
            self.check()
            self._change.clear()
            await self._change.wait()
        return self._waiting.popleft()

    def fail(self, error: PenstockError) -> None:
        """The first error is the one that is raised."""
        self._failure = self._failure or error
        self._change.set()

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def retain(self, wanted: Callable[[T], bool]) -> None:
        self._waiting = deque(filter(wanted, self._waiting))

    def clear(self) -> None:
        self._waiting.clear()
