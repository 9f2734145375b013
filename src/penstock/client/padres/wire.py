"""One connection to a broker that speaks PADRES: frames out, answers and publications in."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, cast

from penstock import __version__
from penstock.client.padres.endpoint import Endpoint
from penstock.client.padres.faults import Lost, refusal
from penstock.core.errors import ContentTooLarge, PenstockError, ProtocolError
from penstock.wire.padres.codec import encode
from penstock.wire.padres.conditions import error_of
from penstock.wire.padres.envelope import Envelope
from penstock.wire.padres.frames import (
    LARGEST,
    PREFACE,
    Beat,
    Close,
    Confirm,
    Failed,
    Frame,
    Note,
    Open,
    Role,
)
from penstock.wire.padres.reader import Reader

CONNECT_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 5.0
#: A broker is given up after as many of its intervals without a word.
PATIENCE: Final = 3

_BEAT: Final = encode(Beat())


class Wire(asyncio.Protocol):
    def __init__(
        self,
        endpoint: Endpoint,
        on_note: Callable[[Envelope, int], None],
        on_lost: Callable[[Lost], None],
    ) -> None:
        self._endpoint = endpoint
        self._on_note = on_note
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._reader = Reader(LARGEST)
        self._transport: asyncio.Transport | None = None
        self.welcome: Open | None = None  #: what the broker said of itself
        self._welcome: asyncio.Future[Open] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._room = asyncio.Event()
        self._room.set()
        self._answers: dict[int, tuple[Envelope, asyncio.Future[str]]] = {}
        self._receipt = 0
        self._heard = True
        self._silent = 0
        self._timer: asyncio.TimerHandle | None = None
        self._leaving = False

    async def connect(
        self,
        client_id: str,
        run: str,
        *,
        lasting: bool,
        attentive: bool,
        tls: ssl.SSLContext | None,
    ) -> Open:
        """Returns what the broker answers, or raises why it does not let us in."""
        endpoint = self._endpoint
        async with asyncio.timeout(CONNECT_SECONDS):
            await self._loop.create_connection(
                lambda: self, endpoint.host, endpoint.port, ssl=tls or endpoint.tls_context()
            )
            hello = Open(
                Role.CLIENT,
                client_id,
                store=run,
                user=endpoint.user,
                password=endpoint.password,
                vhost=endpoint.vhost,
                wanted=endpoint.broker,
                heartbeat=endpoint.heartbeat,
                lasting=lasting,
                attentive=attentive,
                software=f"penstock {__version__}",
            )
            self._write(PREFACE + encode(hello))
            welcome = await self._welcome
        if welcome.heartbeat:
            self._watch(welcome.heartbeat)
        return welcome

    # What is said.

    async def room(self) -> None:
        """Returns when the broker takes more."""
        await self._room.wait()

    def note(self, envelope: Envelope) -> asyncio.Future[str]:
        """The future has the id the message gets."""
        answer: asyncio.Future[str] = self._loop.create_future()
        if self._gone.done() or self._transport is None:
            answer.set_exception(Lost("the connection was closed"))
            return answer
        frame = encode(Note(envelope, self._receipt + 1))
        largest = self.welcome.largest if self.welcome is not None else LARGEST
        if len(frame) - 4 > largest:
            problem = f"a message of {len(frame) - 4} bytes, and the broker takes {largest}"
            answer.set_exception(ContentTooLarge(problem))
            return answer
        self._receipt += 1
        self._answers[self._receipt] = (envelope, answer)
        self._write(frame)
        return answer

    def confirm(self, receipt: int) -> None:
        if not self._gone.done():
            self._write(encode(Confirm(receipt)))

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    async def close(self) -> None:
        """Leave with a word."""
        self._leaving = True
        if self._transport is None or self._gone.done():
            return
        self._write(encode(Close()))
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.shield(self._gone)
        except TimeoutError:
            self._transport.abort()

    def abandon(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._heard = True
        try:
            for frame in self._reader.frames(data):
                self._take(frame)
        except PenstockError as error:
            self._lose(Lost(str(error), error))
            self.abandon()

    def _take(self, frame: Frame) -> None:
        if isinstance(frame, Note):
            self._on_note(frame.envelope, frame.receipt)
        elif isinstance(frame, Confirm):
            _, answer = self._answers.pop(frame.receipt, (None, None))
            if answer is not None and not answer.done():
                answer.set_result(frame.id)
        elif isinstance(frame, Failed):
            envelope, answer = self._answers.pop(frame.receipt, (None, None))
            if envelope is not None and answer is not None and not answer.done():
                answer.set_exception(refusal(frame, envelope))
        elif isinstance(frame, Open):
            if frame.role is not Role.BROKER:
                raise ProtocolError("what answers is no broker")
            self.welcome = frame
            if not self._welcome.done():
                self._welcome.set_result(frame)
        elif isinstance(frame, Close):
            self._lose(Lost(frame.reason, error_of(frame.code, frame.reason)))

    def pause_writing(self) -> None:
        self._room.clear()

    def resume_writing(self) -> None:
        self._room.set()

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._gone.done():
            self._gone.set_result(None)
        self._lose(Lost(str(error) if error else "the connection was closed"))

    def _lose(self, lost: Lost) -> None:
        """Once: what waits for an answer does not get it here."""
        told, self._leaving = self._leaving, True
        self._room.set()
        answers, self._answers = self._answers, {}
        for _, answer in answers.values():
            if not answer.done():
                answer.set_exception(lost)
        if not self._welcome.done():
            self._welcome.set_exception(lost)
        elif not told:
            self._on_lost(lost)

    # Signs of life.

    def _watch(self, every: float) -> None:
        self._silent = 0 if self._heard else self._silent + 1
        self._heard = False
        if self._silent >= PATIENCE:
            self._lose(Lost(f"no sign of life for {self._silent * every} s"))
            self.abandon()
            return
        self._write(_BEAT)
        self._timer = self._loop.call_later(every, self._watch, every)
