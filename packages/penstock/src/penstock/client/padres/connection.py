"""A PADRES connection, and one that reconnects.

`PadresRecoveringConnection` repeats advertisements and subscriptions on each connection, unless the
broker still has them, and sends unanswered messages again. The ids that a program got stay valid,
although the broker may assign new ones.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, cast
from uuid import uuid4

from penstock import __version__
from penstock.client.errors import FabricClosed
from penstock.client.padres.endpoint import (
    PadresConnectionLost,
    PadresEndpoint,
    connect_error,
    permanent_error,
    refusal_error,
)
from penstock.client.padres.inbox import ReadProgress
from penstock.client.retry import connect_with_retry, reconnect_when_lost
from penstock.core.errors import ContentTooLarge, NotFound, PenstockError, ProtocolError
from penstock.core.logs import get_logger
from penstock.wire.padres.envelope import EnvelopeKind, PadresEnvelope
from penstock.wire.padres.errors import error_from_code
from penstock.wire.padres.frames import (
    MAX_FRAME_BYTES,
    PROTOCOL_HEADER,
    CloseFrame,
    ConfirmFrame,
    ErrorFrame,
    HeartbeatFrame,
    MessageFrame,
    OpenFrame,
    PadresFrame,
    PadresFrameReader,
    PeerRole,
    encode_frame,
)

CONNECT_SECONDS: Final = 10.0
CLOSE_SECONDS: Final = 5.0
MAX_MISSED_HEARTBEATS: Final = 3

_BEAT: Final = encode_frame(HeartbeatFrame())


class PadresConnection(asyncio.Protocol):
    def __init__(
        self,
        endpoint: PadresEndpoint,
        on_message: Callable[[PadresEnvelope, int], None],
        on_lost: Callable[[PadresConnectionLost], None],
    ) -> None:
        self._endpoint = endpoint
        self._on_message = on_message
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._reader = PadresFrameReader(MAX_FRAME_BYTES)
        self._transport: asyncio.Transport | None = None
        self.welcome: OpenFrame | None = None  #: the answer of the broker
        self._welcome: asyncio.Future[OpenFrame] = self._loop.create_future()
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._writable = asyncio.Event()
        self._writable.set()
        self._answers: dict[int, tuple[PadresEnvelope, asyncio.Future[str]]] = {}
        self._receipt = 0
        self._received = True
        self._silent = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closing = False

    async def connect(
        self,
        client_id: str,
        run: str,
        *,
        lasting: bool,
        attentive: bool,
        tls: ssl.SSLContext | None,
    ) -> OpenFrame:
        """Returns the answer of the broker; raises if the broker refuses the client."""
        endpoint = self._endpoint
        async with asyncio.timeout(CONNECT_SECONDS):
            await self._loop.create_connection(
                lambda: self, endpoint.host, endpoint.port, ssl=tls or endpoint.tls_context()
            )
            hello = OpenFrame(
                PeerRole.CLIENT,
                client_id,
                store=run,
                user=endpoint.user,
                password=endpoint.password,
                vhost=endpoint.vhost,
                wanted=endpoint.broker,
                heartbeat=endpoint.heartbeat,
                durable=lasting,
                notify_subscriptions=attentive,
                software=f"penstock {__version__}",
            )
            self._write(PROTOCOL_HEADER + encode_frame(hello))
            welcome = await self._welcome
        if welcome.heartbeat:
            self._watch(welcome.heartbeat)
        return welcome

    async def writable(self) -> None:
        await self._writable.wait()

    def send(self, envelope: PadresEnvelope) -> asyncio.Future[str]:
        """Send a message; the future has the id that the broker gives it."""
        answer: asyncio.Future[str] = self._loop.create_future()
        if self._gone.done() or self._transport is None:
            answer.set_exception(PadresConnectionLost("the connection was closed"))
            return answer
        frame = encode_frame(MessageFrame(envelope, self._receipt + 1))
        largest = self.welcome.largest if self.welcome is not None else MAX_FRAME_BYTES
        if len(frame) - 4 > largest:
            problem = f"a message of {len(frame) - 4} bytes; the broker accepts {largest}"
            answer.set_exception(ContentTooLarge(problem))
            return answer
        self._receipt += 1
        self._answers[self._receipt] = (envelope, answer)
        self._write(frame)
        return answer

    def confirm(self, receipt: int) -> None:
        if not self._gone.done():
            self._write(encode_frame(ConfirmFrame(receipt)))

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    async def close(self) -> None:
        self._closing = True
        if self._transport is None or self._gone.done():
            return
        self._write(encode_frame(CloseFrame()))
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
        self._received = True
        try:
            for frame in self._reader.frames(data):
                self._take(frame)
        except PenstockError as error:
            self._lose(PadresConnectionLost(str(error), error))
            self.abandon()

    def _take(self, frame: PadresFrame) -> None:
        if isinstance(frame, MessageFrame):
            self._on_message(frame.envelope, frame.receipt)
        elif isinstance(frame, ConfirmFrame):
            _, answer = self._answers.pop(frame.receipt, (None, None))
            if answer is not None and not answer.done():
                answer.set_result(frame.id)
        elif isinstance(frame, ErrorFrame):
            envelope, answer = self._answers.pop(frame.receipt, (None, None))
            if envelope is not None and answer is not None and not answer.done():
                answer.set_exception(refusal_error(frame, envelope))
        elif isinstance(frame, OpenFrame):
            if frame.role is not PeerRole.BROKER:
                raise ProtocolError("the peer is not a broker")
            self.welcome = frame
            if not self._welcome.done():
                self._welcome.set_result(frame)
        elif isinstance(frame, CloseFrame):
            self._lose(
                PadresConnectionLost(frame.reason, error_from_code(frame.code, frame.reason))
            )

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._gone.done():
            self._gone.set_result(None)
        self._lose(PadresConnectionLost(str(error) if error else "the connection was closed"))

    def _lose(self, lost: PadresConnectionLost) -> None:
        closing, self._closing = self._closing, True
        self._writable.set()
        answers, self._answers = self._answers, {}
        for _, answer in answers.values():
            if not answer.done():
                answer.set_exception(lost)
        if not self._welcome.done():
            self._welcome.set_exception(lost)
        elif not closing:
            self._on_lost(lost)

    def _watch(self, every: float) -> None:
        self._silent = 0 if self._received else self._silent + 1
        self._received = False
        if self._silent >= MAX_MISSED_HEARTBEATS:
            self._lose(PadresConnectionLost(f"no heartbeat for {self._silent * every} s"))
            self.abandon()
            return
        self._write(_BEAT)
        self._timer = self._loop.call_later(every, self._watch, every)


_WITHDRAWALS: Final = {
    EnvelopeKind.ADVERTISE: EnvelopeKind.UNADVERTISE,
    EnvelopeKind.SUBSCRIBE: EnvelopeKind.UNSUBSCRIBE,
    EnvelopeKind.COMPOSITE: EnvelopeKind.UNCOMPOSITE,
}

log = get_logger(__name__)


@dataclass(slots=True)
class PadresRegistration:
    """An advertisement or a subscription."""

    id: str  #: for the program
    envelope: PadresEnvelope
    broker_id: str  #: on the present connection


#: Called with the id of the broker that delivered a message.
PublicationCallback = Callable[[str, PadresEnvelope, ReadProgress, int], None]


class PadresRecoveringConnection:
    def __init__(
        self,
        endpoint: PadresEndpoint,
        client_id: str,
        *,
        lasting: bool,
        attentive: bool,
        tls: ssl.SSLContext | None,
        take: PublicationCallback,
        failed: Callable[[PadresRecoveringConnection, PenstockError], None],
    ) -> None:
        self.endpoint = endpoint
        self.registrations: dict[str, PadresRegistration] = {}
        self.client_id = client_id
        self.welcome: OpenFrame | None = None  #: the last answer of the broker
        self._run = uuid4().hex  # identifies this client to the broker after a reconnect
        self._lasting = lasting
        self._attentive = attentive
        self._tls = tls
        self._take = take
        self._failed = failed
        self._current: PadresConnection | None = None
        self._reading: ReadProgress | None = None
        self._ready = asyncio.Event()  # connected, with all registrations repeated; or failed
        self._lost = asyncio.Event()
        self._recovery: asyncio.Task[None] | None = None
        self._failure: PenstockError | None = None

    @property
    def id(self) -> str:
        assert self.welcome is not None, "known once it is open"
        return self.welcome.id

    @property
    def connected(self) -> bool:
        return self._ready.is_set()

    async def open(self, retry_seconds: float) -> None:
        await connect_with_retry(self._connect, retry_seconds)
        self._recovery = asyncio.create_task(
            reconnect_when_lost(self._lost, self._connect, self._fail, self.endpoint)
        )

    async def close(self) -> None:
        if self._failure is None:
            self._failure = FabricClosed("the connection was closed")
            self._ready.set()
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.gather(self._recovery, return_exceptions=True)
        if self._current is not None:
            if self._reading is not None:
                self._reading.flush()
            await self._current.close()

    async def register(self, envelope: PadresEnvelope) -> str:
        """Advertise or subscribe; returns the id."""
        id_ = await self.send(envelope)
        self.registrations[id_] = PadresRegistration(id_, envelope, id_)
        return id_

    async def unregister(self, id_: str) -> None:
        registration = self.registrations.pop(id_, None)
        if registration is None:
            raise NotFound(f"the client has no registration {id_!r} at {self.id}")
        while True:
            wire = await self._connected()
            with suppress(PadresConnectionLost):
                kind = _WITHDRAWALS[registration.envelope.kind]
                await wire.send(PadresEnvelope(kind, registration.broker_id))
                return

    async def send(self, envelope: PadresEnvelope) -> str:
        """Sends again after each lost connection, until the broker answers."""
        while True:
            wire = await self._connected()
            with suppress(PadresConnectionLost):
                return await wire.send(envelope)

    async def writable(self) -> None:
        await (await self._connected()).writable()

    async def _connected(self) -> PadresConnection:
        await self._ready.wait()
        if self._failure is not None:
            raise self._failure
        assert self._current is not None
        return self._current

    async def _connect(self) -> None:
        self._lost.clear()

        def on_message(envelope: PadresEnvelope, receipt: int) -> None:
            assert wire.welcome is not None, "the first frame is an open frame"
            self._take(wire.welcome.id, envelope, reading, receipt)

        wire = PadresConnection(self.endpoint, on_message, self._on_lost)
        reading = self._reading = ReadProgress(wire.confirm)
        try:
            self.welcome = await wire.connect(
                self.client_id,
                self._run,
                lasting=self._lasting,
                attentive=self._attentive,
                tls=self._tls,
            )
            self.client_id = self.welcome.wanted
            if not self.welcome.durable:
                for registration in list(self.registrations.values()):
                    registration.broker_id = await wire.send(registration.envelope)
        except (PenstockError, OSError, PadresConnectionLost) as error:
            wire.abandon()
            raise connect_error(self.endpoint, error) from error
        if not self._lost.is_set():
            self._current = wire
            self._ready.set()

    def _on_lost(self, lost: PadresConnectionLost) -> None:
        self._ready.clear()
        failure = permanent_error(lost)
        if failure is not None:
            self._fail(failure)
        else:
            log.warning("connection lost", broker=str(self.endpoint), reason=str(lost))
            self._lost.set()

    def _fail(self, error: PenstockError) -> None:
        if self._failure is None:
            self._failure = error
            self._failed(self, error)
            self._ready.set()
