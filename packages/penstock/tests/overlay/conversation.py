"""A client of real brokers, as small as can be: it says things and knows what it was told."""

from __future__ import annotations

import asyncio
from typing import Any, Self

from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope
from penstock.wire.padres.frames import (
    PROTOCOL_HEADER,
    CloseFrame,
    ConfirmFrame,
    ErrorFrame,
    MessageFrame,
    OpenFrame,
    PadresFrameReader,
    PeerRole,
    encode_frame,
)

#: Long enough for a machine that has much else to do.
PATIENCE = 60.0


class Talker:
    def __init__(self, name: str, durable: bool = False) -> None:
        self._open = OpenFrame(
            PeerRole.CLIENT, name, user="guest", password="guest", durable=durable, largest=1 << 22
        )
        self._answers: dict[int, asyncio.Future[str]] = {}
        self._receipt = 0
        self._came = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter
        self.got: list[PadresEnvelope] = []
        self.broker = ""

    async def connect(self, port: int) -> Self:
        reader, self._writer = await asyncio.open_connection("127.0.0.1", port)
        self._writer.write(PROTOCOL_HEADER + encode_frame(self._open))
        opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._read(reader, opened))
        await asyncio.wait_for(opened, PATIENCE)
        return self

    async def _read(self, stream: asyncio.StreamReader, opened: asyncio.Future[None]) -> None:
        reader = PadresFrameReader(1 << 24)
        try:
            while data := await stream.read(65536):
                for frame in reader.feed(data):
                    if isinstance(frame, OpenFrame):
                        self.broker = frame.id
                        opened.set_result(None)
                    elif isinstance(frame, MessageFrame):
                        self._take(frame)
                    elif isinstance(frame, ConfirmFrame):
                        self._answers.pop(frame.receipt).set_result(frame.id)
                    elif isinstance(frame, ErrorFrame):
                        error = RuntimeError(frame.text)
                        self._answers.pop(frame.receipt).set_exception(error)
                    elif isinstance(frame, CloseFrame):
                        raise ConnectionError(frame.reason)
            raise ConnectionError("the broker has gone")
        except (ConnectionError, OSError) as error:
            waiting: list[asyncio.Future[Any]] = [*self._answers.values(), opened]
            for one in waiting:
                if not one.done():
                    one.set_exception(ConnectionError(str(error)))

    def _take(self, frame: MessageFrame) -> None:
        self.got.append(frame.envelope)
        self._came.set()
        if frame.receipt:
            self._writer.write(encode_frame(ConfirmFrame(frame.receipt)))

    async def say(self, kind: EnvelopeKind, text: str, **header: object) -> str:
        """The id it got; of a publication, when it is safe."""
        self._receipt += 1
        answer = asyncio.get_running_loop().create_future()
        self._answers[self._receipt] = answer
        envelope = PadresEnvelope(kind, text, **header)  # type: ignore[arg-type]
        self._writer.write(encode_frame(MessageFrame(envelope, self._receipt)))
        return await asyncio.wait_for(answer, PATIENCE)

    async def until(self, count: int) -> list[PadresEnvelope]:
        """Wait until so many came."""
        async with asyncio.timeout(PATIENCE):
            while len(self.got) < count:
                self._came.clear()
                await self._came.wait()
        return self.got

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._writer.close()
