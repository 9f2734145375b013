"""The receiving end that programs hold: a loop that settles, whichever protocol leads there."""

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


class SettlingReceiver:
    """A place messages come from; keeps `penstock.client.fabric.MessageReceiver`."""

    def __init__(self, consumer: RecoveringConsumer, *, answers: bool = False) -> None:
        self._consumer = consumer
        self._answers = answers  #: an error while one is in hand is the answer to it
        self._in_hand: ReceivedMessage | None = None
        self._held = False  #: by an `async with` block, which closes it

    async def open(self) -> Self:
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
                    message = self._in_hand = await self._consumer.receive()
                except FabricClosed:
                    return
                yield message
                self._in_hand = None
                await message.ack()
        finally:
            if not self._held:
                await self.close()

    async def __aenter__(self) -> Self:
        self._held = True
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        message, self._in_hand = self._in_hand, None
        try:
            if message is not None and error is None:
                await message.ack()
            elif message is not None and self._answers and isinstance(error, Exception):
                with contextlib.suppress(PenstockError):
                    await message.fail(error)
                    await message.ack()
        finally:
            await self.close()


# What has arrived and is yet to be taken, or why nothing more will be.
#
# It lies between the socket and the program. How much of it there may be, and what becomes of it
# when a connection breaks, is the inlet's to say.

T = TypeVar("T")


class DeliveryBuffer(Generic[T]):
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
        """The first failure stays."""
        self._failure = self._failure or error
        self._change.set()

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def keep(self, wanted: Callable[[T], bool]) -> None:
        """Drop the rest."""
        self._waiting = deque(filter(wanted, self._waiting))

    def clear(self) -> None:
        self._waiting.clear()
