"""Receiving across reconnects.

Between the socket and the program lies a buffer. When it is as long as the prefetch, the broker is
held up until half of it is taken. Over a break, what the broker sends again because the session
was kept is dropped from the buffer; else what is there is all there is of it, and stays.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from types import TracebackType
from typing import Self

from paho.mqtt.client import MQTTMessage

from penstock.client.errors import FabricClosed
from penstock.client.message import Message
from penstock.client.mqtt.delivery import Delivery, Receipt, read_message
from penstock.client.mqtt.session import Session
from penstock.core.errors import PenstockError


class Inlet:
    """A place messages come from; keeps `penstock.client.fabric.Inflow`."""

    def __init__(
        self,
        session: Session,
        patterns: Sequence[str],
        *,
        qos: int,
        prefetch: int,
        answers: bool = False,
        owns: bool = False,
    ) -> None:
        self._session = session
        self._patterns = patterns
        self._qos = qos
        self._prefetch = prefetch
        self._answers = answers  #: an error while one is in hand is the answer to it
        self._owns = owns  #: the session is for this inlet alone, and ends with it
        self._buffer: deque[tuple[MQTTMessage, Receipt | None]] = deque()
        self._change = asyncio.Event()  #: something arrived, or the inlet failed
        self._failure: PenstockError | None = None
        self._opening: asyncio.Task[None] | None = None
        self._in_hand: Message | None = None
        self._held = False  #: by an `async with` block, which closes it

    async def open(self) -> Self:
        if self._failure is not None:
            raise self._failure
        if self._opening is None:
            adding = self._session.subscriptions.add(self, self._patterns, self._qos)
            self._opening = asyncio.create_task(adding)
        try:
            await asyncio.shield(self._opening)
        except PenstockError as error:
            self.failed(error)
            self._session.subscriptions.remove(self)
        if self._failure is not None:
            raise self._failure
        return self

    async def receive(self) -> Message:
        await self.open()
        while not self._buffer:
            if self._failure is not None:
                raise self._failure
            self._change.clear()
            await self._change.wait()
        packet, receipt = self._buffer.popleft()
        if len(self._buffer) * 2 <= self._prefetch:
            self._session.link.release(self)
        return read_message(packet, Delivery(packet, receipt, self._session.outlet))

    async def close(self) -> None:
        self.failed(FabricClosed("the fabric was closed"))
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        self._session.subscriptions.remove(self)
        self._session.link.release(self)
        self._buffer.clear()
        if self._owns:
            await self._session.close()

    def take(self, packet: MQTTMessage, receipt: Receipt | None) -> None:
        self._buffer.append((packet, receipt))
        if len(self._buffer) >= self._prefetch:
            self._session.link.hold(self)
        self._change.set()

    def renewed(self, session_present: bool) -> None:
        if session_present:
            kept = [(packet, receipt) for packet, receipt in self._buffer if receipt is None]
            self._buffer = deque(kept)
            self._session.link.release(self)

    def failed(self, error: PenstockError) -> None:
        self._failure = self._failure or error
        self._change.set()

    async def __aiter__(self) -> AsyncGenerator[Message, None]:
        try:
            while True:
                try:
                    message = self._in_hand = await self.receive()
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
