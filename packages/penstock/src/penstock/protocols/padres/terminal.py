"""The PADRES terminal: one socket, one client.

Bytes come in by `data_received` and are taken apart by `wire/padres`. What a client says goes to
the router of its virtual host (`terminal.py`), what the router has for it comes out of its mailbox
(`mailbox.py`, `writer.py`). `handshake.py` lets it in, `terminal.py` knows whether it still lives,
`broker/flow_control.py` when reading stops. A broker that connects is handed on as a link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.connection_registry import (
    half_close,
    register_connection,
    unregister_connection,
)
from penstock.broker.contract import LOGGED, REJECTED
from penstock.broker.flow_control import READ_BYTES, ReadFlowControl
from penstock.broker.host import Host
from penstock.core.errors import ConnectionForced, FrameError, PenstockError, QueueFull
from penstock.core.logs import get_logger
from penstock.protocols.padres.access import LinkAccess
from penstock.protocols.padres.handshake import PadresHandshake
from penstock.protocols.padres.mailbox import MAILBOX_QUEUE_PREFIX, EncodedEnvelopeCache
from penstock.protocols.padres.writer import WRITE_HIGH_WATER_BYTES, PadresWriter
from penstock.wire.padres.envelope import EnvelopeKind
from penstock.wire.padres.errors import INTERNAL_ERROR, error_code
from penstock.wire.padres.frames import (
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

if TYPE_CHECKING:
    from penstock.broker.content_routing import ContentRouter
    from penstock.broker.user import User
    from penstock.broker.vhost import VirtualHost
    from penstock.protocols.padres.access import PadresAccess
    from penstock.protocols.padres.mailbox import PadresMailbox
    from penstock.wire.padres.envelope import PadresEnvelope


#: How long a client that is sent away may take to read what it is told.
CLOSE_SECONDS: Final = 5.0

_log = get_logger("penstock.padres")


class PadresTerminal(asyncio.Protocol):
    __slots__ = (
        "_handshake",
        "_message_handler",
        "_write_batch",
        "access",
        "client_id",
        "closing",
        "flow_control",
        "heartbeats",
        "host",
        "mailbox",
        "name",
        "opened",
        "peer",
        "published",
        "reader",
        "router",
        "run",
        "service",
        "software",
        "tls",
        "transport",
        "vhost",
        "writer",
    )

    def __init__(self, service: PadresProtocol) -> None:
        self.service = service
        self.host = service.host
        self._write_batch = self.host.kernel.write_batch
        self.transport: asyncio.Transport
        self.peer: tuple[Any, ...]  # address and port
        self.tls: bool
        self.vhost: VirtualHost
        self.access: PadresAccess
        self.mailbox: PadresMailbox
        self.router: ContentRouter[PadresEnvelope]
        self.reader = PadresFrameReader()
        self.flow_control = ReadFlowControl(self)
        self.writer = PadresWriter(self)
        self.heartbeats = PadresHeartbeats(self)
        self.client_id = ""
        self.software = ""
        self.run = ""  #: of the program that the client is
        self.name = ""
        self.published = 0
        self.opened = False
        self.closing = False
        self._handshake: PadresHandshake | None = PadresHandshake(self)
        self._message_handler = PadresMessageHandler(self)

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        register_connection(self, transport, WRITE_HIGH_WATER_BYTES)
        self.heartbeats.expect(self.host.kernel.settings.handshake_timeout, self._too_late)

    def data_received(self, data: bytes) -> None:
        if not self.closing:
            self._take_in(data)

    def _take_in(self, data: bytes) -> None:
        self.heartbeats.heard = True
        write_batch = self._write_batch
        write_batch.reader = self.flow_control
        published = self.published
        try:
            for frame in self.reader.frames(data):
                self._take(frame)
                write_batch.check_time()
                if self.closing:
                    break
        except Exception as error:
            self.fail(error)
        metrics = self.host.kernel.metrics
        size = len(data)
        metrics.bytes_in += size
        if size >= READ_BYTES or self.flow_control.wide:
            self.flow_control.adapt_read_size(size)
        if self.published != published:
            metrics.published += self.published - published
            self.flow_control.check_limits()
        if self.writer.paused and self.flow_control.is_unread:
            self.flow_control.pause()
        self._write_batch.end_read()

    def _take(self, frame: PadresFrame) -> None:
        if isinstance(frame, OpenFrame):
            assert self._handshake is not None, "the reader lets one pass"
            self._handshake.begin(frame)
        elif isinstance(frame, MessageFrame):
            self._message_handler.take(frame)
        elif isinstance(frame, ConfirmFrame):
            self.writer.answered(frame.receipt)
        elif isinstance(frame, CloseFrame):
            self._leave()
            self.transport.close()
        elif not isinstance(frame, HeartbeatFrame):
            raise FrameError(f"{type(frame).__name__} is not for a client to say")

    def pause_writing(self) -> None:
        self.writer.pause()

    def resume_writing(self) -> None:
        self.writer.resume()
        self.flow_control.resume()
        self._write_batch.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self.heartbeats.stop()
        self.flow_control.end()
        unregister_connection(self)
        # What refers back to us would keep us, and all that was read, until cycles are looked for.
        del self.flow_control, self.writer, self.heartbeats, self._message_handler
        with suppress(AttributeError):  # who was not let in may have none
            del self.mailbox

    # Whether it is read from.

    @property
    def held(self) -> bool:
        return self.reader.stopped

    @held.setter
    def held(self, held: bool) -> None:
        self.reader.stopped = held

    @property
    def unread_bytes(self) -> int:
        return self.transport.get_write_buffer_size() if self.writer.paused else 0

    def blocking(self, reason: str) -> None:
        """Publishers notice that they are not read from."""

    def unblocking(self) -> None:
        """And that they are again."""

    def alarms_changed(self) -> None:
        if self.opened and not self.closing:
            self.flow_control.alarms_changed()

    # Life.

    def open(
        self,
        opened: OpenFrame,
        client_id: str,
        router: ContentRouter[PadresEnvelope],
        *,
        known: bool,
    ) -> None:
        """The client is let in; it was here before, if it is known."""
        settings = self.host.kernel.settings
        self.opened = True
        self._handshake = None
        self.client_id = client_id
        self.software = opened.software
        self.run = opened.store
        self.router = router
        self.reader.largest = settings.padres.max_frame_bytes
        self.writer.largest = opened.largest
        self.service.present[self.vhost.name, self.mailbox.name] = self
        product = self.host.product
        answer = OpenFrame(
            PeerRole.BROKER,
            router.broker_id,
            wanted=client_id,
            vhost=self.vhost.name,
            heartbeat=opened.heartbeat,
            largest=self.reader.largest,
            durable=opened.durable and known,
            software=f"{product['product']} {product['version']}",
        )
        self.writer.send(PROTOCOL_HEADER + encode_frame(answer))
        router.attach(self.mailbox, notify_subscriptions=opened.notify_subscriptions)
        self.writer.open(self.mailbox)
        self.heartbeats.begin(opened.heartbeat)

    def become_link(self, opened: OpenFrame, vhost: VirtualHost, user: User) -> None:
        """It is a broker: from now on the connection is the overlay's."""
        access = LinkAccess(self.host.users, user, opened.id)
        access.check()
        protocol = self.host.links.welcome(opened, vhost.name, access.check)
        self._handshake = None
        self._leave()
        self.heartbeats.stop()
        self.flow_control.end()
        self.host.client_left(self)
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        self.transport.resume_reading()
        if rest := self.reader.rest:
            protocol.data_received(rest)

    def _too_late(self) -> None:
        _log.info("client took too long to introduce itself", connection=self.name)
        self.transport.abort()

    def fail(self, error: Exception) -> None:
        """Close the connection and say why."""
        if self.closing:
            return
        code, text = error_code(error), str(error) or type(error).__name__
        if isinstance(error, PenstockError):
            _log.info("connection closed", connection=self.name, reason=text)
        else:
            code, text = INTERNAL_ERROR, "internal error"
            _log.error("connection failed", connection=self.name, exc_info=error)
        self.writer.send(
            (b"" if self.opened else PROTOCOL_HEADER) + encode_frame(CloseFrame(code, text))
        )
        self._leave()
        self.writer.flush()
        half_close(self, told=True)
        self.heartbeats.expect(CLOSE_SECONDS, self.transport.abort)

    def refuse(self, receipt: int, error: Exception) -> None:
        """What the client noted is not accepted; it may go on."""
        position = getattr(error, "position", -1)
        self.writer.send(encode_frame(ErrorFrame(receipt, error_code(error), str(error), position)))

    def _leave(self) -> None:
        """Once: let go of everything but the socket; what was read behind is not looked at."""
        self.closing = True
        self.reader.stopped = True
        if self._handshake is not None:
            self._handshake.cancel()
            self._handshake = None
        if not self.opened:
            return
        self.opened = False
        place = (self.vhost.name, self.mailbox.name)
        if self.service.present.get(place) is self:
            del self.service.present[place]
        self.writer.close()
        if not self.mailbox.durable:
            self.router.detach(self.mailbox.name)
            self.mailbox.forget()
        self.vhost.release(self)

    def end(self, reason: str) -> None:
        self.fail(ConnectionForced(reason))
        self._write_batch.flush()

    def abort(self) -> None:
        self.transport.abort()

    # Management.

    def describe(self) -> dict[str, Any]:
        return describe_connection(self)

    def describe_channels(self) -> list[dict[str, Any]]:
        return []

    def describe_consumers(self) -> list[dict[str, Any]]:
        return describe_consumers(self)


# PADRES as one broker speaks it: what its connections share.


class PadresProtocol:
    __slots__ = ("envelope_cache", "host", "present")

    def __init__(self, host: Host) -> None:
        self.host = host
        self.envelope_cache = EncodedEnvelopeCache()
        #: Clients that are connected, by virtual host and the name of their hop.
        self.present: dict[tuple[str, str], PadresTerminal] = {}

    def terminal(self) -> asyncio.Protocol:
        """For a connection that has just been made."""
        return PadresTerminal(self)

    def close(self) -> None:
        """There is nothing left when the last connection has ended."""


# Signs of life: who it is in good time, and then something to hear as often as was announced.

#: A peer is given up after as many of its intervals without a word.
MISSED_HEARTBEATS: Final = 3

_HEARTBEAT: Final = encode_frame(HeartbeatFrame())


class PadresHeartbeats:
    __slots__ = ("_deadline", "_silent", "_terminal", "_timer", "heard", "interval", "said")

    def __init__(self, terminal: PadresTerminal) -> None:
        self._terminal = terminal
        self._deadline: asyncio.TimerHandle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._silent = 0  # intervals in which nothing was heard
        self.interval = 0  #: seconds, for both sides; 0 for none
        self.heard = False  #: something came since the last look
        self.said = False  #: something was written since the last look

    def expect(self, seconds: float, otherwise: Callable[[], None]) -> None:
        """Something is due within this time."""
        self.stop()
        self._deadline = self._terminal.host.kernel.loop.call_later(seconds, otherwise)

    def begin(self, interval: int) -> None:
        self.stop()
        self.interval = interval
        if interval:
            self._wait()

    def stop(self) -> None:
        for timer in (self._deadline, self._timer):
            if timer is not None:
                timer.cancel()
        self._deadline = self._timer = None

    def _wait(self) -> None:
        self._timer = self._terminal.host.kernel.loop.call_later(self.interval, self._look)

    def _look(self) -> None:
        terminal = self._terminal
        # Who is not read from cannot be heard.
        self._silent = 0 if self.heard or not terminal.flow_control.reading else self._silent + 1
        if self._silent >= MISSED_HEARTBEATS:
            _log.info("nothing heard from client", connection=terminal.name)
            terminal.abort()
            return
        if not self.said and not terminal.writer.paused:
            terminal.transport.write(_HEARTBEAT)
        self.heard = self.said = False
        self._wait()


# What a client notes: checked against its permissions, given to the router, answered.
#
# An answer to a publication waits until what must be on disk is. One that is not asked for is given
# only if it is a refusal: a client has to know that its publications lead nowhere.


class PadresMessageHandler:
    __slots__ = ("_terminal",)

    def __init__(self, terminal: PadresTerminal) -> None:
        self._terminal = terminal

    def take(self, note: MessageFrame) -> None:
        terminal = self._terminal
        envelope, receipt = note.envelope, note.receipt
        if (
            envelope.id
            or envelope.source
            or envelope.tree
            or envelope.target_brokers
            or envelope.tree_changes
        ):
            # That is for brokers to say, and to each other.
            envelope = replace(
                envelope, id="", source="", tree="", target_brokers=(), tree_changes=0
            )
        if envelope.kind is EnvelopeKind.PUBLISH:
            terminal.published += 1
        try:
            terminal.access.check(envelope)
            answer = terminal.router.receive(terminal.mailbox, envelope)
            if answer.outcome & REJECTED:
                raise QueueFull("a queue has no room for the publication")
        except PenstockError as error:
            _log.debug("refused", connection=terminal.name, reason=str(error))
            terminal.refuse(receipt, error)
            return
        if not receipt:
            return
        if answer.outcome & LOGGED:
            confirmed = partial(self._confirm, receipt, answer.id)
            terminal.host.kernel.committer.after(confirmed, partial(self._failed, receipt))
        else:
            self._confirm(receipt, answer.id)

    def _confirm(self, receipt: int, id_: str) -> None:
        terminal = self._terminal
        if not terminal.closing:
            terminal.host.kernel.metrics.confirmed += 1
            terminal.writer.send(encode_frame(ConfirmFrame(receipt, id_)))

    def _failed(self, receipt: int, error: OSError) -> None:
        if not self._terminal.closing:
            self._terminal.refuse(receipt, error)


# A connection as management shows it, under RabbitMQ's field names.


def describe_connection(terminal: PadresTerminal) -> dict[str, Any]:
    opened = terminal.opened
    blocked = terminal.opened and terminal.flow_control.blocked  # who has gone has no intake
    return {
        "name": terminal.name,
        "protocol": "PADRES",
        "user": terminal.access.user.name if opened else "",
        "vhost": terminal.vhost.name if opened else "",
        "peer_host": terminal.peer[0],
        "peer_port": terminal.peer[1],
        "ssl": terminal.tls,
        "channels": 0,
        "channel_max": 0,
        "frame_max": terminal.reader.largest,
        "timeout": terminal.heartbeats.interval,
        "client_properties": {"client_id": terminal.client_id, "product": terminal.software},
        "state": "blocked" if blocked else "running" if opened else "starting",
    }


def describe_consumers(terminal: PadresTerminal) -> list[dict[str, Any]]:
    if not terminal.opened or terminal.writer.channel is None:
        return []
    return [
        {
            "consumer_tag": terminal.client_id,
            "queue": {
                "name": MAILBOX_QUEUE_PREFIX + terminal.mailbox.name,
                "vhost": terminal.vhost.name,
            },
            "channel_details": {"name": terminal.name},
            "ack_required": True,
            "prefetch_count": 0,
            "exclusive": True,
            "arguments": {},
        }
    ]
