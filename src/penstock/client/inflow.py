"""The receiving end that programs hold: a loop that settles, whichever protocol leads there."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from types import TracebackType
from typing import Protocol, Self

from penstock.client.errors import FabricClosed
from penstock.client.message import Message
from penstock.core.errors import PenstockError


class Inlet(Protocol):
    """Receives across reconnects."""

    async def open(self) -> None: ...

    async def receive(self) -> Message: ...

    async def close(self) -> None: ...


class Inflow:
    """A place messages come from; keeps `penstock.client.fabric.Inflow`."""

    def __init__(self, inlet: Inlet, *, answers: bool = False) -> None:
        self._inlet = inlet
        self._answers = answers  #: an error while one is in hand is the answer to it
        self._in_hand: Message | None = None
        self._held = False  #: by an `async with` block, which closes it

    async def open(self) -> Self:
        await self._inlet.open()
        return self

    async def receive(self) -> Message:
        return await self._inlet.receive()

    async def close(self) -> None:
        await self._inlet.close()

    async def __aiter__(self) -> AsyncGenerator[Message, None]:
        try:
            while True:
                try:
                    message = self._in_hand = await self._inlet.receive()
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
