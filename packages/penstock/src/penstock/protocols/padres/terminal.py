"""The PADRES terminal: one socket and one client.

The frame reader is in `wire/padres`, the handshake in `handshake.py`. Messages of a client are
checked against its permissions and go to the router of its virtual host. The router delivers to the
client's mailbox (`mailbox.py`), from which `writer.py` sends. The connection of a broker becomes a
link of the overlay.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from penstock.broker.connection_registry import (
    connection_name,
    half_close,
    register_connection,
    unregister_connection,
)
from penstock.broker.contract import LOGGED, REJECTED
from penstock.broker.flow_control import ReadFlowControl
from penstock.broker.host import Host
from penstock.core.errors import ConnectionForced, FrameError, PenstockError, QueueFull
from penstock.core.logs import get_logger
from penstock.protocols.connection import (
    CLOSE_SECONDS,
    abort_handshake,
    describe_connection,
    describe_consumer,
    finish_read,
)
from penstock.protocols.heartbeats import HeartbeatTimer
from penstock.protocols.padres.access import LinkAccess
from penstock.protocols.padres.handshake import PadresHandshake
from penstock.protocols.padres.mailbox import MAILBOX_QUEUE_PREFIX, EncodedEnvelopeCache
from penstock.protocols.padres.writer import PadresWriter
from penstock.protocols.socket_writer import WRITE_HIGH_WATER_BYTES
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
    from penstock.broker.content_router import ContentRouter
    from penstock.broker.user import User
    from penstock.broker.vhost import VirtualHost
    from penstock.protocols.padres.access import PadresAccess
    from penstock.protocols.padres.mailbox import PadresMailbox
    from penstock.wire.padres.envelope import PadresEnvelope


#: Intervals without data, beyond the first, after which the client is gone.
MISSED_HEARTBEATS: Final = 2

_HEARTBEAT: Final = encode_frame(HeartbeatFrame())

_log = get_logger("penstock.padres")


class PadresProtocol:
    """What the connections of PADRES of one broker share."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.envelope_cache = EncodedEnvelopeCache()
        #: Connected clients, by virtual host and hop name.
        self.connected: dict[tuple[str, str], PadresTerminal] = {}

    def terminal(self) -> asyncio.Protocol:
        return PadresTerminal(self)

    def close(self) -> None:
        """There is nothing to release."""


class PadresTerminal(asyncio.Protocol):
    __slots__ = (
        "_handshake",
        "_write_batch",
        "access",
        "client_id",
        "closing",
        "flow_control",
        "heartbeats",
        "host",
        "mailbox",
        "opened",
        "output",
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
        self.writer: PadresWriter = PadresWriter(self)
        self.output = self.writer.output
        self.heartbeats = HeartbeatTimer(self, _HEARTBEAT, MISSED_HEARTBEATS)
        self.client_id = ""
        self.software = ""
        self.run = ""  #: identifies one run of the client program
        self.published = 0
        self.opened = False
        self.closing = False
        self._handshake: PadresHandshake | None = PadresHandshake(self)

    @property
    def name(self) -> str:
        return connection_name(self)

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        register_connection(self, transport, WRITE_HIGH_WATER_BYTES)
        seconds = self.host.kernel.settings.handshake_timeout
        self.heartbeats.expect(seconds, partial(abort_handshake, self))

    def data_received(self, data: bytes) -> None:
        if self.closing:
            return
        self.heartbeats.received = True
        write_batch = self._write_batch
        write_batch.reader = self.flow_control
        published = self.published
        try:
            for frame in self.reader.frames(data):
                self._on_frame(frame)
                write_batch.check_time()
        except Exception as error:
            self.fail(error)
        finish_read(self, len(data), published)
        write_batch.end_read()

    def _on_frame(self, frame: PadresFrame) -> None:
        if isinstance(frame, OpenFrame):
            assert self._handshake is not None, "the reader passes on one"
            self._handshake.begin(frame)
        elif isinstance(frame, MessageFrame):
            self._on_message(frame)
        elif isinstance(frame, ConfirmFrame):
            self.writer.acknowledge(frame.receipt)
        elif isinstance(frame, CloseFrame):
            self._detach()
            self.transport.close()
        elif not isinstance(frame, HeartbeatFrame):
            raise FrameError(f"a client must not send {type(frame).__name__}")

    def _on_message(self, frame: MessageFrame) -> None:
        envelope, receipt = frame.envelope, frame.receipt
        if (
            envelope.id
            or envelope.source
            or envelope.tree
            or envelope.target_brokers
            or envelope.tree_changes
        ):  # fields of messages between brokers
            envelope = replace(
                envelope, id="", source="", tree="", target_brokers=(), tree_changes=0
            )
        if envelope.kind is EnvelopeKind.PUBLISH:
            self.published += 1
        try:
            self.access.check(envelope)
            routed = self.router.receive(self.mailbox, envelope)
            if routed.outcome & REJECTED:
                raise QueueFull("a queue has no room for the publication")
        except PenstockError as error:
            # Sent without a receipt, too: the client has to know that it is not routed.
            _log.debug("message refused", connection=self.name, reason=str(error))
            self._refuse(receipt, error)
            return
        if receipt and routed.outcome & LOGGED:
            self.host.kernel.committer.after(
                partial(self._confirm, receipt, routed.id), partial(self._refuse, receipt)
            )
        elif receipt:
            self._confirm(receipt, routed.id)

    def _confirm(self, receipt: int, id_: str) -> None:
        if not self.closing:
            self.host.kernel.metrics.confirmed += 1
            self.output.send(encode_frame(ConfirmFrame(receipt, id_)))

    def _refuse(self, receipt: int, error: Exception) -> None:
        if not self.closing:
            position = getattr(error, "position", -1)
            frame = ErrorFrame(receipt, error_code(error), str(error), position)
            self.output.send(encode_frame(frame))

    def post_partial_buckets(self) -> None:
        """PADRES has no large messages."""

    def pause_writing(self) -> None:
        self.output.pause()

    def resume_writing(self) -> None:
        self.output.resume()
        self.flow_control.resume()
        self._write_batch.flush()

    def connection_lost(self, exc: Exception | None) -> None:
        self._detach()
        self.heartbeats.close()
        self.flow_control.end()
        self.output.close()
        unregister_connection(self)
        # Reference cycles would keep the terminal until the next garbage collection.
        del self.flow_control, self.writer
        with suppress(AttributeError):  # before the handshake it has none
            del self.mailbox

    # Flow control.

    @property
    def held(self) -> bool:
        return self.reader.stopped

    @held.setter
    def held(self, held: bool) -> None:
        self.reader.stopped = held

    @property
    def unread_bytes(self) -> int:
        return self.output.unread_bytes

    def blocking(self, reason: str) -> None:
        """PADRES has no such notification: the broker stops reading."""

    def unblocking(self) -> None:
        """As above."""

    def alarms_changed(self) -> None:
        if self.opened and not self.closing:
            self.flow_control.alarms_changed()

    # The connection.

    def open(
        self,
        opened: OpenFrame,
        client_id: str,
        router: ContentRouter[PadresEnvelope],
        *,
        known: bool,
    ) -> None:
        """The handshake is complete; `known` if the client's mailbox existed before."""
        settings = self.host.kernel.settings
        self.opened = True
        self._handshake = None
        self.client_id = client_id
        self.software = opened.software
        self.run = opened.store
        self.router = router
        self.reader.largest = settings.padres.max_frame_bytes
        self.writer.largest = opened.largest
        self.service.connected[self.vhost.name, self.mailbox.name] = self
        product = self.host.product
        response = OpenFrame(
            PeerRole.BROKER,
            router.broker_id,
            wanted=client_id,
            vhost=self.vhost.name,
            heartbeat=opened.heartbeat,
            largest=self.reader.largest,
            durable=opened.durable and known,
            software=f"{product['product']} {product['version']}",
        )
        self.output.send(PROTOCOL_HEADER + encode_frame(response))
        router.attach(self.mailbox, notify_subscriptions=opened.notify_subscriptions)
        self.writer.open(self.mailbox)
        seconds = opened.heartbeat
        self.heartbeats.start(seconds, send_every=seconds, check_every=seconds)

    def become_link(self, opened: OpenFrame, vhost: VirtualHost, user: User) -> None:
        """The peer is a broker: the overlay takes over the connection."""
        access = LinkAccess(self.host.users, user, opened.id)
        access.check()
        protocol = self.host.links.accept_link(opened, vhost.name, access.check)
        self._handshake = None
        self._detach()
        self.heartbeats.close()
        self.flow_control.end()
        self.output.close()
        self.host.client_left(self)
        self.transport.set_protocol(protocol)
        protocol.connection_made(self.transport)
        self.transport.resume_reading()
        if rest := self.reader.rest:
            protocol.data_received(rest)

    def fail(self, error: Exception) -> None:
        """Close the connection with the reason."""
        if self.closing:
            return
        code, text = error_code(error), str(error) or type(error).__name__
        if isinstance(error, PenstockError):
            _log.info("connection closed", connection=self.name, reason=text)
        else:
            code, text = INTERNAL_ERROR, "internal error"
            _log.error("connection failed", connection=self.name, exc_info=error)
        self.output.send(
            (b"" if self.opened else PROTOCOL_HEADER) + encode_frame(CloseFrame(code, text))
        )
        self._detach()
        self.writer.flush()
        half_close(self, reason_sent=True)
        self.heartbeats.expect(CLOSE_SECONDS, self.transport.abort)

    def _detach(self) -> None:
        """Release everything but the socket, once; the rest of the input is discarded."""
        self.closing = True
        self.reader.stopped = True
        if self._handshake is not None:
            self._handshake.cancel()
            self._handshake = None
        if not self.opened:
            return
        self.opened = False
        key = (self.vhost.name, self.mailbox.name)
        if self.service.connected.get(key) is self:
            del self.service.connected[key]
        self.writer.close()
        if not self.mailbox.durable:
            self.router.detach(self.mailbox.name)
            self.mailbox.delete()
        self.vhost.release(self)

    def end(self, reason: str) -> None:
        self.fail(ConnectionForced(reason))
        self._write_batch.flush()

    def abort(self) -> None:
        self.transport.abort()

    def credential_expired(self) -> None:
        self.end("credential expired")

    # Management.

    def describe(self) -> dict[str, Any]:
        properties = {"client_id": self.client_id, "product": self.software}
        return describe_connection(
            self,
            "PADRES",
            properties,
            frame_max=self.reader.largest,
            timeout=self.heartbeats.interval,
        )

    def describe_channels(self) -> list[dict[str, Any]]:
        return []

    def describe_consumers(self) -> list[dict[str, Any]]:
        if not self.opened or self.writer.channel is None:
            return []
        queue = MAILBOX_QUEUE_PREFIX + self.mailbox.name
        return [describe_consumer(self, self.client_id, queue)]
